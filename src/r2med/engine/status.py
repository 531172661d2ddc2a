"""How far an evaluation has come: a small file in the results folder that anyone may follow.

It is written anew after every cell and never read by an evaluation. A process that was killed could
not say so: its file names the process, and a reader looks whether that still lives.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from r2med.atomic import atomic_file
from r2med.results.record import Result

FOLDER = ".running"
#: Status files that are kept; older ones go when an evaluation begins.
_KEPT = 8
_LONGEST = 500

State = Literal["waiting", "running", "done", "reused", "failed"]
End = Literal["finished", "failed", "interrupted", "stopped"]


@dataclass(frozen=True)
class CellStatus:
    """One system on one task."""

    task: str
    system: str
    state: State = "waiting"
    seconds: float | None = None


@dataclass(frozen=True)
class Status:
    """One evaluation; `end` is None while it runs."""

    pid: int
    born: str | None
    """When the operating system began the process: a number may be given to another one later."""
    started: str
    updated: str
    cells: tuple[CellStatus, ...]
    end: End | None = None
    problem: str = ""

    def count(self, *states: State) -> int:
        """How many cells are in one of some states."""
        return sum(cell.state in states for cell in self.cells)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the cells that were run; None before there is one, or at the end."""
        ran = [cell.seconds for cell in self.cells if cell.state == "done" and cell.seconds]
        open_cells = self.count("waiting", "running")
        return None if self.end or not ran else open_cells * sum(ran) / len(ran)


def watched(
    results: Iterator[Result], root: Path, cells: Sequence[tuple[str, str]]
) -> Iterator[Result]:
    """Pass results on as they come, in the order of `cells`, and keep the status file up to date.

    Cells that are passed over have failed. A folder that cannot be written to goes without status.
    """
    writer = _Writer(root, [CellStatus(task, system) for task, system in cells])
    try:
        for result in results:
            writer.advance(result)
            yield result
        writer.finish("finished", failed=True)
    except GeneratorExit:
        writer.finish("stopped")
        raise
    except KeyboardInterrupt:
        writer.finish("interrupted")
        raise
    except BaseException as problem:
        writer.finish("failed", problem=str(problem), failed=True)
        raise


@dataclass
class _Writer:
    root: Path
    cells: list[CellStatus]
    place: int = 0
    begun: float = field(default_factory=time.monotonic)
    started: str = field(default_factory=lambda: _now())

    def __post_init__(self) -> None:
        with suppress(OSError):
            for old in _files(self.root)[: -_KEPT + 1]:
                old.unlink()
        self._write(None)

    def advance(self, result: Result) -> None:
        """The cell of a result is done, those passed over have failed, the next one runs."""
        for place in range(self.place, len(self.cells)):
            cell = self.cells[place]
            if (cell.task, cell.system) == (result.task, result.system):
                spent = round(time.monotonic() - self.begun, 3)
                state: State = "reused" if result.reused else "done"
                self.cells[place] = replace(cell, state=state, seconds=spent)
                self.place, self.begun = place + 1, time.monotonic()
                break
            self.cells[place] = replace(cell, state="failed")
        self._write(None)

    def finish(self, end: End, *, problem: str = "", failed: bool = False) -> None:
        """Say how it ended; with `failed`, the cell under way has."""
        if failed and self.place < len(self.cells):
            rest = self.cells[self.place :] if end == "finished" else [self.cells[self.place]]
            for place, cell in enumerate(rest, start=self.place):
                self.cells[place] = replace(cell, state="failed")
        self._write(end, problem)

    def _write(self, end: End | None, problem: str = "") -> None:
        cells = list(self.cells)
        if end is None and self.place < len(cells):
            cells[self.place] = replace(cells[self.place], state="running")
        status = Status(
            pid=os.getpid(),
            born=_born(os.getpid()),
            started=self.started,
            updated=_now(),
            cells=tuple(cells),
            end=end,
            problem=problem[:_LONGEST],
        )
        stamp = self.started.replace(":", "").replace("+", "-")
        path = self.root / FOLDER / f"{stamp}-{status.pid}.json"
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(path) as draft:
                draft.write_text(json.dumps(asdict(status)), encoding="utf-8")


def read_statuses(root: Path) -> list[Status]:
    """The evaluations in a results folder, newest first; unreadable files are left out.

    One whose process is gone before it said that it ended was stopped.
    """
    found = []
    for path in reversed(_files(root)):
        with suppress(OSError, ValueError, TypeError, KeyError):
            status = _status(json.loads(path.read_text(encoding="utf-8")))
            if status.end is None and not _lives(status):
                cells = (
                    replace(cell, state="waiting") if cell.state == "running" else cell
                    for cell in status.cells
                )
                status = replace(status, end="stopped", cells=tuple(cells))
            found.append(status)
    return found


def _status(raw: dict[str, Any]) -> Status:
    cells = tuple(CellStatus(**cell) for cell in raw.pop("cells"))
    status = Status(cells=cells, **raw)
    if not isinstance(status.pid, int):
        raise TypeError("pid")
    return status


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))


def _lives(status: Status) -> bool:
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return status.born is None or _born(status.pid) == status.born


def _born(pid: int) -> str | None:
    """When a process began, where the system tells it; None elsewhere."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError, UnicodeDecodeError):
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
