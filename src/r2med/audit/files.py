"""Read training data of any common format in chunks of bounded size."""

from __future__ import annotations

import codecs
import csv
import glob
import json
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.paths import user_path
from r2med.tasks.reading.lines import MAX_LINE, arrow_errors, blocks, content, file_errors, limit
from r2med.tasks.reading.source import find_source

if TYPE_CHECKING:
    import pyarrow as pa

#: How a file is read, by the end of its name.
ENDINGS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "text",
    ".parquet": "parquet",
    ".arrow": "arrow",
}
PACKED = (".gz", ".zst")
_EXPECTED = f"{', '.join(ENDINGS)} (lines also with {' or '.join(PACKED)})"
#: Elements of a JSON array, and rows of a table, in a chunk.
_RECORDS, _ROWS = 2000, 10_000
_SEPARATORS = re.compile(r"[\s,]*")


@dataclass(frozen=True)
class TrainingFile:
    """One training file, its format, and its name in reports."""

    path: Path
    form: str
    name: str


@dataclass(frozen=True)
class Chunk:
    """A part of a file that is read separately: lines, records, or rows of a table."""

    file: TrainingFile
    number: int
    first: int
    """The number of the chunk's first line or row in the file, from 1."""
    content: bytes | list[Any] | pa.RecordBatch
    done: float
    """The share of the file that has been read at the end of this chunk."""
    header: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        """The file's name and the chunk's number, which identify the chunk in the log of a scan."""
        return self.file.name, self.number

    @property
    def records(self) -> list[Any]:
        """The values of a chunk of JSON values or table rows; not for chunks of lines."""
        content: Any = self.content
        records: list[Any] = content if isinstance(content, list) else content.to_pylist()
        return records


def training_files(names: Sequence[str]) -> list[TrainingFile]:
    """Find training files by paths, folders, globs, or names of datasets in the hub's cache.

    In a folder that holds a task, only the corpus and the queries are training files, because
    judgements contain ids and no texts.
    """
    if not names:
        raise UsageError("No training data is named. Give files, folders or globs to audit.")
    files: dict[Path, TrainingFile] = {}
    used_names: set[str] = set()
    for name in names:
        readable = [
            (file, display_name)
            for file, display_name in _paths(name)
            if _plain_suffix(file) in ENDINGS
        ]
        if not readable:
            raise MissingError(
                f"{name} names no training data. Expected a file, folder, glob or dataset in the "
                f"hub's cache, and names of files that end in {_EXPECTED}."
            )
        for file, display_name in readable:
            called = str(file) if display_name in used_names else display_name
            used_names.add(called)
            form = ENDINGS[_plain_suffix(file)]
            files.setdefault(file.resolve(), TrainingFile(file, form, called))
    return list(files.values())


def chunks(file: TrainingFile) -> Iterator[Chunk]:
    """Yield a file in chunks of bounded size; the boundaries are the same in every run."""
    readers = {"parquet": _batches, "arrow": _batches, "json": _elements}
    return readers.get(file.form, _line_chunks)(file)


def _paths(name: str) -> Iterator[tuple[Path, str]]:
    """Yield path and display name of the files of a path, glob or dataset such as `org/name`."""
    path = user_path(name)
    matches = [path] if path.exists() else sorted(map(Path, glob.glob(str(path), recursive=True)))  # noqa: PTH207
    if not matches and name.count("/") == 1:
        home = os.environ.get("HF_HOME") or str(Path.home() / ".cache" / "huggingface")
        cache = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
        snapshots = cache / f"datasets--{name.replace('/', '--')}" / "snapshots"
        matches = sorted(snapshots.glob("*"), key=lambda entry: entry.stat().st_mtime)[-1:]
    for match in matches:
        if not match.is_dir():
            yield match, match.name
            continue
        files = sorted(file for file in match.rglob("*") if file.is_file())
        with suppress(R2MedError):  # it holds no task
            source = find_source(match)
            files = [*source.parts["corpus"], *source.parts["queries"]]
        for file in files:
            yield file, f"{match.resolve().name}/{file.relative_to(match)}"


def _plain_suffix(path: Path) -> str:
    name = path.name.lower()
    for ending in PACKED:
        name = name.removesuffix(ending)
    return Path(name).suffix


def _line_chunks(file: TrainingFile) -> Iterator[Chunk]:
    size, read, line = float(max(file.path.stat().st_size, 1)), 0, 1
    header: tuple[str, ...] = ()
    for number, block in enumerate(_whole_records(file)):
        if number == 0:
            header = _header(block, file)
            if file.path.suffix in PACKED:  # as large as it would be, packed like its beginning
                size *= len(block) / len(zlib.compress(block))
        read += len(block)
        yield Chunk(file, number, line, block, min(read / size, 1.0), header)
        line += block.count(b"\n")


def _whole_records(file: TrainingFile) -> Iterator[bytes]:
    """Yield blocks of whole lines that do not end inside CSV quotes or a paragraph of text."""
    waiting = b""
    for block in blocks(file.path, any_size=True):
        block = waiting + block
        cut = len(block)
        if b"\0" in block:
            raise DataError(f"{file.path}: it holds NUL bytes, so it is not text in UTF-8.")
        if file.form == "csv":
            data = np.frombuffer(block, dtype=np.uint8)
            unquoted = np.cumsum(data == ord('"')) % 2 == 0
            ends = np.flatnonzero((data == ord("\n")) & unquoted)
            cut = int(ends[-1]) + 1 if len(ends) else 0
        elif file.form == "text":
            cut = block.rfind(b"\n\n") + 2 if b"\n\n" in block else cut
        if len(block) - cut > limit(MAX_LINE):
            raise DataError(f"{file.path}: a row is longer than {limit(MAX_LINE):,} bytes.")
        if cut:
            yield block[:cut]
        waiting = block[cut:]
    if waiting:
        yield waiting


def _header(block: bytes, file: TrainingFile) -> tuple[str, ...]:
    """Return the column names of a CSV or TSV file; empty if the first line looks like a row."""
    if file.form not in ("csv", "tsv"):
        return ()
    first = block.partition(b"\n")[0].decode("utf-8", "replace")
    names: list[str] = next(table_reader([first], file.form), [])
    plain = all(0 < len(name) <= 40 and len(name.split()) <= 3 for name in names)
    return tuple(names) if plain and len(set(names)) == len(names) else ()


def table_reader(lines: Sequence[str], form: str) -> Any:
    """Return a reader of CSV or TSV lines; quotes have no special meaning in TSV."""
    csv.field_size_limit(limit(MAX_LINE))
    if form == "csv":
        return csv.reader(lines)
    return csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def _batches(file: TrainingFile) -> Iterator[Chunk]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = 1
    with arrow_errors(file.path, file.form.capitalize()), pa.OSFile(str(file.path)) as source:
        if file.form == "parquet":
            parquet = pq.ParquetFile(source)
            batches, size = parquet.iter_batches(_ROWS), parquet.metadata.num_rows
        else:
            batches, size = iter(pa.ipc.open_stream(source)), source.size()
        for number, batch in enumerate(batches):
            rows = first + len(batch) - 1
            done = rows / size if file.form == "parquet" else source.tell() / size
            yield Chunk(file, number, first, batch, done)
            first = rows + 1


def _elements(file: TrainingFile) -> Iterator[Chunk]:
    """Yield chunks of the elements of a JSON array, or of consecutive JSON values."""
    decode, size = json.JSONDecoder().raw_decode, max(file.path.stat().st_size, 1)
    characters = codecs.getincrementaldecoder("utf-8-sig")("replace")
    text, batch, first, read, number = "", [], 1, 0, 0
    with file_errors(file.path):
        for block in content(file.path):
            text = (text + characters.decode(block)).lstrip()
            if not read:
                text = text.removeprefix("[")
            read += len(block)
            position = 0
            while True:
                position = _SEPARATORS.match(text, position).end()  # type: ignore[union-attr]
                try:
                    record, position = decode(text, position)
                except (ValueError, RecursionError):
                    break
                batch.append(record)
                if len(batch) == _RECORDS:
                    yield Chunk(file, number, first, batch, min(read / size, 1.0))
                    first, number, batch = first + len(batch), number + 1, []
            text = text[position:]
            if len(text) > limit(MAX_LINE):
                break
    if batch:
        yield Chunk(file, number, first, batch, 1.0)
    if text.strip() not in ("]", ""):
        row = first + len(batch) - 1
        raise DataError(f"{file.path}: not valid JSON after row {row:,}, at {text.strip()[:40]!r}.")
