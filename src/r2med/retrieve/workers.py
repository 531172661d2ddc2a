"""Workers: processes that do pieces of work, on this machine or on others.

All kinds of workers follow the same rules. Pieces of work are cut alike everywhere, so results are
the same. A worker loads a model once. A piece that fails, hangs or takes its worker with it is
tried again on another worker, three times in all; then it is named, and the others go on. What a
worker finished is in the store of vectors before it takes the next piece.

Each worker has a thread in this process, which asks it for one thing at a time.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from r2med.atomic import write_file
from r2med.errors import MissingError, R2MedError, UsageError, WorkError
from r2med.home import home
from r2med.retrieve.conditions import Loadable, Tell

#: Times that a piece is tried before it counts as failed.
ATTEMPTS = 3
#: Without GPUs, so many cores share a worker where there are enough of them.
_CORES = 4
#: Seconds in which a worker must have begun, and in which a model must be loaded.
_BEGINNING, _LOADING = 120.0, 3600.0
#: Seconds after which the driver looks again whether there is room for more workers.
LOOK_AGAIN = 2.0

Tag = TypeVar("Tag")
Piece = TypeVar("Piece")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Answer:
    """What came of a request to a worker."""

    outcomes: list[Any]
    error: R2MedError | None = None
    """Why there are no outcomes."""
    notices: tuple[str, ...] = ()
    """What a reader of the scores should know."""
    loaded: tuple[str, ...] = ()
    """The keys of what the worker holds now."""


class LostError(WorkError):
    """A worker died or did not answer in time."""


class Member(ABC):
    """One worker as the driver sees it."""

    def __init__(self) -> None:
        self.ready = False
        self.loaded: tuple[str, ...] = ()
        """The keys of what it has loaded, by its last answer."""

    @abstractmethod
    def call(self, method: str, *arguments: Any, seconds: float | None) -> Answer:
        """Ask for one thing and wait for the answer; LostError where none comes in time."""

    @abstractmethod
    def kill(self) -> None:
        """End it at once; whoever waits for an answer then hears that it is lost."""


@dataclass(eq=False)
class Job:
    """One piece of work on its way through the workers."""

    source: Loadable
    function: Callable[[Any, Any], Iterable[Any]]
    piece: Any
    future: Future[list[Any]] = field(default_factory=Future)
    tried: list[Member] = field(default_factory=list)
    """The workers that failed on it."""
    wanted: bool = True


class Workers(ABC):
    """Workers of one kind, which start when they are first needed."""

    def __init__(self, name: str, *, timeout: float | None, tell: Tell) -> None:
        self.name = name
        """As in --engine."""
        self.share_home = True
        """Whether workers that can reach the driver's home write vectors there themselves."""
        self._timeout = timeout
        self._tell_once = cache(tell)
        self._queue: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._members: list[Member] = []
        self._failed_starts = 0
        self._mark: tuple[Path, str] | None = None
        self._changed = threading.Condition()
        """Guards all of the above, and wakes threads when there may be work for them."""
        weakref.finalize(self, _end, self._threads, self._members)

    def each(
        self,
        source: Loadable,
        work: Callable[[Any, Piece], Iterable[Outcome]],
        pieces: Iterable[tuple[Tag, Piece]],
    ) -> Iterator[tuple[Tag, Outcome]]:
        """What `work` makes of every piece, in any order, each with the piece's tag.

        A WorkError at the end names the pieces that failed.
        """
        waiting, count, failures = iter(pieces), 0, list[WorkError]()
        under_way: dict[Future[list[Outcome]], tuple[Tag, Job]] = {}
        try:
            while True:
                for tag, piece in islice(waiting, max(0, 4 * self._size() - len(under_way))):
                    job = self._put(source, work, piece)
                    under_way[job.future] = (tag, job)
                    count += 1
                if not under_way:
                    break
                for future in wait(under_way, LOOK_AGAIN, FIRST_COMPLETED).done:
                    tag, _ = under_way.pop(future)
                    try:
                        outcomes = future.result()
                    except WorkError as problem:
                        failures.append(problem)
                        continue
                    for outcome in outcomes:
                        yield tag, outcome
        finally:  # let nobody begin these any more
            with self._changed:
                for _, job in under_way.values():
                    job.wanted = False
                    with suppress(ValueError):
                        self._queue.remove(job)
        if failures:
            raise WorkError(
                f"{len(failures):,} of {count:,} pieces of work failed, each {ATTEMPTS} times; "
                f"what the others gave is kept. The first: {failures[0]}"
            )

    def submit(
        self, source: Loadable, work: Callable[[Any, Piece], Iterable[Outcome]], piece: Piece
    ) -> Callable[[], list[Outcome]]:
        """Begin a piece of work; call the answer to wait for what came of it."""
        job = self._put(source, work, piece)
        self._size()

        def result() -> list[Outcome]:
            while not wait([job.future], LOOK_AGAIN).done:
                self._size()  # a machine may have joined
            return job.future.result()

        return result

    def close(self) -> None:
        """End every worker; the next piece starts them again."""
        threads = list(self._threads)
        self._stop(WorkError("given up"))
        _end(self._threads, self._members)
        for thread in threads:
            thread.join()

    @abstractmethod
    def _capacity(self) -> int:
        """How many workers there is room for; called before the first of them starts."""

    @abstractmethod
    def _launch(self, place: int) -> Member:
        """Start the worker of a place, numbered from 0."""

    def _size(self) -> int:
        """The number of workers; those that are missing are started."""
        with self._changed:
            for place in range(len(self._threads), self._capacity()):
                self._mark = _home_mark() if self.share_home else None
                thread = threading.Thread(target=self._serve, args=(place,), daemon=True)
                self._threads.append(thread)
                thread.start()
            return len(self._threads)

    def _put(self, source: Loadable, function: Callable[..., Any], piece: Any) -> Job:
        with self._changed:
            self._queue.append(job := Job(source, function, piece))
            self._changed.notify_all()
        return job

    def _stop(self, error: Exception) -> None:
        """Let everything that waits fail, and threads end when they are done."""
        with self._changed:
            self._threads.clear()
            while self._queue:
                self._queue.popleft().future.set_exception(error)
            self._changed.notify_all()

    def _serve(self, place: int) -> None:
        """Employ a worker, and another one when it is lost, until this thread is to end."""
        try:
            while threading.current_thread() in self._threads:
                self._employ(self._launch(place))
        except Exception as problem:
            self._stop(problem)

    def _employ(self, member: Member) -> None:
        """Let a worker do what waits, as long as it lives."""
        try:
            with self._changed:
                self._members.append(member)
                if threading.current_thread() not in self._threads:  # closed meanwhile
                    return
            self._begin(member)
            while job := self._next(member):
                self._do(job, member)
        except LostError:
            pass
        finally:
            member.kill()
            with self._changed:
                self._members.remove(member)
                self._changed.notify_all()

    def _begin(self, member: Member) -> None:
        """Have it say who it is."""
        try:
            answer = member.call("begin", self._mark, Path.cwd(), seconds=_BEGINNING)
        except LostError as problem:
            self._failed_starts += 1
            if self._failed_starts < ATTEMPTS:
                raise
            raise MissingError(
                f"no worker of --engine {self.name} could be started: {problem}."
            ) from None
        (other, host), own = answer.outcomes, version("r2med")
        if other != own:
            raise UsageError(
                f"the worker on {host} runs r2med {other}, this is {own}. Install the same "
                "version on every machine."
            )
        self._failed_starts = 0
        member.ready = True

    def _next(self, member: Member) -> Job | None:
        """Wait for a job that this worker has not failed on, or that every worker has."""
        with self._changed:
            while threading.current_thread() in self._threads:
                others = [other for other in self._members if other.ready]
                for job in self._queue:
                    if member not in job.tried or all(other in job.tried for other in others):
                        self._queue.remove(job)
                        return job
                self._changed.wait()
        return None

    def _do(self, job: Job, member: Member) -> None:
        source = job.source
        steps = [(replace(source, load=_lacking), job.function, job.piece, self._timeout)]
        if source.key not in member.loaded:  # a model may take longer to load than for a piece
            steps.insert(0, (source, _nothing, None, self._timeout and _LOADING))
        try:
            for sent, function, piece, seconds in steps:
                answer = member.call("work", sent, function, piece, seconds=seconds)
                member.loaded = answer.loaded
                with self._changed:
                    for notice in answer.notices:
                        self._tell_once(notice)
                if answer.error:
                    self._failed(job, member, answer.error)
                    return
            job.future.set_result(answer.outcomes)
        except LostError as problem:
            self._failed(job, member, problem)
            raise
        except Exception as problem:  # what cannot be sent, for example
            job.future.set_exception(problem)

    def _failed(self, job: Job, member: Member, error: R2MedError) -> None:
        """Let another worker try the job, unless enough have, or nobody wants it any more."""
        job.tried.append(member)
        named = f"{job.piece}: {error}"
        with self._changed:
            going_on = job.wanted and threading.current_thread() in self._threads
            if isinstance(error, UsageError):
                job.future.set_exception(error)
            elif len(job.tried) >= ATTEMPTS or not going_on:
                job.future.set_exception(WorkError(named))
            else:
                self._queue.appendleft(job)
                self._changed.notify_all()
                self._tell_once(f"{named.splitlines()[0]}; tried again on another worker.")


def _lacking(tell: Tell) -> Any:
    """The loader of what a worker has loaded: a whole task is not sent with each piece."""
    raise WorkError("the worker lacks what it had loaded")


def _nothing(loaded: Any, piece: None) -> Iterable[Any]:
    """The work of a piece that only has something loaded."""
    return ()


def _end(threads: list[threading.Thread], members: list[Member]) -> None:
    """End workers and let their threads start no others; also when this process exits."""
    threads.clear()
    for member in list(members):
        member.kill()


def shares(cores: int, gpus: int) -> tuple[int, int]:
    """How many workers a machine or cluster has room for, and the cores of each."""
    count = gpus or max(cores // _CORES, min(cores, 2))
    return count, max(1, cores // count)


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _home_mark() -> tuple[Path, str]:
    """A file in the home folder that says something no other home's does."""
    path = home() / "home-id"
    if not path.is_file():
        write_file(path, secrets.token_hex(16))
    return path, path.read_text(encoding="utf-8")
