"""Workers that are processes on this machine, and the function that reads `--engine`.

Written with subprocesses and pipes because the pools of the standard library do not survive a
killed worker, cannot end one that hangs, and import the caller's script again.
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
from r2med.execution.resources import Warn, log_warning
from r2med.execution.workers import (
    LostError,
    WorkerAnswer,
    WorkerHandle,
    Workers,
    divide_cores,
    usable_cores,
)

#: Seconds that a worker has to exit after its pipe was closed; then it is killed.
_EXIT_SECONDS = 5.0
#: Bytes of freed memory that a worker keeps for the next batch. Returning them to the system and
#: allocating them again would take a tenth of the run time of small models.
_KEPT_MEMORY = 512 * 1024**2


def open_workers(
    engine: str,
    *,
    timeout: float | None = None,
    device: str | None = None,
    warn: Warn = log_warning,
) -> Workers | None:
    """Return the workers of an engine; None if the work runs in this process.

    Args:
        engine: local, processes, processes=N, ray or ray=ADDRESS.
        timeout: Seconds that a worker may take for one piece of work; None is unlimited.
        device: The torch device of every worker; None gives each worker a GPU, if there are any.
        warn: Callback for user-facing warnings.

    """
    name, _, value = engine.partition("=")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"--worker-timeout {timeout:g}: expected seconds above 0.")
    if engine == "local":
        if timeout is not None:
            raise UsageError("--worker-timeout needs --engine processes or --engine ray.")
        return None
    is_count = value.isdecimal() and int(value) > 0
    if name == "processes" and (not value or is_count):
        count = int(value) if value else None
        return ProcessWorkers(count, engine, timeout=timeout, device=device, warn=warn)
    if name == "ray":
        from r2med.execution.ray_cluster import RayWorkers

        return RayWorkers(value, engine, timeout=timeout, device=device, warn=warn)
    raise UsageError(
        f"--engine {engine!r}: expected local, processes, processes=N, ray or ray=ADDRESS."
    )


class ProcessHandle(WorkerHandle):
    """A process on this machine, which exits when its standard input is closed."""

    def __init__(self, environment: dict[str, str]) -> None:
        super().__init__()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", "from r2med.execution.worker import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert self.process.stdin and self.process.stdout
        self._requests, self._answers = self.process.stdin, self.process.stdout

    def call(self, method: str, *arguments: Any, seconds: float | None) -> WorkerAnswer:
        """Write a request and read the answer; kill the process if either takes too long."""
        request, began = pickle.dumps((method, arguments), protocol=5), time.monotonic()
        limit = threading.Timer(seconds or threading.TIMEOUT_MAX, self.process.kill)
        limit.daemon = True
        limit.start()
        try:
            self._requests.write(request)
            self._requests.flush()
            answer: WorkerAnswer = pickle.load(self._answers)
            return answer
        except Exception:
            exit_reason = self._wait_for_exit()
            if seconds and time.monotonic() - began >= seconds:
                raise LostError(f"no answer within {seconds:g} s") from None
            raise LostError(f"the worker died ({exit_reason})") from None
        finally:
            limit.cancel()

    def kill(self) -> None:
        """End the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):
                pipe.close()

    def _wait_for_exit(self) -> str:
        """Return why the process ended; kill it if it does not exit within a few seconds."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_EXIT_SECONDS)
        self.process.kill()
        code = self.process.wait()
        if code >= 0:
            return f"exit code {code}"
        name = signal.Signals(-code).name
        return f"{name}, possibly out of memory" if name == "SIGKILL" else name


class ProcessWorkers(Workers):
    """Workers that are processes on this machine."""

    def __init__(
        self,
        count: int | None,
        name: str,
        *,
        timeout: float | None,
        device: str | None,
        warn: Warn,
    ) -> None:
        """Store the settings; if `count` is None, GPUs and cores decide the number of workers."""
        super().__init__(name, timeout=timeout, warn=warn)
        self._gpus = visible_gpus() if device is None else []
        self._count = count or divide_cores(usable_cores(), len(self._gpus))[0]

    def _capacity(self) -> int:
        return self._count

    def _launch(self, index: int) -> ProcessHandle:
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
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[index % len(self._gpus)]
        return ProcessHandle(environment)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, named as in CUDA_VISIBLE_DEVICES."""
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if listed is not None:
        return [name for name in listed.split(",") if name.strip()]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
