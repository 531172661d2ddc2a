"""Workers that are processes of this machine, one per GPU or some cores for each; and `--engine`.

Written on subprocesses and pipes because the pools of the standard library neither outlive a killed
worker nor end one that hangs, and import the caller's script again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from r2med.errors import UsageError
from r2med.retrieve.conditions import Tell, log
from r2med.retrieve.workers import Answer, LostError, Member, Workers, shares, usable_cores

#: Seconds in which a worker that has closed its pipe ends by itself.
_LAST_WORDS = 5.0
#: Bytes of freed memory that a worker keeps for the next batch: giving them back to the system and
#: asking for them again costs a tenth of the time that small models take.
_KEPT_MEMORY = 512 * 1024**2


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
        return Processes(int(value or 0), engine, timeout=timeout, device=device, tell=tell)
    if name == "ray":
        from r2med.engine.cluster import RayActors

        return RayActors(value, engine, timeout=timeout, device=device, tell=tell)
    raise UsageError(
        f"--engine {engine!r} is not known. --engine is local, processes, processes=N, ray or "
        "ray=ADDRESS."
    )


class Process(Member):
    """A process of this machine, which ends when its standard input does."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from r2med.engine.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin and self.process.stdout
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def call(self, method: str, *arguments: Any, seconds: float | None) -> Answer:
        """Write a request and read the answer; one that lets either wait too long is killed."""
        request, began = pickle.dumps((method, arguments), protocol=5), time.monotonic()
        limit = threading.Timer(seconds or threading.TIMEOUT_MAX, self.process.kill)
        limit.daemon = True
        limit.start()
        try:
            self._requests.write(request)
            self._requests.flush()
            answer: Answer = pickle.load(self._answers)
            return answer
        except Exception:
            ending = self._ending()
            if seconds and time.monotonic() - began >= seconds:
                raise LostError(f"no answer within {seconds:g} s") from None
            raise LostError(f"the worker died ({ending})") from None
        finally:
            limit.cancel()

    def kill(self) -> None:
        """End the process, and what it holds of this one."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):
                pipe.close()

    def _ending(self) -> str:
        """How the process ended, by itself if it does so now."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_LAST_WORDS)
        self.process.kill()
        code = self.process.wait()
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}, perhaps for want of memory" if name == "SIGKILL" else name


class Processes(Workers):
    """Processes of this machine."""

    def __init__(
        self, count: int, name: str, *, timeout: float | None, device: str | None, tell: Tell
    ) -> None:
        super().__init__(name, timeout=timeout, tell=tell)
        self._gpus = visible_gpus() if device is None else []
        self._count = count or shares(usable_cores(), len(self._gpus))[0]

    def _capacity(self) -> int:
        return self._count

    def _launch(self, place: int) -> Process:
        threads = str(max(1, usable_cores() // self._count))
        environment = {
            "MALLOC_TRIM_THRESHOLD_": str(_KEPT_MEMORY),
            "MALLOC_MMAP_THRESHOLD_": str(_KEPT_MEMORY // 16),
            "OMP_NUM_THREADS": threads,
            "RAYON_NUM_THREADS": threads,
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[place % len(self._gpus)]
        return Process(environment)


def visible_gpus() -> list[str]:
    """The GPUs that this process may use, by the names CUDA_VISIBLE_DEVICES has for them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name.strip()]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
