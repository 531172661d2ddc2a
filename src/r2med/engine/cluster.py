"""Workers on a Ray cluster: actors that Ray places where there is room, on any of its machines.

A worker whose machine is lost is replaced when the cluster has room for it, and machines that join
get workers too.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from r2med.engine.worker import Answer, Worker
from r2med.engine.workers import Member, Pool, shares, usable_cores
from r2med.errors import MissingError
from r2med.models.checkpoint import need
from r2med.retrieve.conditions import Loadable, Tell

#: Bytes for what is under way between machines, where the cluster is started here.
_OBJECT_STORE = 256 * 1024**2
#: Seconds after which the cluster is asked again how large it is.
_LOOK_AGAIN = 2.0
#: Seconds without any worker after which the user hears of it.
_PATIENCE = 30.0


class RayMember(Member):
    """An actor, and its answers to come."""

    def __init__(self, number: int, ray: Any, actor: Any) -> None:
        super().__init__(number)
        self._ray = ray
        self._actor = actor
        self.answers: deque[Any] = deque()
        self.why = "killed"

    def send(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Call the actor, which works through its calls in their order."""
        self.answers.append(getattr(self._actor, method).remote(*arguments))

    def kill(self) -> str:
        """End the actor and its process."""
        with suppress(Exception):
            self._ray.kill(self._actor)
        return self.why


class RayPool(Pool):
    """Actors of a Ray cluster: one per GPU, or some cores for each."""

    def __init__(
        self, address: str | None, *, timeout: float | None, device: str | None, tell: Tell
    ) -> None:
        super().__init__(f"ray={address}" if address else "ray", timeout=timeout, tell=tell)
        need("ray", extra="ray")
        self._limits["begin"] = None  # until the cluster has room
        self._address = address
        self._device = device
        self._ray: Any = None
        self._started_here = False
        self._room = (0.0, 0, 0, 0)
        self._sources: dict[str, Any] = {}
        self._waiting_since: float | None = None

    def close(self) -> None:
        """End the workers, and the cluster where this pool started or joined it."""
        super().close()
        self._sources.clear()
        if self._started_here and self._ray is not None:
            self._ray.shutdown()
        self._ray = None

    def _capacity(self) -> int:
        looked, count, _, _ = self._room
        if self._ray is None or time.monotonic() - looked > _LOOK_AGAIN:
            room = self._connected().cluster_resources()
            gpus = int(room.get("GPU", 0)) if self._device is None else 0
            count, cores = shares(max(1, int(room.get("CPU", 1))), gpus)
            self._room = (time.monotonic(), count, cores, gpus)
        return count

    def _launch(self, number: int) -> RayMember:
        _, _, cores, gpus = self._room
        options = {"num_gpus": 1} if gpus else {"num_cpus": cores}
        actor = self._ray.remote(Worker).options(max_restarts=0, **options).remote()
        return RayMember(number, self._ray, actor)

    def _sent(self, source: Loadable) -> Any:
        """A reference: each machine of the cluster gets the source once."""
        if source.key not in self._sources:
            self._sources[source.key] = self._ray.put(source)
        return self._sources[source.key]

    def _events(self, seconds: float | None) -> Iterator[tuple[Member, Answer | None]]:
        """The answers that have come within the time, or within the time to look again."""
        heads = {
            member.answers[0]: member
            for member in self._members
            if isinstance(member, RayMember) and member.answers
        }
        self._tell_patience()
        wait = min(_LOOK_AGAIN, _LOOK_AGAIN if seconds is None else seconds)
        if not heads:
            time.sleep(wait)
            return
        arrived, _ = self._ray.wait(list(heads), num_returns=1, timeout=wait)
        for reference in arrived:
            member = heads[reference]
            member.answers.popleft()
            try:
                answer = self._ray.get(reference)
            except self._ray.exceptions.RayError as problem:
                member.why = str(problem).strip().splitlines()[0]
                yield member, None
            else:
                yield member, answer

    def _tell_patience(self) -> None:
        """Say when the cluster has had no room for any worker for a while."""
        if any(member.ready for member in self._members):
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = time.monotonic()
        elif time.monotonic() - self._waiting_since > _PATIENCE:
            self._waiting_since = float("inf")
            self.tell("the Ray cluster has no room for a worker yet; waiting for it.")

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
                raise _unreachable(self.name, str(problem).strip().splitlines()[0]) from None
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
