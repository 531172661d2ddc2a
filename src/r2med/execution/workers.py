"""The rules by which workers share pieces of work, whatever the workers are.

A worker is a process, on this machine or another one. It receives the spec of a stage, the caller's
options and a piece of work; it builds the stage once and keeps it. Pieces are cut in the same way
everywhere, so results do not depend on the number of workers. A piece that fails, hangs or kills
its worker is tried again on another worker, three times in total; then it is reported, and the
other pieces continue.

Each worker has a thread in this process, which sends it one request at a time.
"""

from __future__ import annotations

import os
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from r2med.errors import MissingError, R2MedError, UsageError, WorkError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources, Warn
from r2med.paths import home_folder
from r2med.storage import write_file
from r2med.versions import installed_versions

#: How often a piece is tried before it counts as failed.
ATTEMPTS = 3
#: Cores per worker where there are no GPUs and enough cores.
_CORES_PER_WORKER = 4
#: Seconds within which a worker must start, and within which it must load a model.
_START_SECONDS, _LOAD_SECONDS = 120.0, 3600.0
#: Seconds between two checks whether there is room for more workers.
CAPACITY_CHECK_SECONDS = 2.0

Tag = TypeVar("Tag")
Piece = TypeVar("Piece")
Output = TypeVar("Output")


@dataclass(frozen=True)
class StageSpec:
    """From what a worker builds a stage."""

    spec: str
    options: RunOptions
    build: Callable[[str, Resources], Any]
    """A function of a module, which is sent by its name."""


@dataclass(frozen=True)
class SharedPiece(Generic[Piece]):
    """A large piece that several jobs use; it is sent to each worker once."""

    key: str
    value: Piece
    name: str
    """How error messages call the job."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Answer:
    """A worker's answer to one request."""

    outputs: list[Any]
    error: R2MedError | None = None
    """Why there are no outputs."""
    warnings: tuple[str, ...] = ()
    held: tuple[object, ...] = ()
    """The stages and shared pieces that the worker holds in memory now."""


class LostError(WorkError):
    """A worker died or did not answer in time."""


class WorkerHandle(ABC):
    """The driver's end of one worker."""

    def __init__(self) -> None:
        self.ready = False
        self.held: tuple[object, ...] = ()
        """What the worker held in memory by its last answer."""

    @abstractmethod
    def call(self, method: str, *arguments: Any, seconds: float | None) -> Answer:
        """Send one request and wait for the answer; LostError if none comes in time."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once; a pending call then raises LostError."""


@dataclass(eq=False)
class Job:
    """One piece of work on its way through the workers."""

    stage: StageSpec
    function: Callable[[Any, Any], Iterable[Any]]
    piece: Any
    future: Future[list[Any]] = field(default_factory=Future)
    failed_on: list[WorkerHandle] = field(default_factory=list)
    wanted: bool = True


class Workers(ABC):
    """Workers of one type, which start when they are first needed."""

    def __init__(self, name: str, *, timeout: float | None, warn: Warn) -> None:
        self.name = name
        """The value of --engine."""
        self.share_home = True
        """Whether workers that can reach the driver's home write embeddings there themselves."""
        self._timeout = timeout
        self._warn_once = cache(warn)
        self._queue: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._handles: list[WorkerHandle] = []
        self._failed_starts = 0
        self._home_mark: tuple[Path, str] | None = None
        self._changed = threading.Condition()
        """Guards all of the above, and wakes threads when there may be work for them."""
        weakref.finalize(self, _end, self._threads, self._handles)

    def map(
        self,
        stage: StageSpec,
        function: Callable[[Any, Piece], Iterable[Output]],
        pieces: Iterable[tuple[Tag, Piece]],
    ) -> Iterator[tuple[Tag, Output]]:
        """Yield what `function(stage, piece)` returns for every piece, in any order, with its tag.

        A WorkError at the end names the pieces that failed.
        """
        waiting, count, failures = iter(pieces), 0, list[WorkError]()
        pending: dict[Future[list[Output]], tuple[Tag, Job]] = {}
        try:
            while True:
                free = max(0, 4 * self._start_missing() - len(pending))
                for tag, piece in islice(waiting, free):
                    job = self._enqueue(stage, function, piece)
                    pending[job.future] = (tag, job)
                    count += 1
                if not pending:
                    break
                for future in wait(pending, CAPACITY_CHECK_SECONDS, FIRST_COMPLETED).done:
                    tag, _ = pending.pop(future)
                    try:
                        outputs = future.result()
                    except WorkError as problem:
                        failures.append(problem)
                        continue
                    for output in outputs:
                        yield tag, output
        finally:  # do not start what nobody waits for any more
            with self._changed:
                for _, job in pending.values():
                    job.wanted = False
                    with suppress(ValueError):
                        self._queue.remove(job)
        if failures:
            raise WorkError(
                f"{len(failures):,} of {count:,} pieces of work failed, each {ATTEMPTS} times; "
                f"the results of the others are kept. The first: {failures[0]}"
            )

    def submit(
        self, stage: StageSpec, function: Callable[[Any, Any], Iterable[Output]], piece: object
    ) -> Callable[[], list[Output]]:
        """Start a piece of work and return a function that waits for its outputs."""
        job = self._enqueue(stage, function, piece)
        self._start_missing()

        def wait_for_outputs() -> list[Output]:
            while not wait([job.future], CAPACITY_CHECK_SECONDS).done:
                self._start_missing()  # a machine may have joined
            return job.future.result()

        return wait_for_outputs

    def close(self) -> None:
        """End every worker; the next piece starts them again."""
        threads = list(self._threads)
        self._stop(WorkError("stopped"))
        _end(self._threads, self._handles)
        for thread in threads:
            thread.join()

    @abstractmethod
    def _capacity(self) -> int:
        """How many workers there is room for; called before the first of them starts."""

    @abstractmethod
    def _launch(self, index: int) -> WorkerHandle:
        """Start the worker with this index, counted from 0."""

    def _start_missing(self) -> int:
        """Start the workers that are missing and return the number of workers."""
        with self._changed:
            for index in range(len(self._threads), self._capacity()):
                self._home_mark = _mark_home() if self.share_home else None
                thread = threading.Thread(target=self._serve, args=(index,), daemon=True)
                self._threads.append(thread)
                thread.start()
            return len(self._threads)

    def _enqueue(self, stage: StageSpec, function: Callable[..., Any], piece: Any) -> Job:
        job = Job(stage, function, piece)
        with self._changed:
            self._queue.append(job)
            self._changed.notify_all()
        return job

    def _stop(self, error: Exception) -> None:
        """Fail all waiting jobs and let the threads end when they are done."""
        with self._changed:
            self._threads.clear()
            while self._queue:
                self._queue.popleft().future.set_exception(error)
            self._changed.notify_all()

    def _serve(self, index: int) -> None:
        """Employ one worker after the other until this thread is to end."""
        try:
            while threading.current_thread() in self._threads:
                self._employ(self._launch(index))
        except Exception as problem:
            self._stop(problem)

    def _employ(self, handle: WorkerHandle) -> None:
        """Give a worker jobs as long as it lives."""
        try:
            with self._changed:
                self._handles.append(handle)
                if threading.current_thread() not in self._threads:  # closed in the meantime
                    return
            self._begin(handle)
            while job := self._next_job(handle):
                self._do(job, handle)
        except LostError:
            pass
        finally:
            handle.kill()
            with self._changed:
                self._handles.remove(handle)
                self._changed.notify_all()

    def _begin(self, handle: WorkerHandle) -> None:
        """Check that the worker runs the same version."""
        try:
            answer = handle.call("begin", self._home_mark, Path.cwd(), seconds=_START_SECONDS)
        except LostError as problem:
            self._failed_starts += 1
            if self._failed_starts < ATTEMPTS:
                raise
            raise MissingError(
                f"no worker of --engine {self.name} could be started: {problem}."
            ) from None
        worker_version, host = answer.outputs
        own_version = installed_versions(["r2med"])["r2med"]
        if worker_version != own_version:
            raise UsageError(
                f"the worker on {host} runs r2med {worker_version}, this is {own_version}. "
                "Install the same version on every machine."
            )
        self._failed_starts = 0
        handle.ready = True

    def _next_job(self, handle: WorkerHandle) -> Job | None:
        """Wait for a job that has not failed on this worker, or has failed on every worker."""
        with self._changed:
            while threading.current_thread() in self._threads:
                ready = [other for other in self._handles if other.ready]
                for job in self._queue:
                    failed_everywhere = all(other in job.failed_on for other in ready)
                    if handle not in job.failed_on or failed_everywhere:
                        self._queue.remove(job)
                        return job
                self._changed.wait()
        return None

    def _do(self, job: Job, handle: WorkerHandle) -> None:
        """Let a worker do a job, after it has loaded what it lacks."""
        piece = job.piece
        requests: list[tuple[str, tuple[Any, ...], float | None]] = []
        # Loading may take longer than a piece of work, so it has a limit of its own.
        load_seconds = _LOAD_SECONDS if self._timeout else None
        if job.stage not in handle.held:
            requests.append(("load_stage", (job.stage,), load_seconds))
        if isinstance(piece, SharedPiece):
            if piece.key not in handle.held:
                requests.append(("hold", (piece.key, piece.value), load_seconds))
            requests.append(("work_on_held", (job.stage, job.function, piece.key), self._timeout))
        else:
            requests.append(("work", (job.stage, job.function, piece), self._timeout))
        try:
            for method, arguments, seconds in requests:
                answer = handle.call(method, *arguments, seconds=seconds)
                handle.held = answer.held
                with self._changed:
                    for warning in answer.warnings:
                        self._warn_once(warning)
                if answer.error:
                    self._retry_or_fail(job, handle, answer.error)
                    return
            job.future.set_result(answer.outputs)
        except LostError as problem:
            self._retry_or_fail(job, handle, problem)
            raise
        except Exception as problem:  # for example an argument that cannot be pickled
            job.future.set_exception(problem)

    def _retry_or_fail(self, job: Job, handle: WorkerHandle, error: R2MedError) -> None:
        """Let another worker try the job, unless enough have, or nobody waits for it."""
        job.failed_on.append(handle)
        message = f"{job.piece}: {error}"
        with self._changed:
            active = job.wanted and threading.current_thread() in self._threads
            if isinstance(error, UsageError):
                job.future.set_exception(error)
            elif len(job.failed_on) >= ATTEMPTS or not active:
                job.future.set_exception(WorkError(message))
            else:
                self._queue.appendleft(job)
                self._changed.notify_all()
                self._warn_once(f"{message.splitlines()[0]}; tried again on another worker.")


def _end(threads: list[threading.Thread], handles: list[WorkerHandle]) -> None:
    """End workers and let their threads start no others; also when this process exits."""
    threads.clear()
    for handle in list(handles):
        handle.kill()


def divide_cores(cores: int, gpus: int) -> tuple[int, int]:
    """Return how many workers a machine or cluster has room for, and the cores of each."""
    count = gpus or max(cores // _CORES_PER_WORKER, min(cores, 2))
    return count, max(1, cores // count)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _mark_home() -> tuple[Path, str]:
    """Return a file in the home folder whose content no other home has."""
    path = home_folder() / "home-id"
    if not path.is_file():
        write_file(path, os.urandom(16).hex())
    return path, path.read_text(encoding="utf-8")
