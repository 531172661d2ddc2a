"""How jobs are shared among workers: queue, retries, time limits and lost workers.

A worker is a process, on this machine or another one. It receives the spec of a stage, the caller's
options and an input; it builds the stage once and keeps it. Work is cut into inputs in the same way
for any number of workers, so results do not depend on it. A job that fails, hangs or kills its
worker is tried again on another worker, three times in total; then its failure is reported, and the
other jobs continue.

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

#: How often a job is tried before it counts as failed.
ATTEMPTS = 3
#: Cores per worker on machines without GPUs that have enough cores.
_CORES_PER_WORKER = 4
#: Jobs in the queue per worker, so that none waits for the driver.
_QUEUED_PER_WORKER = 4
#: Seconds within which a worker must start, and within which it must load a model.
_START_SECONDS, _LOAD_SECONDS = 120.0, 3600.0
#: Seconds between two checks for room for more workers.
CAPACITY_CHECK_SECONDS = 2.0

Tag = TypeVar("Tag")
Input = TypeVar("Input")
Output = TypeVar("Output")


@dataclass(frozen=True)
class StageSpec:
    """The instructions by which a worker builds a stage."""

    spec: str
    options: RunOptions
    build: Callable[[str, Resources], Any]
    """Builds the stage; it must be a module-level function, because it is pickled by name."""


@dataclass(frozen=True)
class SharedInput(Generic[Input]):
    """A large input that several jobs use; it is sent to each worker once."""

    key: str
    value: Input
    name: str
    """The name of the job in error messages."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class WorkerAnswer:
    """A worker's answer to one request."""

    outputs: list[Any]
    error: R2MedError | None = None
    """The reason if the work failed."""
    warnings: tuple[str, ...] = ()
    held: tuple[object, ...] = ()
    """The stages and the keys of shared inputs that the worker holds in memory now."""


class LostError(WorkError):
    """A worker died or did not answer in time."""


class WorkerHandle(ABC):
    """The connection of this process, the driver, to one worker."""

    def __init__(self) -> None:
        self.ready = False
        self.held: tuple[object, ...] = ()
        """The stages and keys that the worker held in memory at its last answer."""

    @abstractmethod
    def call(self, method: str, *arguments: Any, seconds: float | None) -> WorkerAnswer:
        """Send one request and return the answer; raise LostError if none comes in time."""

    @abstractmethod
    def kill(self) -> None:
        """End the worker at once; a pending call then raises LostError."""


@dataclass(eq=False)
class WorkerJob:
    """A call of a function with one input, and the future of its outputs."""

    stage: StageSpec
    function: Callable[[Any, Any], Iterable[Any]]
    work_input: Any
    future: Future[list[Any]] = field(default_factory=Future)
    failed_on: list[WorkerHandle] = field(default_factory=list)
    is_cancelled: bool = False


class Workers(ABC):
    """Workers of one type, which start when they are first needed."""

    def __init__(self, name: str, *, timeout: float | None, warn: Warn) -> None:
        self.name = name
        """The value of the option --engine."""
        self.share_home = True
        """Whether workers that can reach the driver's home write embeddings there directly."""
        self._timeout = timeout
        self._warn_once = cache(warn)
        self._queue: deque[WorkerJob] = deque()
        self._threads: list[threading.Thread] = []
        self._handles: list[WorkerHandle] = []
        self._failed_starts = 0
        self._home_mark: tuple[Path, str] | None = None
        self._changed = threading.Condition()
        """Lock for the attributes above; notified when there may be work for a thread."""
        weakref.finalize(self, _end, self._threads, self._handles)

    def map(
        self,
        stage: StageSpec,
        function: Callable[[Any, Input], Iterable[Output]],
        tagged_inputs: Iterable[tuple[Tag, Input]],
    ) -> Iterator[tuple[Tag, Output]]:
        """Yield each output of `function(stage, input)` with the tag of its input, in any order.

        Raises:
            WorkError: At the end, if inputs failed; it describes the first of them.

        """
        waiting = iter(tagged_inputs)
        count = 0
        failures: list[WorkError] = []
        pending: dict[Future[list[Output]], tuple[Tag, WorkerJob]] = {}
        try:
            while True:
                most_pending = _QUEUED_PER_WORKER * self._start_missing()
                for tag, work_input in islice(waiting, max(0, most_pending - len(pending))):
                    job = self._enqueue(stage, function, work_input)
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
        finally:  # cancel the jobs that are left if the caller stops iterating
            with self._changed:
                for _, job in pending.values():
                    job.is_cancelled = True
                    with suppress(ValueError):
                        self._queue.remove(job)
        if failures:
            raise WorkError(
                f"{len(failures):,} of {count:,} batches failed, each {ATTEMPTS} times; the "
                f"results of the others are kept. The first: {failures[0]}"
            )

    def submit(
        self,
        stage: StageSpec,
        function: Callable[[Any, Any], Iterable[Output]],
        work_input: object,
    ) -> Callable[[], list[Output]]:
        """Queue a call of `function(stage, input)`; return a function that waits for outputs."""
        job = self._enqueue(stage, function, work_input)
        self._start_missing()

        def wait_for_outputs() -> list[Output]:
            while not wait([job.future], CAPACITY_CHECK_SECONDS).done:
                self._start_missing()  # a machine may have joined
            return job.future.result()

        return wait_for_outputs

    def close(self) -> None:
        """End every worker; the next job starts them again."""
        threads = list(self._threads)
        self._stop(WorkError("stopped"))
        _end(self._threads, self._handles)
        for thread in threads:
            thread.join()

    @abstractmethod
    def _capacity(self) -> int:
        """Return how many workers there is room for; always called before the first one starts."""

    @abstractmethod
    def _launch(self, index: int) -> WorkerHandle:
        """Start the worker with this index, counted from 0."""

    def _start_missing(self) -> int:
        """Start workers until all room is used; return the number of workers."""
        with self._changed:
            for index in range(len(self._threads), self._capacity()):
                self._home_mark = _mark_home() if self.share_home else None
                thread = threading.Thread(target=self._serve, args=(index,), daemon=True)
                self._threads.append(thread)
                thread.start()
            return len(self._threads)

    def _enqueue(
        self, stage: StageSpec, function: Callable[..., Any], work_input: Any
    ) -> WorkerJob:
        job = WorkerJob(stage, function, work_input)
        with self._changed:
            self._queue.append(job)
            self._changed.notify_all()
        return job

    def _stop(self, error: Exception) -> None:
        """Fail all waiting jobs; each thread ends after its current job."""
        with self._changed:
            self._threads.clear()
            while self._queue:
                self._queue.popleft().future.set_exception(error)
            self._changed.notify_all()

    def _serve(self, index: int) -> None:
        """Start a worker and send it jobs until this thread must end; replace it if it is lost."""
        try:
            while threading.current_thread() in self._threads:
                self._use_worker(self._launch(index))
        except Exception as problem:
            self._stop(problem)

    def _use_worker(self, handle: WorkerHandle) -> None:
        """Send jobs to a worker until it is lost or this thread must end."""
        try:
            with self._changed:
                self._handles.append(handle)
                if threading.current_thread() not in self._threads:  # closed in the meantime
                    return
            self._begin(handle)
            while job := self._next_job(handle):
                self._run_job(job, handle)
        except LostError:
            pass
        finally:
            handle.kill()
            with self._changed:
                self._handles.remove(handle)
                self._changed.notify_all()

    def _begin(self, handle: WorkerHandle) -> None:
        """Wait for the worker to start, and check that it runs the same version of r2med."""
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

    def _next_job(self, handle: WorkerHandle) -> WorkerJob | None:
        """Wait for the next job for this worker; return None if this thread must end.

        A job that has failed on this worker is left for others, unless it has failed on all of
        them.
        """
        with self._changed:
            while threading.current_thread() in self._threads:
                ready = [worker for worker in self._handles if worker.ready]
                for job in self._queue:
                    failed_everywhere = all(worker in job.failed_on for worker in ready)
                    if handle not in job.failed_on or failed_everywhere:
                        self._queue.remove(job)
                        return job
                self._changed.wait()
        return None

    def _run_job(self, job: WorkerJob, handle: WorkerHandle) -> None:
        """Let a worker do a job; before that, send it the stage and the shared input if needed."""
        work_input = job.work_input
        requests: list[tuple[str, tuple[Any, ...], float | None]] = []
        # Loading a model may take longer than a batch, so it has a separate time limit.
        load_seconds = _LOAD_SECONDS if self._timeout else None
        if job.stage not in handle.held:
            requests.append(("load_stage", (job.stage,), load_seconds))
        if isinstance(work_input, SharedInput):
            key = work_input.key
            if key not in handle.held:
                requests.append(("hold", (key, work_input.value), load_seconds))
            requests.append(("work_on_held", (job.stage, job.function, key), self._timeout))
        else:
            requests.append(("work", (job.stage, job.function, work_input), self._timeout))
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

    def _retry_or_fail(self, job: WorkerJob, handle: WorkerHandle, error: R2MedError) -> None:
        """Queue the job for another worker, unless it failed too often or is cancelled."""
        job.failed_on.append(handle)
        message = f"{job.work_input}: {error}"
        with self._changed:
            is_active = not job.is_cancelled and threading.current_thread() in self._threads
            if isinstance(error, UsageError):
                job.future.set_exception(error)
            elif len(job.failed_on) >= ATTEMPTS or not is_active:
                job.future.set_exception(WorkError(message))
            else:
                self._queue.appendleft(job)
                self._changed.notify_all()
                self._warn_once(f"{message.splitlines()[0]}; retrying on another worker.")


def _end(threads: list[threading.Thread], handles: list[WorkerHandle]) -> None:
    """End workers and stop their threads from starting others; also called at exit."""
    threads.clear()
    for handle in list(handles):
        handle.kill()


def divide_cores(cores: int, gpus: int) -> tuple[int, int]:
    """Return the number of workers for a machine or cluster, and the cores of each.

    There is one worker per GPU; without GPUs, one per four cores, but two if there are two cores.
    """
    count = gpus if gpus else max(cores // _CORES_PER_WORKER, min(cores, 2))
    return count, max(1, cores // count)


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _mark_home() -> tuple[Path, str]:
    """Return the path and content of a file with a random id that identifies the home folder."""
    path = home_folder() / "home-id"
    if not path.is_file():
        write_file(path, os.urandom(16).hex())
    return path, path.read_text(encoding="utf-8")
