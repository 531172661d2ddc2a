"""Workers on a Ray cluster: actors that Ray places where there is room, on any of its machines.

A worker whose machine is lost is replaced when the cluster has room for it, and machines that join
get workers too.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from r2med.engine.worker import Worker
from r2med.errors import MissingError, first_line, need
from r2med.retrieve.conditions import Tell
from r2med.retrieve.workers import (
    LOOK_AGAIN,
    Answer,
    LostError,
    Member,
    Workers,
    shares,
    usable_cores,
)

#: Bytes for what is under way between machines, where the cluster is started here.
_OBJECT_STORE = 256 * 1024**2
#: Seconds that a worker waits for room before the user hears of it.
_PATIENCE = 30.0


class Actor(Member):
    """An actor of Ray, which does one thing after another."""

    def __init__(self, ray: Any, actor: Any, waits: Callable[[], None]) -> None:
        super().__init__()
        self._ray = ray
        self._actor = actor
        self._waits = waits

    def call(self, method: str, *arguments: Any, seconds: float | None) -> Answer:
        """Call the actor; `waits` hears when the cluster has had no room for it for a while."""
        reference = getattr(self._actor, method).remote(*arguments)
        try:
            if method == "begin":
                seconds = None  # until the cluster has room
                if not self._ray.wait([reference], timeout=_PATIENCE)[0]:
                    self._waits()
            answer: Answer = self._ray.get(reference, timeout=seconds)
        except self._ray.exceptions.GetTimeoutError:
            raise LostError(f"no answer within {seconds:g} s") from None
        except self._ray.exceptions.RayError as problem:
            raise LostError(f"the worker died ({first_line(problem)})") from None
        return answer

    def kill(self) -> None:
        """End the actor and its process."""
        with suppress(Exception):
            self._ray.kill(self._actor)


class RayActors(Workers):
    """Actors of a Ray cluster: one per GPU, or some cores for each."""

    def __init__(
        self, address: str, name: str, *, timeout: float | None, device: str | None, tell: Tell
    ) -> None:
        super().__init__(name, timeout=timeout, tell=tell)
        need("ray", extra="ray")
        self._address = address
        self._device = device
        self._ray: Any = None
        self._started_here = False
        self._looked = 0.0
        self._count = 0
        self._each: dict[str, int] = {}
        """What Ray sets aside for one of them."""

    def close(self) -> None:
        """End the workers, and the cluster where this one started or joined it."""
        super().close()
        if self._started_here and self._ray is not None:
            self._ray.shutdown()
        self._ray = None

    def _capacity(self) -> int:
        if self._ray is None or time.monotonic() - self._looked > LOOK_AGAIN:
            room = self._connected().cluster_resources()
            gpus = int(room.get("GPU", 0)) if self._device is None else 0
            self._count, cores = shares(max(1, int(room.get("CPU", 1))), gpus)
            self._each = {"num_gpus": 1} if gpus else {"num_cpus": cores}
            self._looked = time.monotonic()
        return self._count

    def _launch(self, place: int) -> Actor:
        actor = self._ray.remote(Worker).options(max_restarts=0, **self._each).remote()
        return Actor(self._ray, actor, self._waits)

    def _waits(self) -> None:
        """Say that there is no room, unless other workers do the work."""
        with self._changed:
            if not any(member.ready for member in self._members):
                self._tell_once("the Ray cluster has no room for a worker yet; waiting for it.")

    def _connected(self) -> Any:
        """Ray, joined to the cluster; without an address to the one that is here, or a new one."""
        if self._ray is not None:
            return self._ray
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        join = self._address or os.environ.get("RAY_ADDRESS")
        if not join:  # Ray's switch for machines without clusters keeps it on the loopback
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        _knock(self.name, join)
        terminate = signal.getsignal(signal.SIGTERM)
        import ray

        if not ray.is_initialized():
            options: dict[str, Any] = {"address": join or "local"}
            if not join:
                options |= {"num_cpus": usable_cores(), "object_store_memory": _OBJECT_STORE}
                options["include_dashboard"] = False
            try:
                ray.init(**options, log_to_driver=False, logging_level="ERROR")
            except (OSError, ValueError, RuntimeError) as problem:
                raise _unreachable(self.name, first_line(problem)) from None
            self._started_here = True
        with suppress(ValueError):  # Ray has taken the signal over; only the main thread can
            signal.signal(signal.SIGTERM, terminate)
        self._ray = ray
        return ray


def _knock(engine: str, address: str | None) -> None:
    """Fail at once where nobody answers at HOST:PORT; Ray itself tries again for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
        except (OSError, OverflowError) as problem:
            why = (getattr(problem, "strerror", None) or str(problem)).lower()
            raise _unreachable(engine, f"no Ray cluster answers at {address} ({why}).") from None


def _unreachable(engine: str, why: str) -> MissingError:
    return MissingError(
        f"--engine {engine}: {why}\nStart a cluster there with `ray start --head` and name the "
        "address that it prints, or leave the address out to start one on this machine."
    )
