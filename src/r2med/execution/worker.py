"""One worker: it builds stages, processes batches of work with them, and answers every request.

`main` runs a worker that reads requests from its standard input and answers on its standard output.
Pickle is used only between a process and the workers it started, over pipes that no one else can
open; nothing stored is ever unpickled.
"""

from __future__ import annotations

import os
import pickle
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from r2med.errors import R2MedError, WorkError
from r2med.execution.memory import is_out_of_memory
from r2med.execution.resources import Resources
from r2med.execution.workers import StageSpec, WorkerAnswer

#: Stages and shared inputs that a worker holds at a time; the least recently used is dropped.
_MOST_HELD = 4


class Worker:
    """Builds stages in one process, and runs functions with them."""

    def __init__(self) -> None:
        self._held: dict[object, Any] = {}
        """Stages by spec, and shared inputs by key; the most recently used is last."""
        self._warnings: list[str] = []
        self._shares_home = False

    def begin(self, home: tuple[Path, str] | None, folder: Path) -> WorkerAnswer:
        """Use the driver's home if it can be reached; return r2med's version and the host name.

        Args:
            home: A file in the driver's home, and its content. The content is compared because
                the same path may exist on another machine.
            folder: The driver's working folder; paths in specs are relative to it.

        """
        with suppress(OSError):
            os.chdir(folder)
        with suppress(OSError):
            if home is not None and home[0].read_text(encoding="utf-8") == home[1]:
                os.environ["R2MED_HOME"] = str(home[0].parent)
                self._shares_home = True
        return WorkerAnswer([version("r2med"), socket.gethostname()])

    def load_stage(self, stage: StageSpec) -> WorkerAnswer:
        """Build a stage, unless the worker holds it already."""

        def build() -> list[Any]:
            self._stage(stage)
            return []

        return self._answer(stage, build)

    def hold(self, key: str, value: Any) -> WorkerAnswer:
        """Keep a shared input in memory for the jobs that use it."""
        self._make_room()
        self._held[key] = value
        return WorkerAnswer([], held=tuple(self._held))

    def work(
        self, stage: StageSpec, function: Callable[[Any, Any], Iterable[Any]], work_input: Any
    ) -> WorkerAnswer:
        """Return the outputs of a function that is called with a stage and one input."""
        return self._answer(stage, lambda: list(function(self._stage(stage), work_input)))

    def work_on_held(
        self, stage: StageSpec, function: Callable[[Any, Any], Iterable[Any]], key: str
    ) -> WorkerAnswer:
        """Return the outputs of a function for the shared input held under `key`."""
        if key not in self._held:
            return WorkerAnswer([], WorkError("the worker no longer holds the shared input"))
        return self.work(stage, function, self._held[key])

    def _answer(self, stage: StageSpec, compute: Callable[[], list[Any]]) -> WorkerAnswer:
        """Return the computed outputs; if memory runs out, drop other stages and try again."""
        outputs: list[Any] = []
        error: R2MedError | None = None
        try:
            outputs = compute()
        except Exception as problem:
            unused = [key for key in self._held if isinstance(key, StageSpec) and key != stage]
            if unused and is_out_of_memory(problem):
                for key in unused:
                    del self._held[key]
                return self._answer(stage, compute)
            if isinstance(problem, R2MedError):
                error = problem
            else:
                error = WorkError(f"{type(problem).__name__}: {problem}")
        warnings = tuple(self._warnings)
        self._warnings.clear()
        return WorkerAnswer(outputs, error, warnings, tuple(self._held))

    def _stage(self, stage: StageSpec) -> Any:
        """Return the stage of a spec; it is built on first use and held in memory."""
        if stage in self._held:
            self._held[stage] = self._held.pop(stage)
        else:
            self._make_room()
            resources = Resources(
                stage.options, warn=self._warnings.append, shares_home=self._shares_home
            )
            self._held[stage] = stage.build(stage.spec, resources)
        return self._held[stage]

    def _make_room(self) -> None:
        while len(self._held) >= _MOST_HELD:
            del self._held[next(iter(self._held))]


def main() -> None:
    """Answer requests until the driver closes the pipe or dies.

    Anything that models print goes to standard error. Ctrl-C is ignored: the driver handles it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    worker = Worker()
    while True:
        method, arguments = requests.get()
        pickle.dump(getattr(worker, method)(*arguments), answers, protocol=5)
        answers.flush()


def _listen(pipe: BinaryIO, requests: queue.SimpleQueue[tuple[str, tuple[Any, ...]]]) -> None:
    """Queue requests as they arrive, and exit at once, even while working, if the pipe closes."""
    try:
        while True:
            requests.put(pickle.load(pipe))
    except EOFError:
        os._exit(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)
