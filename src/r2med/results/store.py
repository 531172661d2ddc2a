"""The results folder: one folder per result, written atomically and checked when read."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from r2med.measure.scores import Scores
from r2med.paths import slug
from r2med.results.record import (
    RECORD_FILE,
    RUN_FILE,
    SCORES_FILE,
    Record,
    Result,
    Summary,
    read_record,
)
from r2med.runs import Run
from r2med.storage import atomic_folder, lock, read_folder, remove_folder, sweep

DEFAULT_FOLDER = Path("r2med-results")
#: Folder of results on local tasks, which have no suite.
LOCAL = "local"
#: Characters of a key in a folder's name: 128 bits, so two results never share a folder.
_KEY = 32


class Store:
    """Results under one root folder: ROOT/SUITE/TASK/SYSTEM-KEY."""

    def __init__(self, root: str | Path = DEFAULT_FOLDER) -> None:
        self.root = Path(root)

    def folder(self, task: str, suite: str | None, spec: str, key: str) -> Path:
        """Return the folder of a result: the one stored with this key, or the one to create."""
        task_folder = self._task_folder(task, suite)
        new_folder = task_folder / f"{slug(spec)}-{key[:_KEY]}"
        if new_folder.exists():
            return new_folder
        try:
            names = os.listdir(task_folder)  # noqa: PTH208 - several times faster than iterdir
        except OSError:
            return new_folder
        stored = [name for name in names if name.endswith(f"-{key[:_KEY]}") and name[0] != "."]
        return task_folder / min(stored) if stored else new_folder

    def write(self, record: Record, run: Run, scores: Scores, *, key: str | None = None) -> Result:
        """Store a result atomically, with checksums; replaces a result of the same key.

        Args:
            record: Everything except the tables; their checksums are added.
            run: The ranked lists.
            scores: One row per judged query.
            key: The key of the record, if the caller has computed it.
        """
        task, system = record.task, record.system
        key = key or record.key
        folder = self.folder(task.name, task.suite, system.spec, key)
        with atomic_folder(folder) as draft:
            run.to_parquet(draft / RUN_FILE)
            pq.write_table(scores.to_arrow(), draft / SCORES_FILE)
            tables = {name: (draft / name).read_bytes() for name in (RUN_FILE, SCORES_FILE)}
            checksums = {
                name: hashlib.sha256(content).hexdigest() for name, content in tables.items()
            }
            record = replace(record, files=checksums)
            (draft / RECORD_FILE).write_text(record.to_json(), encoding="utf-8")
        return Result.from_record(
            folder, record, key=key, tables={SCORES_FILE: tables[SCORES_FILE]}
        )

    def update_names(
        self, result: Result, *, label: str | None = None, spec: str | None = None
    ) -> Result:
        """Add a label, or another spec with the same identity, to a stored result.

        The folder is replaced as a whole, so that the modification time of the parent folder
        changes.
        """
        with self.lock(result):
            system = read_record(result.folder).system
            specs = {*system.other_specs, *([spec] if spec else [])} - {system.spec}
            system = replace(system, label=label or system.label, other_specs=tuple(sorted(specs)))
            record = replace(result.record, system=system)
            with atomic_folder(result.folder, keep=lambda name: name != RECORD_FILE) as draft:
                (draft / RECORD_FILE).write_text(record.to_json(), encoding="utf-8")
        return replace(result, loaded=record, summary=Summary.of(record, result.summary.key))

    def lock(self, result: Result) -> AbstractContextManager[None]:
        """Return a lock on a result, which waits while another process updates the result."""
        return self.lock_folder(result.folder)

    def lock_folder(self, folder: Path) -> AbstractContextManager[None]:
        """Return a lock on a result's folder, which waits while another process updates it."""
        return lock(folder.with_name(f".{folder.name}.updating"))

    def delete(self, result: Result) -> None:
        """Remove one result in one step, and the folders around it if they become empty."""
        task_folder = result.folder.parent
        sweep(task_folder)
        remove_folder(result.folder)
        for folder in (task_folder, task_folder.parent):
            if folder != self.root and not any(folder.iterdir()):
                folder.rmdir()

    def folders(self, suite: str | None = None) -> Iterator[Path]:
        """The folders that contain a record, sorted; with `suite`, those of one suite."""
        if self.root.is_file():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(self.root))
        for path in sorted(self.root.glob(f"{suite or '*'}/*/*/{RECORD_FILE}")):
            if not path.parent.name.startswith("."):
                yield path.parent

    def sweep(self, task: str, suite: str | None) -> None:
        """Remove unfinished files of processes that were killed while they wrote."""
        sweep(self._task_folder(task, suite))

    def _task_folder(self, task: str, suite: str | None) -> Path:
        return self.root / slug(suite or LOCAL) / slug(task)


def read_result(folder: Path) -> Result:
    """Read a stored result and check its tables; consistent even while it is being replaced.

    Raises:
        DamagedError: The record or a table cannot be read or does not match its checksum.
    """
    return read_folder(folder, _read_checked)


def _read_checked(folder: Path) -> Result:
    result = Result.from_record(folder, read_record(folder), reused=True)
    result.check_tables()
    return result
