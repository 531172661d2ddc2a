"""What one worker does: build stages, work on pieces, and answer every request.

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
from r2med.execution.memory import out_of_memory
from r2med.execution.resources import Resources
from r2med.execution.workers import Answer, StageSpec

#: Stages and shared pieces that a worker holds at a time; the least recently used goes first.
_MOST_HELD = 4


class Worker:
    """Stages in the memory of one process, and the work done with them."""

    def __init__(self) -> None:
        self._held: dict[object, Any] = {}
        """Stages by their spec and pieces by their key, the last one used last."""
        self._warnings: list[str] = []
        self._shares_home = False

    def begin(self, home: tuple[Path, str] | None, folder: Path) -> Answer:
        """Return the version and host name, and use the driver's home if it can be reached.

        Args:
            home: A file in the driver's home and its content: the path alone could be another
                machine's.
            folder: The driver's working folder, to which paths in specs refer.

        """
        with suppress(OSError):
            os.chdir(folder)
        with suppress(OSError):
            if home is not None and home[0].read_text(encoding="utf-8") == home[1]:
                os.environ["R2MED_HOME"] = str(home[0].parent)
                self._shares_home = True
        return Answer([version("r2med"), socket.gethostname()])

    def load_stage(self, stage: StageSpec) -> Answer:
        """Build a stage, unless it is held."""

        def build() -> list[Any]:
            self._stage(stage)
            return []

        return self._answer(stage, build)

    def hold(self, key: str, value: Any) -> Answer:
        """Keep a shared piece for the jobs that use it."""
        self._make_room()
        self._held[key] = value
        return Answer([], held=tuple(self._held))

    def work(
        self, stage: StageSpec, function: Callable[[Any, Any], Iterable[Any]], piece: Any
    ) -> Answer:
        """Return the outputs of a function for one piece."""
        return self._answer(stage, lambda: list(function(self._stage(stage), piece)))

    def work_on_held(
        self, stage: StageSpec, function: Callable[[Any, Any], Iterable[Any]], key: str
    ) -> Answer:
        """Return the outputs of a function for a shared piece."""
        if key not in self._held:
            return Answer([], WorkError("the worker no longer holds the piece"))
        return self.work(stage, function, self._held[key])

    def _answer(self, stage: StageSpec, compute: Callable[[], list[Any]]) -> Answer:
        """Compute outputs; where memory runs out, drop everything else and try once more."""
        outputs, error = list[Any](), None
        try:
            outputs = compute()
        except Exception as problem:
            others = [key for key in self._held if isinstance(key, StageSpec) and key != stage]
            if others and out_of_memory(problem):
                for other in others:
                    del self._held[other]
                return self._answer(stage, compute)
            error = problem if isinstance(problem, R2MedError) else None
            error = error or WorkError(f"{type(problem).__name__}: {problem}")
        warnings, self._warnings[:] = tuple(self._warnings), []
        return Answer(outputs, error, warnings, tuple(self._held))

    def _stage(self, stage: StageSpec) -> Any:
        """Return the stage of a spec, built on first use."""
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
    """Answer requests until the driver closes the pipe, in whatever way it ends.

    What models print goes to standard error; Ctrl-C is left to the driver.
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
    """Read ahead, and end this process, busy or not, when the driver is gone."""
    try:
        while True:
            requests.put(pickle.load(pipe))
    except EOFError:
        os._exit(0)
    except Exception:
        traceback.print_exc()
        os._exit(1)
