"""How far an evaluation has come: a small file in the results folder that anyone may follow.

It is written anew after every cell and never read by an evaluation. A process that was killed could
not say so: its file names the process, and a reader looks whether that still lives.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from r2med.errors import DamagedError
from r2med.results.record import Result
from r2med.schema import read_values
from r2med.storage import read_bytes, write_file

FOLDER = ".running"
#: Status files that are kept; older ones go when an evaluation begins.
_KEPT = 8
_LONGEST = 500
#: Bytes of the largest status file that is read.
_LARGEST = 64 * 1024**2

State = Literal["waiting", "running", "done", "reused", "failed"]
End = Literal["finished", "failed", "stopped"]


@dataclass
class CellStatus:
    """One system on one task."""

    task: str
    system: str
    state: State = "waiting"
    seconds: float | None = None


@dataclass
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
    host: str = ""
    """The name of the machine: a number of a process means nothing on another one."""

    @property
    def ahead(self) -> list[CellStatus]:
        """The cells that have not ended; while it runs, the first of them is under way."""
        return [cell for cell in self.cells if cell.state in ("waiting", "running")]

    def count(self, *states: State) -> int:
        """How many cells are in one of some states."""
        return sum(cell.state in states for cell in self.cells)

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the cells that were run; None before there is one, or at the end."""
        ran = [cell.seconds for cell in self.cells if cell.state == "done" and cell.seconds]
        return None if self.end or not ran else len(self.ahead) * sum(ran) / len(ran)


def track_status(
    results: Iterator[Result], root: Path, cells: Sequence[tuple[str, str]]
) -> Iterator[Result]:
    """Pass results on as they come, in the order of `cells`, and keep the status file up to date.

    Cells that are passed over have failed. A folder that cannot be written to goes without status.
    """
    with suppress(OSError):
        for old in _files(root)[: -_KEPT + 1]:
            old.unlink()
    pid, now, begun = os.getpid(), _now(), time.monotonic()
    status = Status(
        pid,
        _born(pid),
        now,
        now,
        tuple(CellStatus(task, system) for task, system in cells),
        host=socket.gethostname(),
    )
    try:
        _write(status, root)
        for result in results:
            for cell in status.ahead:
                if cell.system == result.system and _is_of_task(result.task, cell.task):
                    cell.task = result.task
                    cell.state = "reused" if result.reused else "done"
                    cell.seconds, begun = round(time.monotonic() - begun, 3), time.monotonic()
                    break
                cell.state = "failed"
            _write(status, root)
            yield result
        status.end = "finished"
        for cell in status.ahead:
            cell.state = "failed"
    except Exception as problem:
        status.end, status.problem = "failed", str(problem)[:_LONGEST]
        for cell in status.ahead[:1]:
            cell.state = "failed"
        raise
    finally:
        status.end = status.end or "stopped"
        _write(status, root)


def _is_of_task(name: str, task: str) -> bool:
    """Whether a result's task is the task of a cell, or a sample of it."""
    return name == task or name.startswith(f"{task} (")


def _write(status: Status, root: Path) -> None:
    for place, cell in enumerate(status.ahead):
        cell.state = "waiting" if place or status.end else "running"
    status.updated = _now()
    stamp = status.started.replace(":", "").replace("+", "-")
    path = root / FOLDER / f"{stamp}-{status.pid}.json"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(asdict(status)))


def read_statuses(root: Path) -> list[Status]:
    """The evaluations in a results folder, newest first; unreadable files are left out.

    One whose process is gone before it said that it ended was stopped.
    """
    found = []
    for path in reversed(_files(root)):
        with suppress(OSError, ValueError, RecursionError, DamagedError):
            status = read_values(Status, json.loads(read_bytes(path, limit=_LARGEST)), path)
            is_local = status.host == socket.gethostname()
            if status.end is None and is_local and _born(status.pid) != status.born:
                status.end = "stopped"
                for cell in status.ahead:
                    cell.state = "waiting"
            found.append(status)
    return found


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))


def _born(pid: int) -> str | None:
    """When a process began, as far as the system tells it; None where there is no such process."""
    try:
        if not Path("/proc/self/stat").exists():
            os.kill(pid, 0)
            return "unknown"
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except OSError:
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
