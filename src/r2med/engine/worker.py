"""What one worker does: load what is sent once, work on pieces, and answer every request.

`main` is a worker that reads requests from its standard input and answers on its standard output.
Pickle is used between a process and the workers it started, over pipes that no one else can open;
nothing stored is ever read so.
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
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from r2med.errors import DataError, R2MedError, WorkError
from r2med.models.batching import out_of_memory
from r2med.retrieve.conditions import Loadable
from r2med.retrieve.workers import Answer

#: Models and tasks that a worker holds at a time; the one unused for longest goes first.
_HELD = 4


class Worker:
    """Models in the memory of one process, and work done with them."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        """The last one was used last."""
        self._open: dict[tuple[str, str], Any] = {}
        self._notices: list[str] = []
        self._shared = False

    def begin(self, home: tuple[Path, str] | None, folder: Path) -> Answer:
        """Say who this is, and whether the driver's home can be reached from here.

        `home` is a file in it and what the file says: the path alone could be another machine's.
        `folder` is where the driver works, to which paths in the texts of systems refer.
        """
        with suppress(OSError):
            os.chdir(folder)
        with suppress(OSError):
            if home is not None and home[0].read_text(encoding="utf-8") == home[1]:
                self._shared = True
                os.environ["R2MED_HOME"] = str(home[0].parent)
        return Answer([version("r2med"), socket.gethostname()])

    def work(
        self, source: Loadable, function: Callable[[Any, Any], Iterable[Any]], piece: Any
    ) -> Answer:
        """Work on one piece; vectors go to the shared folder where there is one."""
        if not self._shared and getattr(piece, "depot", None) is not None:
            piece = replace(piece, depot=None)
        outcomes, error = list[Any](), None
        try:
            outcomes = list(function(self._opened(source), piece))
        except Exception as problem:
            others = set(self._loaded) - {source.key}
            if others and out_of_memory(problem):
                for other in others:
                    self._drop(other)
                return self.work(source, function, piece)
            error = problem if isinstance(problem, R2MedError) else None
            error = error or WorkError(f"{type(problem).__name__}: {problem}")
        notices, self._notices[:] = tuple(self._notices), []
        return Answer(outcomes, error, notices, tuple(self._loaded))

    def _opened(self, source: Loadable) -> Any:
        """The part of what is loaded that works; a model is loaded the first time."""
        key, tell = source.key, self._notices.append
        if key not in self._loaded:
            for unused in list(self._loaded)[: 1 - _HELD]:
                self._drop(unused)
            loaded = source.load(tell)
            same = self._shared or source.identity is None
            if not same and source.opener(loaded, print).identity != source.identity:
                raise DataError(
                    f"{loaded.name}: the model of this name is another one on "
                    f"{socket.gethostname()}. Give both machines the same files, or name a folder "
                    "that they share."
                )
            self._loaded[key] = loaded
        self._loaded[key] = self._loaded.pop(key)
        if (key, source.part) not in self._open:
            self._open[key, source.part] = source.opener(self._loaded[key], tell)
        return self._open[key, source.part]

    def _drop(self, key: str) -> None:
        del self._loaded[key]
        self._open = {place: part for place, part in self._open.items() if place[0] != key}


def main() -> None:
    """Answer requests until the driver closes the pipe, in whatever way it ends.

    What models print goes to standard error; Ctrl-C is the driver's to handle.
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
