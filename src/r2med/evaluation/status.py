"""The status of a running evaluation: a small file in the results folder.

It is rewritten after every cell, and evaluations never read it. A killed process cannot update its
file, so the file names the process, and readers check whether it is still alive.
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
#: Status files that are kept; older ones are deleted when an evaluation begins.
_KEPT = 8
#: Characters of an error message in a status file.
_LONGEST = 500
#: Bytes of the largest status file that is read.
_LARGEST = 64 * 1024**2

#: Index of the start time among the fields of /proc/PID/stat that follow the process name.
_START_TIME_FIELD = 19

State = Literal["waiting", "running", "done", "reused", "failed"]
End = Literal["finished", "failed", "stopped"]


@dataclass
class CellStatus:
    """The status of one system on one task."""

    task: str
    system: str
    state: State = "waiting"
    seconds: float | None = None


@dataclass
class Status:
    """The status of one evaluation; `end` is None while it runs."""

    pid: int
    born: str | None
    """Start time of the process; a later process may have the same number."""
    started: str
    updated: str
    cells: tuple[CellStatus, ...]
    end: End | None = None
    problem: str = ""
    host: str = ""
    """Name of the machine; a process number is valid on one machine only."""

    @property
    def ahead(self) -> list[CellStatus]:
        """The unfinished cells; while the evaluation runs, the first of them is running."""
        return [cell for cell in self.cells if cell.state in ("waiting", "running")]

    def count(self, *states: State) -> int:
        """Return the number of cells in any of these states."""
        return sum(cell.state in states for cell in self.cells)

    @property
    def seconds_left(self) -> float | None:
        """Expected seconds to the end, from the mean of cells that ran; None before the first."""
        seconds = [cell.seconds for cell in self.cells if cell.state == "done" and cell.seconds]
        if self.end or not seconds:
            return None
        return len(self.ahead) * sum(seconds) / len(seconds)


def track_status(
    results: Iterator[Result], root: Path, cells: Sequence[tuple[str, str]]
) -> Iterator[Result]:
    """Yield results as they arrive, and update the status file after each result.

    Results come in the order of `cells`; a cell that is skipped counts as failed. If the folder
    cannot be written to, no status file is made.
    """
    with suppress(OSError):
        for old in _files(root)[: -_KEPT + 1]:
            old.unlink()
    pid, now, cell_start = os.getpid(), _now(), time.monotonic()
    status = Status(
        pid,
        _process_start(pid),
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
                    cell.seconds = round(time.monotonic() - cell_start, 3)
                    cell_start = time.monotonic()
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
    """Return whether the task `name` of a result is the task of a cell, or a sample of it."""
    return name == task or name.startswith(f"{task} (")


def _write(status: Status, root: Path) -> None:
    for index, cell in enumerate(status.ahead):
        is_running = index == 0 and status.end is None
        cell.state = "running" if is_running else "waiting"
    status.updated = _now()
    stamp = status.started.replace(":", "").replace("+", "-")
    path = root / FOLDER / f"{stamp}-{status.pid}.json"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(asdict(status)))


def read_statuses(root: Path) -> list[Status]:
    """Return the status of each evaluation in a results folder, newest first.

    Unreadable files are left out. An unfinished evaluation counts as stopped if its process does
    not exist any more.
    """
    statuses = []
    for path in reversed(_files(root)):
        with suppress(OSError, ValueError, RecursionError, DamagedError):
            status = read_values(Status, json.loads(read_bytes(path, limit=_LARGEST)), path)
            is_local = status.host == socket.gethostname()
            if status.end is None and is_local and _process_start(status.pid) != status.born:
                status.end = "stopped"
                for cell in status.ahead:
                    cell.state = "waiting"
            statuses.append(status)
    return statuses


def _files(root: Path) -> list[Path]:
    return sorted(path for path in (root / FOLDER).glob("*.json") if not path.name.startswith("."))


def _process_start(pid: int) -> str | None:
    """Return the start time of a process; None if it does not exist.

    On systems without /proc it is "unknown" for every process that exists.
    """
    try:
        if not Path("/proc/self/stat").exists():
            os.kill(pid, 0)  # signal 0 only checks that the process exists
            return "unknown"
        content = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    _, _, fields_after_name = content.rpartition(")")
    return fields_after_name.split()[_START_TIME_FIELD]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
