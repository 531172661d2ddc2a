"""The results folder: one folder per result, written whole or not at all, checked when read."""

from __future__ import annotations

import errno
import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from r2med.atomic import atomic_folder, read_folder, sweep, write_file
from r2med.errors import DamagedError
from r2med.home import slug
from r2med.measure.scores import Scores
from r2med.results.record import (
    RECORD_FILE,
    RUN_FILE,
    SCORES_FILE,
    Record,
    Result,
    checked_bytes,
)
from r2med.runs import Run

DEFAULT_FOLDER = Path("r2med-results")
#: Where results on data of the user's own are, in place of a suite.
LOCAL = "local"
#: Characters of a key in a folder's name; 128 bits, so two results never share a folder.
_KEY = 32


class Store:
    """Results under one root, addressed by what they are results of."""

    def __init__(self, root: str | Path = DEFAULT_FOLDER) -> None:
        self.root = Path(root)

    def place(self, task: str, suite: str | None, system: str, key: str) -> Path:
        """Where a result lives: readable names for people, the key for identity."""
        return self._task_folder(task, suite) / f"{slug(system)}-{key[:_KEY]}"

    def write(self, record: Record, run: Run, scores: Scores) -> Result:
        """Store a result in one step, with checksums of its tables; it replaces an equal one."""
        task, system = record.task, record.system
        folder = self.place(task.name, task.suite, system.spec, record.key)
        with atomic_folder(folder) as draft:
            run.to_parquet(draft / RUN_FILE)
            pq.write_table(scores.to_arrow(), draft / SCORES_FILE)
            tables = {name: (draft / name).read_bytes() for name in (RUN_FILE, SCORES_FILE)}
            sums = {name: hashlib.sha256(data).hexdigest() for name, data in tables.items()}
            record = replace(record, files=sums)
            (draft / RECORD_FILE).write_text(record.to_json(), encoding="utf-8")
        return Result(folder, record, held={SCORES_FILE: tables[SCORES_FILE]})

    def relabel(self, result: Result, label: str) -> Result:
        """The same result under another label; nothing else of it is written again."""
        record = replace(result.record, system=replace(result.record.system, label=label))
        write_file(result.folder / RECORD_FILE, record.to_json())
        return replace(result, record=record)

    def delete(self, result: Result) -> None:
        """Remove one result in one step; folders that it leaves empty go with it."""
        gone = result.folder.with_name(f".{result.folder.name}.deleted")
        result.folder.rename(gone)
        shutil.rmtree(gone)
        for folder in (result.folder.parent, result.folder.parent.parent):
            if folder != self.root and not any(folder.iterdir()):
                folder.rmdir()

    def folders(self, suite: str | None = None) -> Iterator[Path]:
        """Every folder that holds, or claims to hold, a result; with `suite` those of one."""
        if self.root.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(self.root))
        folders = [
            path.parent for path in sorted(self.root.glob(f"{suite or '*'}/*/*/{RECORD_FILE}"))
        ]
        return (folder for folder in folders if not folder.name.startswith("."))

    def sweep(self, task: str, suite: str | None) -> None:
        """Remove what killed writers of a task's results left behind."""
        sweep(self._task_folder(task, suite))

    def _task_folder(self, task: str, suite: str | None) -> Path:
        return self.root / slug(suite or LOCAL) / slug(task)


def read_result(folder: Path) -> Result:
    """A stored result, whole even while it is being replaced; DamagedError says what is wrong.

    The record and the scores stay in memory; the run is checked, and read when asked for.
    """
    return read_folder(folder, _read)


def _read(folder: Path) -> Result:
    path = folder / RECORD_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise DamagedError(f"{path}: not a readable result ({problem}).") from None
    record = Record.from_json(text, path)
    checked_bytes(folder / RUN_FILE, record.files.get(RUN_FILE))
    scores = checked_bytes(folder / SCORES_FILE, record.files.get(SCORES_FILE))
    return Result(folder, record, reused=True, held={SCORES_FILE: scores})
