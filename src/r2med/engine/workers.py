"""Where work runs: in this process, in processes of this machine, or on a Ray cluster.

All engines follow the same rules. Pieces of work are cut alike everywhere, so results are the same.
A worker loads a model once. A piece that fails, hangs or takes its worker with it is tried again
on another worker, three times in all; then it is named, and the others go on. What a worker
finished is in the store of vectors before it takes the next piece.
"""

from __future__ import annotations

import os
import secrets
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_file
from r2med.engine.worker import UNLOADED, Answer
from r2med.errors import MissingError, R2MedError, UsageError, WorkError
from r2med.home import home
from r2med.retrieve.conditions import Loadable, Outcome, Piece, Tag, Tell, Workers, log

#: Times that a piece is tried before it counts as failed.
ATTEMPTS = 3
#: Without GPUs, so many cores share a worker where there are enough of them.
_CORES = 4
#: Models and tasks that a worker holds at a time; the one unused for longest goes first.
_HELD = 4
#: Seconds in which a worker must have begun, and in which a model must be loaded.
_BEGINNING, _LOADING = 120.0, 3600.0


def open_workers(
    engine: str, *, timeout: float | None = None, device: str | None = None, tell: Tell = log
) -> Workers | None:
    """The workers of an engine, which start when they are first needed; None is this process.

    `timeout` is the seconds that a worker may take for one piece; None is as long as it takes.
    """
    name, _, value = engine.partition("=")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"--worker-timeout {timeout:g}: expected seconds above 0.")
    if engine == "local":
        if timeout is not None:
            raise UsageError("--worker-timeout needs --engine processes or --engine ray.")
        return None
    if name == "processes" and (not value or (value.isdecimal() and int(value))):
        from r2med.engine.processes import ProcessPool

        return ProcessPool(int(value) if value else None, timeout=timeout, device=device, tell=tell)
    if name == "ray":
        from r2med.engine.cluster import RayPool

        return RayPool(value or None, timeout=timeout, device=device, tell=tell)
    raise UsageError(
        f"--engine {engine!r} is not known. --engine is local, processes, processes=N, ray or "
        "ray=ADDRESS."
    )


def shares(cores: int, gpus: int) -> tuple[int, int]:
    """How many workers a machine or cluster has room for, and the cores of each."""
    count = gpus or max(cores // _CORES, min(cores, 2))
    return count, max(1, cores // count)


@dataclass(eq=False)
class Job:
    """One piece of work on its way through the workers."""

    source: Loadable
    function: Callable[[Any, Any], Iterable[Any]]
    piece: Any
    tag: Any = None
    attempts: int = 0
    tried: set[int] = field(default_factory=set)
    """The workers that failed on it."""
    outcomes: list[Any] | None = None
    error: R2MedError | None = None

    @property
    def done(self) -> bool:
        """Whether it is finished, well or not."""
        return self.outcomes is not None or self.error is not None


@dataclass(eq=False)
class Member(ABC):
    """One worker as the driver sees it: what it was asked, in order, and what it has loaded."""

    number: int
    ready: bool = False
    asked: deque[tuple[str, Job | None]] = field(default_factory=deque)
    loaded: list[str] = field(default_factory=list)
    """What it holds; the last one was used last."""
    since: float = field(default_factory=time.monotonic)
    """When it began with the first of `asked`."""

    @property
    def jobs(self) -> int:
        """How many pieces it has before it."""
        return sum(method == "work" for method, _ in self.asked)

    def ask(self, method: str, job: Job | None, *arguments: Any) -> None:
        """Send a request, which is answered after those before it."""
        if not self.asked:
            self.since = time.monotonic()
        self.asked.append((method, job))
        self.send(method, arguments)

    @abstractmethod
    def send(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Hand a request over; a worker that is gone shows in the pool's events."""

    @abstractmethod
    def kill(self) -> str:
        """End it at once, and say how it ended."""


class Pool(ABC):
    """Workers of one kind, and the rules by which they get work."""

    def __init__(self, name: str, *, timeout: float | None, tell: Tell) -> None:
        self.name = name
        self.tell = tell
        self._limits = {"begin": _BEGINNING, "load": timeout and _LOADING, "work": timeout}
        """The seconds that a worker may take for each kind of request."""
        self.share_home = True
        """Whether workers that can reach the driver's home write vectors there themselves."""
        self._members: list[Member] = []
        weakref.finalize(self, _end, self._members)
        self._queue: deque[Job] = deque()
        self._numbers = 0
        self._failed_starts = 0
        self._tell_once = cache(tell)

    def each(
        self,
        source: Loadable,
        work: Callable[[Any, Piece], Iterable[Outcome]],
        pieces: Iterable[tuple[Tag, Piece]],
    ) -> Iterator[tuple[Tag, Outcome]]:
        """What `work` makes of every piece; a WorkError at the end names those that failed."""
        waiting, count, failed = iter(pieces), 0, list[Job]()
        under_way: set[Job] = set()
        try:
            while True:
                for tag, piece in waiting:
                    job = Job(source, work, piece, tag)
                    under_way.add(job)
                    self._queue.append(job)
                    count += 1
                    if len(under_way) >= 4 * self._size():
                        break
                if not under_way:
                    break
                while not any(job.done for job in under_way):
                    self._step()
                for job in [job for job in under_way if job.done]:
                    under_way.remove(job)
                    if isinstance(job.error, UsageError):
                        raise job.error
                    if job.error:
                        failed.append(job)
                    for outcome in job.outcomes or ():
                        yield job.tag, outcome
        finally:  # let nobody begin these any more
            for job in under_way:
                job.error = job.error or WorkError("given up")
                with suppress(ValueError):
                    self._queue.remove(job)
        if failed:
            raise WorkError(
                f"{len(failed):,} of {count:,} pieces of work failed, each {ATTEMPTS} times; what "
                f"the others gave is kept. The first: {failed[0].error}"
            )

    def submit(
        self, source: Loadable, work: Callable[[Any, Piece], Iterable[Outcome]], piece: Piece
    ) -> Callable[[], list[Outcome]]:
        """Begin a piece of work; the answer waits for it."""
        job = Job(source, work, piece)
        self._queue.append(job)
        self._size()
        self._assign()

        def result() -> list[Outcome]:
            while not job.done:
                self._step()
            if job.error:
                raise job.error
            return job.outcomes or []

        return result

    def close(self) -> None:
        """End every worker and forget what was not begun."""
        self._queue.clear()
        _end(self._members)

    @abstractmethod
    def _capacity(self) -> int:
        """How many workers there is room for; called before the first of them starts."""

    @abstractmethod
    def _launch(self, number: int) -> Member:
        """Start a worker."""

    @abstractmethod
    def _events(self, seconds: float | None) -> Iterable[tuple[Member, Answer | None]]:
        """Answers to the first requests of members, None from one that is gone; waits for one."""

    def _size(self) -> int:
        """The number of workers, all of them started."""
        while len(self._members) < self._capacity():
            member = self._launch(self._numbers)
            self._numbers += 1
            self._members.append(member)
            member.ask("begin", None, _home_mark() if self.share_home else None, Path.cwd())
        return len(self._members)

    def _step(self) -> None:
        """Hand out work, then wait for an answer, a death or the end of somebody's time."""
        self._size()
        self._assign()
        limits = [(member.since, self._limit(member)) for member in self._members]
        ends = [since + limit - time.monotonic() for since, limit in limits if limit is not None]
        events = list(self._events(max(0.0, min(ends)) if ends else None))
        for member, answer in events:
            if member in self._members and answer is not None:
                self._answered(member, answer)
            elif member in self._members:
                self._lost(member, f"the worker died ({member.kill()})")
        if events:  # more may have come while this process was busy elsewhere
            return
        for member in list(self._members):
            limit = self._limit(member)
            if limit is not None and time.monotonic() - member.since > limit:
                member.kill()
                self._lost(member, f"no answer within {limit:g} s")

    def _limit(self, member: Member) -> float | None:
        return self._limits[member.asked[0][0]] if member.asked else None

    def _assign(self) -> None:
        """Give waiting jobs to workers; where many wait, each worker has one more before it."""
        ready = [member for member in self._members if member.ready]
        for ahead in (1, 2):
            for member in ready:
                if ahead == 2 and len(self._queue) <= len(self._members):
                    return
                if member.jobs < ahead and (job := self._next(member, ready)):
                    self._queue.remove(job)
                    self._give(member, job)

    def _give(self, member: Member, job: Job) -> None:
        source = job.source
        if source.key in member.loaded:
            member.loaded.remove(source.key)
        else:
            dropped, member.loaded = member.loaded[: 1 - _HELD], member.loaded[1 - _HELD :]
            member.ask("load", job, self._sent(source), dropped)
        member.loaded.append(source.key)
        member.ask("work", job, source.key, source.part, source.opener, job.function, job.piece)

    def _sent(self, source: Loadable) -> Any:
        """A source as it is sent."""
        return source

    def _next(self, member: Member, ready: list[Member]) -> Job | None:
        """The first job that this worker has not failed on, or that every worker has."""
        for job in self._queue:
            if member.number not in job.tried or all(m.number in job.tried for m in ready):
                return job
        return None

    def _answered(self, member: Member, answer: Answer) -> None:
        method, job = member.asked.popleft()
        member.since = time.monotonic()
        for notice in answer.notices:
            self._tell_once(notice)
        if method == "begin":
            other, host = answer.outcomes or ("?", "?")
            if other != (own := version("r2med")):
                raise UsageError(
                    f"the worker on {host} runs r2med {other}, this is {own}. Install the same "
                    "version on every machine."
                )
            member.ready, self._failed_starts = True, 0
        elif job is not None and answer.outcomes is None:
            if method == "load" or answer.kind == UNLOADED:
                with suppress(ValueError):
                    member.loaded.remove(job.source.key)
            if job.done:  # given up
                return
            if answer.kind == UNLOADED:
                self._queue.appendleft(job)
            elif method == "work":
                self._failed(job, member, answer.problem, answer.kind)
        elif job is not None and method == "work":
            job.outcomes = answer.outcomes

    def _lost(self, member: Member, why: str) -> None:
        """Give a lost worker's jobs to others; the one it was at counts as tried."""
        self._members.remove(member)
        if member.asked and member.asked[0][0] == "begin":
            self._failed_starts += 1
            if self._failed_starts >= ATTEMPTS:
                raise MissingError(f"no worker of --engine {self.name} could be started: {why}.")
        jobs = list(dict.fromkeys(job for _, job in member.asked if job and not job.done))
        for job in reversed(jobs[1:]):
            self._queue.appendleft(job)
        if jobs:
            self._failed(jobs[0], member, why, "WorkError")

    def _failed(self, job: Job, member: Member, why: str, kind: str) -> None:
        job.attempts += 1
        job.tried.add(member.number)
        if kind == "UsageError":
            job.error = UsageError(why)
        elif job.attempts >= ATTEMPTS:
            job.error = WorkError(f"{job.piece}: {why}")
        else:
            self._queue.appendleft(job)
            self._tell_once(f"{job.piece}: {why.splitlines()[0]}; tried again on another worker.")


def _end(members: list[Member]) -> None:
    """End workers; also when nobody needs their pool any more, and when this process exits."""
    while members:
        members.pop().kill()


def usable_cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _home_mark() -> tuple[Path, str]:
    """A file in the home folder that says something no other home's does."""
    path = home() / "home-id"
    if not path.is_file():
        with atomic_file(path) as draft:
            draft.write_text(secrets.token_hex(16), encoding="utf-8")
    return path, path.read_text(encoding="utf-8")
