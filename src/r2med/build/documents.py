"""The documents of a corpus: the collections of build.toml, their files, and portions of files.

Files are read in *portions* of consecutive files or lines. The passages of a portion depend only on
its bytes and on the settings, so they are made once and stored under a hash of both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from r2med.build.folder import BuildFolder, hash_file
from r2med.build.passages import Passage, make_passages
from r2med.build.readers.decoding import FALLBACK, decode, describe_encoding
from r2med.build.readers.extracted import Extracted, Section, UnreadableFileError
from r2med.build.readers.jats import read_jats
from r2med.build.readers.markup import read_html
from r2med.build.readers.pdf import read_pdf
from r2med.build.readers.plain import read_markdown, read_text
from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.settings import setting
from r2med.tasks.reading.lines import blocks

DocumentFormat = Literal["jsonl", "text", "markdown", "html", "pdf", "jats"]
FORMATS: tuple[DocumentFormat, ...] = get_args(DocumentFormat)
ENDINGS: Mapping[str, DocumentFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".jsonl.gz": "jsonl",
    ".txt": "text",
    ".text": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".xml": "jats",
    ".nxml": "jats",
}
_COLLECTION_KEYS = ("path", "format", "licence", "distractor", "fields")
_JSONL_FIELDS = ("id", "text", "title", "section", "licence", "source")
#: Changes whenever the same file would give other passages.
_READING_VERSION = 1
#: Settings that change the passages of a file.
_READING_SETTINGS = ("passage_tokens", "encoding", "most_megabytes", "pdf_seconds")
_PORTION_BYTES, _PORTION_FILES, _PORTION_BLOCKS = 1 << 23, 200, 8
_UNSAFE = re.compile(r"[^\w.~-]+")
_LONGEST_NAME = 120


@dataclass(frozen=True)
class CorpusSettings:
    """The table `[corpus]` of build.toml; R2MED's authors do not publish their values."""

    passage_tokens: int = setting(default=128, least=8, most=100_000)
    """Approximate number of tokens in a passage; only very long sentences are cut."""
    least_tokens: int = setting(default=8, least=1)
    """Passages with fewer tokens, such as captions without text, are dropped."""
    near_duplicates: float | None = setting(default=0.8, least=0.5, most=1)
    """Smallest share of common three-word runs at which passages are folded; "none" folds only
    passages with equal words.
    """
    encoding: str = FALLBACK
    """Encoding of text files that are not UTF-8."""
    most_megabytes: int = setting(default=100, least=1)
    """Files larger than this are not read, except JSON lines."""
    pdf_seconds: int = setting(default=300, least=1)
    """Limit on the processor time for one PDF file."""


@dataclass(frozen=True)
class Collection:
    """An entry of `[[corpus.sources]]` in build.toml."""

    path: Path
    name: str
    """The path as written in build.toml."""
    format: DocumentFormat | None
    """None if the ending of each file decides."""
    licence: str
    distractor: bool
    fields: Mapping[str, str] = field(default_factory=dict)
    """Names of fields in JSON lines, by their role: id, text, title, section, licence, source."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a collection."""

    path: Path
    name: str
    """Path relative to the collection, shown in rows and messages."""
    format: DocumentFormat


@dataclass(frozen=True)
class PassageRow:
    """A passage in the stored file of a portion."""

    text: str
    document: str
    """Name of the passage's document; documents of two collections may have the same name."""
    number: int
    source: str
    section: str
    start: int
    end: int
    page: int | None
    licence: str
    tokens: int


@dataclass(frozen=True)
class SourceProblem:
    """A file or row that cannot be read, or a notice about a file that was read."""

    source: str
    problem: str
    is_unreadable: bool


Row = PassageRow | SourceProblem


@dataclass(frozen=True)
class Portion:
    """Some files, or a part of one file of JSON lines, whose passages are made together."""

    key: str
    collection: Collection
    files: tuple[SourceFile, ...]
    lines: bytes = b""
    """The portion's lines if it is a part of a file of JSON lines, else empty."""
    first_line: int = 1


def find_collections(folder: BuildFolder) -> list[Collection]:
    """Return the collections of build.toml, distractors last.

    The order decides which of two equal passages is kept.

    Raises:
        DataError: An entry has an unknown key or format.
        MissingError: There is no entry, or a path does not exist.
    """
    entries = folder.table("corpus").get("sources", [])
    where = f"{folder.settings_path}: [[corpus.sources]]"
    if not entries:
        raise MissingError(f"{where}: name at least one file or folder with path.")
    collections = [_read_collection(folder, entry, where) for entry in entries]
    return sorted(collections, key=lambda collection: collection.distractor)


def _read_collection(folder: BuildFolder, entry: Mapping[str, Any], where: str) -> Collection:
    for key in entry:
        if key not in _COLLECTION_KEYS:
            raise DataError(f"{where}: there is no key {key!r}. {nearest(key, _COLLECTION_KEYS)}")
    form = entry.get("format")
    if form is not None and form not in FORMATS:
        raise DataError(f"{where}: format {form!r} is not known. {nearest(str(form), FORMATS)}")
    fields = entry.get("fields", {})
    for name in fields:
        if name not in _JSONL_FIELDS:
            raise DataError(f"{where}: fields has no {name!r}. {nearest(name, _JSONL_FIELDS)}")
    distractor = entry.get("distractor", False)
    if not isinstance(distractor, bool):
        raise DataError(f"{where}: distractor is {distractor!r}, expected true or false.")
    name = str(entry.get("path", ""))
    path = folder.resolve(name, where)
    if not path.exists():
        raise MissingError(f"{where}: {path} does not exist.")
    outputs = folder.corpus_folder.resolve()
    if path.resolve() == outputs or outputs in path.resolve().parents:
        raise UsageError(f"{where}: `build corpus` writes to {outputs}; move the documents.")
    return Collection(
        path=path,
        name=name,
        format=form,
        licence=str(entry.get("licence", "not stated")),
        distractor=distractor,
        fields={key: str(value) for key, value in fields.items()},
    )


def find_files(collection: Collection) -> Iterator[SourceFile | SourceProblem]:
    """Yield the files of a collection by name, with a problem for each file without a reader."""
    if collection.path.is_file():
        paths = [collection.path]
        top = collection.path.parent
    else:
        walked = os.walk(collection.path)
        paths = sorted(Path(folder) / name for folder, _, names in walked for name in names)
        top = collection.path
    for path in paths:
        name = path.relative_to(top).as_posix()
        if any(part.startswith(".") for part in Path(name).parts):
            continue
        form = collection.format or _format_of(path.name)
        if form is None:
            yield SourceProblem(name, f"the ending {path.suffix!r} has no reader", True)
        elif not path.is_file():
            yield SourceProblem(name, "not a regular file", True)
        else:
            yield SourceFile(path, name, form)


def _format_of(file_name: str) -> DocumentFormat | None:
    name = file_name.lower()
    return next((form for ending, form in ENDINGS.items() if name.endswith(ending)), None)


def make_portions(
    collection: Collection, files: Sequence[SourceFile], settings: CorpusSettings
) -> Iterator[Portion]:
    """Yield the portions of a collection, in order."""
    base = [
        _READING_VERSION,
        {name: getattr(settings, name) for name in _READING_SETTINGS},
        collection.licence,
        dict(collection.fields),
    ]
    gathered: list[SourceFile] = []
    size = 0
    for file in files:
        if file.format == "jsonl":
            if gathered:
                yield _portion_of_files(base, collection, gathered)
                gathered, size = [], 0
            yield from _portions_of_lines(base, collection, file)
            continue
        gathered.append(file)
        size += file.path.stat().st_size
        if size >= _PORTION_BYTES or len(gathered) >= _PORTION_FILES:
            yield _portion_of_files(base, collection, gathered)
            gathered, size = [], 0
    if gathered:
        yield _portion_of_files(base, collection, gathered)


def _portion_of_files(
    base: Sequence[object], collection: Collection, files: Sequence[SourceFile]
) -> Portion:
    contents = [(file.name, file.format, _hash_if_readable(file.path)) for file in files]
    return Portion(_hash_json([*base, contents]), collection, tuple(files))


def _hash_if_readable(path: Path) -> str:
    try:
        return hash_file(path)
    except OSError as problem:
        return f"unreadable: {problem.strerror}"


def _portions_of_lines(
    base: Sequence[object], collection: Collection, file: SourceFile
) -> Iterator[Portion]:
    gathered: list[bytes] = []
    first_line = 1

    def portion() -> Portion:
        lines = b"".join(gathered)
        digest = hashlib.sha256(lines).hexdigest()
        key = _hash_json([*base, file.name, first_line, digest])
        return Portion(key, collection, (file,), lines, first_line)

    for block in blocks(file.path, any_size=True):
        gathered.append(block)
        if len(gathered) == _PORTION_BLOCKS:
            full = portion()
            yield full
            first_line += full.lines.count(b"\n")
            gathered = []
    if gathered:
        yield portion()


def _hash_json(values: object) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


def read_portion(portion: Portion, settings: CorpusSettings) -> Iterator[Row]:
    """Yield the passages and problems of a portion."""
    for file in portion.files:
        if file.format == "jsonl":
            yield from _read_lines(portion, file, settings)
            continue
        try:
            documents = _read_file(file, settings)
        except UnreadableFileError as problem:
            yield SourceProblem(file.name, str(problem), True)
            continue
        except OSError as problem:
            yield SourceProblem(file.name, problem.strerror or str(problem), True)
            continue
        stem = file.name[: -len(Path(file.name).suffix)] or file.name
        for index, document in enumerate(documents, start=1):
            several = f"{stem}-{index}" if len(documents) > 1 else stem
            for notice in document.notices:
                yield SourceProblem(file.name, notice, False)
            yield from _to_rows(document, document.name or several, file.name, portion, settings)


def _read_file(file: SourceFile, settings: CorpusSettings) -> list[Extracted]:
    limit = settings.most_megabytes << 20
    if file.path.stat().st_size > limit:
        raise UnreadableFileError(
            f"larger than {settings.most_megabytes} MB (setting most_megabytes)"
        )
    if file.format == "pdf":
        return [read_pdf(file.path, seconds=settings.pdf_seconds)]
    data = file.path.read_bytes()
    if file.format == "jats":
        return read_jats(data)
    if file.format == "html":
        return [read_html(data, settings.encoding)]
    text, encoding = decode(data, settings.encoding)
    document = read_markdown(text) if file.format == "markdown" else read_text(text)
    notices = describe_encoding(encoding)
    return [Extracted(**{**vars(document), "notices": notices})]


def _read_lines(portion: Portion, file: SourceFile, settings: CorpusSettings) -> Iterator[Row]:
    for number, line in enumerate(portion.lines.split(b"\n"), start=portion.first_line):
        if not line.strip():
            continue
        where = f"{file.name}, line {number}"
        try:
            row = json.loads(line)
            if not isinstance(row, dict):
                raise UnreadableFileError(f"a JSON {type(row).__name__}, expected an object")
            document, source = _read_row(row, portion.collection)
        except (ValueError, RecursionError):
            yield SourceProblem(where, "not JSON in UTF-8", True)
        except UnreadableFileError as problem:
            yield SourceProblem(where, str(problem), True)
        else:
            stem = file.name.partition(".")[0]
            name = document.name or f"{stem}-{number}"
            yield from _to_rows(document, name, source or where, portion, settings)


def _read_row(row: Mapping[str, Any], collection: Collection) -> tuple[Extracted, str]:
    """Return the document in a row of JSON lines, and its field `source`; empty if missing."""

    def value(name: str) -> object:
        return row.get(collection.fields.get(name, name))

    text = value("text")
    if not isinstance(text, str) or not text.strip():
        key = collection.fields.get("text", "text")
        raise UnreadableFileError(f"field {key!r} is missing or empty, expected a text")
    text = text.encode("utf-8", "replace").decode("utf-8")
    headings = [str(value(name)).strip() for name in ("title", "section") if value(name)]
    heading = " > ".join(headings)
    identifier = value("id")
    document = Extracted(
        text,
        (Section(0, len(text), heading),),
        name="" if identifier is None else str(identifier),
        licence=str(value("licence") or ""),
    )
    return document, str(value("source") or "")


def _to_rows(
    document: Extracted, name: str, source: str, portion: Portion, settings: CorpusSettings
) -> Iterator[PassageRow]:
    licence = document.licence or portion.collection.licence
    for number, passage in enumerate(make_passages(document, settings.passage_tokens), start=1):
        yield PassageRow(
            document=safe_name(name), number=number, source=source, licence=licence,
            **_fields(passage),
        )  # fmt: skip


def _fields(passage: Passage) -> dict[str, Any]:
    return vars(passage)


def safe_name(name: str) -> str:
    """Return a name without spaces and slashes, for ids of passages in run files."""
    safe = _UNSAFE.sub("-", name).strip("-") or "document"
    if len(safe) <= _LONGEST_NAME:
        return safe
    return f"{safe[:_LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
