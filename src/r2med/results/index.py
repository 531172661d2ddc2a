"""The index of a results folder: summaries of all records, so that results are listed quickly.

The index is a file in the cache. An entry is used only if the size, times and inode of the record
are unchanged; all other records are read from the results folder again.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r2med.errors import DamagedError
from r2med.paths import cache_folder
from r2med.results.record import RECORD_FILE, Result, Summary, read_record
from r2med.results.stage_record import AnswerCounts
from r2med.storage import read_sealed, write_sealed

if TYPE_CHECKING:
    import pyarrow as pa

#: Part of the file name: a change of `Summary` or of its meaning raises it.
_FORMAT = 2
#: Results that are worth an index file; fewer are read quickly without one.
_WORTH_INDEXING = 100
#: Nanoseconds after which two changes of a file cannot share one time stamp.
_SETTLED_NS = 2_000_000_000

#: Records that one request compares with their stamps, some milliseconds of work.
_RECORDS_PER_CHECK = 2_000

Stamp = tuple[int, int, int, int]
"""Size, modification time, change time and inode of a record."""


@dataclass(frozen=True)
class FolderContent:
    """All results in a results folder, newest first, and the folders that could not be read."""

    results: tuple[Result, ...]
    damaged: Mapping[Path, str]
    """A message about each folder that could not be read."""
    stamped: tuple[tuple[Path, Stamp], ...]
    """The folder and the stamp of each record, including damaged records."""

    @cached_property
    def stamps(self) -> dict[Path, Stamp]:
        """The stamp of each record by folder; it changes if the record is written again."""
        return dict(self.stamped)


def read_results(root: Path, *, suite: str | None = None) -> FolderContent:
    """Read the results in a folder, or those of one suite, with the help of the folder's index."""
    if root.is_file():
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(root))
    with pause_garbage_collection():
        return _read_folder(root, suite)


@contextmanager
def pause_garbage_collection() -> Iterator[None]:
    """Pause garbage collection while many long-lived objects are made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read_folder(root: Path, suite: str | None) -> FolderContent:
    damaged: dict[Path, str] = {}
    stamps = dict(_find_records(root, damaged, suite))
    index_file = _index_file(root)
    indexed = _read_index(index_file) if len(stamps) >= _WORTH_INDEXING else {}
    summaries: dict[str, tuple[Stamp, Summary]] = {}
    for folder, stamp in stamps.items():
        entry = indexed.get(folder)
        if entry is not None and entry[0] == stamp:
            summaries[folder] = entry
            continue
        try:
            summary = Summary.of(read_record(root / folder))
            summaries[folder] = (stamp, replace(summary, size=folder_size(root / folder)))
        except DamagedError as problem:
            damaged[root / folder] = str(problem)
    changed = indexed.keys() != summaries.keys() or any(
        indexed[folder] is not entry for folder, entry in summaries.items()
    )
    if changed and suite is None and len(stamps) >= _WORTH_INDEXING:
        _write_index(index_file, summaries)
    paths = {folder: root / folder for folder in stamps}
    results = [
        Result(paths[folder], summary, reused=True) for folder, (_, summary) in summaries.items()
    ]
    results.sort(key=lambda result: result.summary.created, reverse=True)
    stamped = tuple((paths[folder], stamp) for folder, stamp in stamps.items())
    return FolderContent(tuple(results), damaged, stamped)


def folder_size(folder: Path) -> int:
    """The bytes of the files in a folder."""
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries)


def folder_times(root: Path) -> tuple[tuple[str, int], ...] | None:
    """Modification times of the folders that contain results; None if one changed very recently.

    A result that is added, replaced or removed changes the time of the folder around it, so equal
    times mean equal results. A folder that changed a moment ago could change again unnoticed.
    """
    times = []
    now = time.time_ns()
    folders = [str(root), *(entry.path for entry in _subfolders(str(root)))]
    for folder in folders[1:].copy():
        folders += [entry.path for entry in _subfolders(folder)]
    for folder in folders:
        try:
            modified = os.stat(folder).st_mtime_ns  # noqa: PTH116 - on every request
        except OSError:
            modified = 0
        if now - modified < _SETTLED_NS:
            return None
        times.append((folder, modified))
    return tuple(times)


class EditCheck:
    """Finds records that were edited in place, which leaves the times of all folders unchanged.

    Each call of `is_edited` compares the next `_RECORDS_PER_CHECK` records, so a page of a large
    folder stays quick and an edit is found after a few more requests.
    """

    def __init__(self, stamps: Mapping[Path, Stamp]) -> None:
        self._stamps = [(str(folder / RECORD_FILE), stamp) for folder, stamp in stamps.items()]
        self._next = 0

    def is_edited(self) -> bool:
        """Whether one of the next records was edited (its size, time or inode differs)."""
        end = self._next + _RECORDS_PER_CHECK
        checked = self._stamps[self._next : end]
        self._next = end if end < len(self._stamps) else 0
        return any(_read_stamp(path) != stamp for path, stamp in checked)


def _read_stamp(path: str) -> Stamp | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - on every request
    except OSError:
        return None
    return _to_stamp(status)


def _to_stamp(status: os.stat_result) -> Stamp:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _find_records(
    root: Path, damaged: dict[Path, str], only: str | None
) -> Iterator[tuple[str, Stamp]]:
    """Yield the folder of each record, relative to `root`, with the record's stamp."""
    for suite in _list_folders(root, damaged):
        if only not in (None, suite.name):
            continue
        for task in _list_folders(Path(suite.path), damaged):
            for result in _list_folders(Path(task.path), damaged):
                folder = f"{suite.name}/{task.name}/{result.name}"
                try:
                    status = os.stat(f"{result.path}/{RECORD_FILE}")  # noqa: PTH116 - many files
                except (FileNotFoundError, NotADirectoryError):
                    continue
                except OSError as problem:
                    damaged[root / folder] = f"{root / folder}: {problem.strerror}."
                    continue
                if stat.S_ISREG(status.st_mode):
                    yield folder, _to_stamp(status)
                else:
                    path = root / folder / RECORD_FILE
                    damaged[root / folder] = f"{path}: not a regular file."


def _list_folders(folder: Path, damaged: dict[Path, str]) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(
                (entry for entry in entries if entry.name[0] != "." and entry.is_dir()),
                key=lambda entry: entry.name,
            )
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as problem:
        damaged[folder] = f"{folder}: {problem.strerror}. Results in it are left out."
        return []


def _subfolders(folder: str) -> list[os.DirEntry[str]]:
    return _list_folders(Path(folder), {})


def _index_file(root: Path) -> Path:
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return cache_folder("indexes") / "results" / f"{name}-{_FORMAT}.arrow"


_TEXTS = ("key", "system_key", "spec", "label", "task", "suite", "data", "task_folder", "created")
_JSON = ("other_specs", "differences", "answers")
#: Stored as one column per metric, which is converted when it is first used.
_METRICS = ("metrics", "micro")


class _Columns(dict[str, list[float | None]]):
    """The values of each metric as lists; a column is converted when it is first used."""

    def __init__(self, batch: pa.RecordBatch, prefix: str) -> None:
        super().__init__()
        self._batch = batch
        self._prefix = prefix
        self.names = [
            name.removeprefix(prefix) for name in batch.schema.names if name.startswith(prefix)
        ]

    def __missing__(self, metric: str) -> list[float | None]:
        if metric not in self.names:
            raise KeyError(metric)
        values: list[float | None] = self._batch.column(f"{self._prefix}{metric}").to_pylist()
        self[metric] = values
        return values


class _MetricsRow(Mapping[str, float]):
    """The metrics of one result in the index."""

    __slots__ = ("_columns", "_row")

    def __init__(self, columns: _Columns, row: int) -> None:
        self._columns = columns
        self._row = row

    def __getitem__(self, metric: str) -> float:
        value = self._columns[metric][self._row]
        if value is None:
            raise KeyError(metric)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._columns.names if self._columns[name][self._row] is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _read_index(path: Path) -> dict[str, tuple[Stamp, Summary]]:
    """Entries by folder; empty if the index cannot be read."""
    try:
        [batch] = read_sealed(path)
        columns: dict[str, list[Any]] = {
            name: batch.column(name).to_pylist() for name in batch.schema.names if ":" not in name
        }
        for name in _METRICS:
            metrics = _Columns(batch, f"{name}:")
            columns[name] = [_MetricsRow(metrics, row) for row in range(len(batch))]
        for name in _JSON:
            # One document, so that equal keys share their memory.
            columns[name] = json.loads(f"[{','.join(columns[name])}]")
        for name in ("other_specs", "differences"):
            columns[name] = [tuple(value) for value in columns[name]]
        columns["answers"] = [
            AnswerCounts(**value) if value is not None else None for value in columns["answers"]
        ]
        names = [field.name for field in fields(Summary)]
        summaries = map(Summary, *(columns[name] for name in names))
        stamps = zip(*(columns[name] for name in _STAMP), strict=True)
        return dict(zip(columns["folder"], zip(stamps, summaries, strict=True), strict=True))
    except (OSError, DamagedError, KeyError, ValueError, TypeError):
        return {}


_STAMP = ("record_size", "modified", "changed", "inode")


def _write_index(path: Path, entries: Mapping[str, tuple[Stamp, Summary]]) -> None:
    """Write the index, without entries whose record changed very recently.

    Such a record could change again without a change of its time stamps.
    """
    settled = time.time_ns() - _SETTLED_NS
    rows = [
        (folder, stamp, summary)
        for folder, (stamp, summary) in entries.items()
        if max(stamp[1], stamp[2]) < settled
    ]
    with suppress(OSError):
        write_sealed(path, [_to_batch(rows)])


def _to_json(value: Any) -> str:
    return json.dumps(asdict(value) if isinstance(value, AnswerCounts) else value)


def _to_batch(rows: Iterable[tuple[str, Stamp, Summary]]) -> pa.RecordBatch:
    import pyarrow as pa

    table: dict[str, list[Any]] = {"folder": [], **{name: [] for name in _STAMP}}
    table |= {field.name: [] for field in fields(Summary)}
    for folder, stamp, summary in rows:
        table["folder"].append(folder)
        for name, value in zip(_STAMP, stamp, strict=True):
            table[name].append(value)
        for field in fields(Summary):
            value = getattr(summary, field.name)
            table[field.name].append(_to_json(value) if field.name in _JSON else value)
    for name in _METRICS:
        rows_of_metrics = table.pop(name)
        metric_names = dict.fromkeys(metric for row in rows_of_metrics for metric in row)
        for metric in metric_names:
            table[f"{name}:{metric}"] = [row.get(metric) for row in rows_of_metrics]
    types: dict[str, Any] = dict.fromkeys((*_TEXTS, *_JSON, "folder"), pa.large_string())
    types |= {"seconds": pa.float64()}
    types |= {name: pa.float64() for name in table if ":" in name}
    arrays = {name: pa.array(values, types.get(name, pa.int64())) for name, values in table.items()}
    return pa.RecordBatch.from_pydict(arrays)
