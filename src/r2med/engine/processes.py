"""Workers that are processes of this machine: one per GPU, or some cores for each.

Written on subprocesses and pipes because the pools of the standard library neither outlive a killed
worker nor end one that hangs, and import the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from r2med.engine.worker import Answer
from r2med.engine.workers import Member, Pool, shares, usable_cores
from r2med.retrieve.conditions import Tell

#: Seconds in which a worker that has closed its pipe ends by itself.
_LAST_WORDS = 5.0
#: Bytes of freed memory that a worker keeps for the next batch: giving them back to the system and
#: asking for them again costs a tenth of the time that small models take.
_KEPT_MEMORY = 512 * 1024**2
Events = queue.SimpleQueue[tuple[Member, Answer | None]]


class ProcessMember(Member):
    """A process of this machine, which ends when its standard input does."""

    def __init__(self, number: int, slot: int, environment: dict[str, str], events: Events) -> None:
        super().__init__(number)
        self._closed = False
        self.slot = slot
        """Its place among those of this machine, which decides its GPU."""
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from r2med.engine.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin and self.process.stdout
        self._pipes = self.process.stdin, self.process.stdout
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, args=(events,), daemon=True),
            threading.Thread(target=self._write, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def send(self, method: str, arguments: tuple[Any, ...]) -> None:
        """Leave it to a thread to write: a worker that hangs may not read its pipe."""
        self._outbox.put(pickle.dumps((method, arguments), protocol=5))

    def kill(self) -> str:
        """End the process, if it has not ended by itself, and what it holds of this one."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST_WORDS if self._closed else 0)
        self.process.kill()
        code = self.process.wait()
        self._outbox.put(None)
        for thread in self._threads:
            thread.join()
        for pipe in self._pipes:
            with suppress(OSError):
                pipe.close()
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}, perhaps for want of memory" if name == "SIGKILL" else name

    def _write(self) -> None:
        with suppress(OSError):
            while (request := self._outbox.get()) is not None:
                self._pipes[0].write(request)
                self._pipes[0].flush()

    def _read(self, events: Events) -> None:
        try:
            while True:
                events.put((self, pickle.load(self._pipes[1])))
        except Exception:
            self._closed = True
            events.put((self, None))


class ProcessPool(Pool):
    """Processes of this machine: one per GPU, or some cores for each."""

    def __init__(
        self, count: int | None, *, timeout: float | None, device: str | None, tell: Tell
    ) -> None:
        super().__init__(f"processes={count}" if count else "processes", timeout=timeout, tell=tell)
        self._count = count
        self._gpus = visible_gpus() if device is None else []
        self._cores = usable_cores()
        self._arrivals: Events = queue.SimpleQueue()

    def _capacity(self) -> int:
        return self._count or shares(self._cores, len(self._gpus))[0]

    def _launch(self, number: int) -> ProcessMember:
        count = self._capacity()
        threads = str(max(1, self._cores // count))
        environment = {
            "MALLOC_TRIM_THRESHOLD_": str(_KEPT_MEMORY),
            "MALLOC_MMAP_THRESHOLD_": str(_KEPT_MEMORY // 16),
            "OMP_NUM_THREADS": threads,
            "RAYON_NUM_THREADS": threads,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        taken = {member.slot for member in self._members if isinstance(member, ProcessMember)}
        slot = min(set(range(count)) - taken)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        return ProcessMember(number, slot, environment, self._arrivals)

    def _events(self, seconds: float | None) -> Iterator[tuple[Member, Answer | None]]:
        with suppress(queue.Empty):
            yield self._arrivals.get(timeout=seconds)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names CUDA_VISIBLE_DEVICES has for them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
