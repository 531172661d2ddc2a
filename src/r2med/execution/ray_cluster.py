"""Workers on a Ray cluster: actors on any machine of the cluster that has free resources.

A worker whose machine is lost is replaced when the cluster has room for it, and machines that join
get workers too.

Ray's processes run pickled code for everyone who can connect. A cluster that is started here
therefore needs a random token, which only this process and its children know, and only this user
can read its files. Ray's automatic start is switched off: a call after the shutdown of Ray would
start it again, in any thread, and a process that exits at that moment may crash.
"""

from __future__ import annotations

import atexit
import os
import secrets
import signal
import socket
import sys
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from r2med.errors import MissingError, first_line, need
from r2med.execution.resources import Warn
from r2med.execution.worker import Worker
from r2med.execution.workers import (
    CAPACITY_CHECK_SECONDS,
    LostError,
    WorkerAnswer,
    WorkerHandle,
    Workers,
    divide_cores,
    usable_cores,
)
from r2med.offline import check_address
from r2med.storage import temporary_folder

_Node = TypeVar("_Node")

#: Bytes for objects in transfer between machines, for a cluster that is started here.
_OBJECT_STORE = 256 * 1024**2
#: Seconds that a worker waits for free resources before the user is warned.
_ROOM_SECONDS = 30.0
#: Set before Ray is imported: no statistics are sent, Ray does not start automatically, and its
#: first process may take two minutes to start.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",
    "RAY_gcs_server_port_wait_time_s": "120",
}
#: Ray's processes wait for each other for 15 s, which cannot be changed. A busy machine may need
#: longer, and is faster the second time, when the files are in memory.
_START_ATTEMPTS = 4
#: Values of RAY_ADDRESS that are not addresses.
_RAY_NAMES = ("", "auto", "local")
#: The names of Ray's sockets may have 107 characters, which a longer temporary folder would exceed.
_SHORT_FOLDER = Path("/tmp")
#: Set for a cluster that is started here: Ray listens on the loopback interface only (the first
#: variable does that, despite its name), and requests need a token.
_OWN_CLUSTER = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token"}


class ActorHandle(WorkerHandle):
    """A Ray actor, which answers one request after another."""

    def __init__(self, ray: Any, actor: Any, report_waiting: Callable[[], None]) -> None:
        super().__init__()
        self._ray = ray
        self._actor = actor
        self._report_waiting = report_waiting

    def call(self, method: str, *arguments: Any, seconds: float | None) -> WorkerAnswer:
        """Send a request to the actor and return its answer.

        The first request waits without a time limit for room in the cluster; after half a minute,
        it warns.
        """
        reference = getattr(self._actor, method).remote(*arguments)
        try:
            if method == "begin":
                seconds = None  # until the cluster has room
                if not self._ray.wait([reference], timeout=_ROOM_SECONDS)[0]:
                    self._report_waiting()
            answer: WorkerAnswer = self._ray.get(reference, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise LostError(f"no answer within {seconds:g} s") from None
        except self._ray.exceptions.RayError as problem:
            raise LostError(f"the worker died ({first_line(problem)})") from None
        return answer

    def kill(self) -> None:
        """End the actor and its process."""
        with suppress(Exception):
            self._ray.kill(self._actor)


class RayWorkers(Workers):
    """Actors of a Ray cluster, each with one GPU or with several cores."""

    def __init__(
        self, address: str, name: str, *, timeout: float | None, device: str | None, warn: Warn
    ) -> None:
        super().__init__(name, timeout=timeout, warn=warn)
        need("ray", extra="ray")
        self._address = address
        self._device = device
        self._ray: Any = None
        self._started_here = False
        self._open_folder = ExitStack()
        """Deletes, when closed, the private folder of a cluster that was started here."""
        self._checked_at = 0.0
        self._count = 0
        self._resources_each: dict[str, int] = {}
        """The resources that Ray reserves for one worker."""

    def close(self) -> None:
        """End the workers, and the cluster if this object started or joined it."""
        super().close()
        if self._started_here and self._ray is not None:
            self._ray.shutdown()
        self._open_folder.close()
        self._ray = None

    def _capacity(self) -> int:
        if self._ray is None or time.monotonic() - self._checked_at > CAPACITY_CHECK_SECONDS:
            room = self._connect().cluster_resources()
            gpus = int(room.get("GPU", 0)) if self._device is None else 0
            self._count, cores = divide_cores(max(1, int(room.get("CPU", 1))), gpus)
            self._resources_each = {"num_gpus": 1} if gpus else {"num_cpus": cores}
            self._checked_at = time.monotonic()
        return self._count

    def _launch(self, index: int) -> ActorHandle:
        options = {"max_restarts": 0, **self._resources_each}
        actor = self._ray.remote(Worker).options(**options).remote()
        return ActorHandle(self._ray, actor, self._report_waiting)

    def _report_waiting(self) -> None:
        """Warn that the cluster has no room for a worker yet, unless other workers run."""
        with self._changed:
            if not any(handle.ready for handle in self._handles):
                self._warn_once("the Ray cluster has no room for a worker yet; waiting for it.")

    def _connect(self) -> Any:
        """Connect to the cluster at the address, or start one here; return the module `ray`."""
        if self._ray is not None:
            return self._ray
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        address = self._address or os.environ.get("RAY_ADDRESS")
        _check_address(self.name, address)
        if not address:
            _set_token()
        terminate = signal.getsignal(signal.SIGTERM)
        import ray

        if not ray.is_initialized():
            try:
                if address:
                    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
                else:
                    # Ray makes its folders writable for everyone, so they are inside a private one.
                    _start_cluster(ray, self._open_folder.enter_context(cluster_folder()))
            except (OSError, ValueError, RuntimeError) as problem:
                raise _unreachable(self.name, first_line(problem)) from None
            self._started_here = True
            # Functions registered later run earlier, so this one runs before Ray's own: workers
            # must have ended before Ray shuts down.
            atexit.register(_close_if_alive, weakref.ref(self))
        with suppress(ValueError):  # Ray has replaced the handler; only the main thread can set it
            signal.signal(signal.SIGTERM, terminate)
        self._ray = ray
        return ray


def _set_token() -> None:
    """Make a cluster that starts here require a token; has no effect after Ray is imported."""
    if "ray" in sys.modules:  # too late to set them: the caller has imported Ray
        return
    for name, value in _OWN_CLUSTER.items():
        os.environ.setdefault(name, value)
    if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def cluster_folder() -> AbstractContextManager[Path]:
    """Return a context manager for a new private folder of a cluster.

    Folders of commands that were killed are removed.
    """
    return temporary_folder(_SHORT_FOLDER, "r2med-ray-")


def _start_cluster(ray: Any, folder: Path) -> None:
    """Start a cluster on this machine; its files are in `folder`, readable for this user only."""
    with _private_files():
        start_node(
            lambda: ray.init(
                address="local",
                num_cpus=usable_cores(),
                object_store_memory=_OBJECT_STORE,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
                _temp_dir=str(folder / "ray"),
            )
        )


def start_node(start: Callable[[], _Node]) -> _Node:
    """Call `start`, which starts processes of Ray; try again if they are not ready in time.

    Raises:
        RuntimeError: No attempt succeeded. All processes that were started have ended.
    """
    for attempts_left in reversed(range(_START_ATTEMPTS)):
        try:
            return start()
        except ValueError:  # wrong settings, which stay wrong
            raise
        except Exception as problem:  # Ray raises Exception itself
            _end_processes(problem)
            if not attempts_left:
                raise RuntimeError(first_line(problem)) from problem
    raise AssertionError("unreachable")


def _end_processes(problem: Exception) -> None:
    """Stop the processes of a failed start, which are found in the frames of the exception."""
    from ray._private.node import Node

    for frame, _ in traceback.walk_tb(problem.__traceback__):
        node = frame.f_locals.get("self")
        if isinstance(node, Node):
            node.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)


@contextmanager
def _private_files() -> Iterator[None]:
    """Let only this user read files of this process and of processes that it starts."""
    previous_mask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(previous_mask)


def _close_if_alive(reference: weakref.ref[RayWorkers]) -> None:
    workers = reference()
    if workers is not None:
        workers.close()


def _check_address(engine: str, address: str | None) -> None:
    """Raise at once if no cluster answers at HOST:PORT; Ray itself would retry for minutes.

    Offline mode is checked here, because Ray connects from compiled code. Names such as `auto` mean
    a cluster on this machine.
    """
    if address not in (None, *_RAY_NAMES):
        check_address(address)
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as problem:
            reason = (getattr(problem, "strerror", None) or str(problem)).lower()
            raise _unreachable(engine, f"no Ray cluster answers at {address} ({reason}).") from None


def _unreachable(engine: str, reason: str) -> MissingError:
    return MissingError(
        f"--engine {engine}: {reason}\nStart a cluster there with `ray start --head` and give the "
        "address that it prints, or leave the address out to start one on this machine."
    )
