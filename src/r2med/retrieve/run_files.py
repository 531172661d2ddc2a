"""Rankings from files as first stages: run files, and the candidate subsets of Nano tasks.

A ranking is a TREC or Parquet file, the folder of a stored result, or a subset in the folder of a
task's data. Restricted to a task, it has the task's queries in the task's order, and only the
task's documents. Everything unusual is counted and reported, never silently fixed.

The hybrid subset was published with a safeguard: if the 100 candidates of a query contain no
positive, one positive was added at rank 101. That leaks the answer into the candidates, so rank 101
is left out unless the option `safeguard` is set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from r2med.errors import DamagedError, DataError, MissingError, UsageError, nearest
from r2med.paths import user_path
from r2med.runs import Run
from r2med.runs.exclusions import remove_excluded
from r2med.runs.files import Oddities, Repeats, read_run
from r2med.runs.run import TieOrder, find_positions
from r2med.settings import setting
from r2med.storage import unseal
from r2med.tasks.fetch.provenance import NANO_CONFIGS, sha256_of
from r2med.tasks.reading.lines import arrow_errors
from r2med.tasks.reading.source import split_files
from r2med.tasks.task import Task

_RUN_FILE = "run.parquet"
_RECORD_FILE = "result.json"
#: First rank of a published hybrid list that was added as a safeguard.
_SAFEGUARD_RANK = 101
_HYBRID = "reranking_hybrid"
_COLUMNS = ("query-id", "corpus-ids")
_EXPECTED = (
    "candidates have the columns query-id (an id, each once) and corpus-ids (a list of document "
    "ids, best first, each once), without nulls."
)
#: The notice about each field of `Findings` that is not 0.
_NOTICES = {
    "unknown_queries": "queries not in this task: {count:,}, such as {unknown_query!r}; dropped.",
    "unknown_documents": (
        "entries for documents not in the corpus: {count:,}, such as {unknown_document!r}; dropped."
    ),
    "missing_queries": "queries of the task without any document: {count:,}; they score zero.",
    "repeated_documents": (
        "entries that repeat a document of the same list: {count:,}; the {repeats} one counts."
    ),
    "odd_ranks": (
        "lists whose ranks repeat or contradict the scores: {count:,}; the order follows the "
        "{decides}."
    ),
    "without_scores": "the file has no scores; the order follows the ranks.",
}


@dataclass(frozen=True)
class RunSettings:
    """The settings of a system `run:PATH`."""

    path: str = setting(identity="content")
    repeats: Repeats = "refuse"


@dataclass(frozen=True)
class RunFile:
    """A file with a ranking, and the tie order in which the ranking is measured."""

    path: Path
    ties: TieOrder = "trec"
    repeats: Repeats = "refuse"
    stored_as: str | None = None
    """The checksum in the record of a stored result; a file with another checksum is damaged."""

    def fingerprint(self) -> str:
        """Return the sha256 of the file's content, which is part of the system's identity."""
        digest = sha256_of(self.path)
        if self.stored_as not in (None, digest):
            raise DamagedError(
                f"{self.path}: its checksum differs from the one in {_RECORD_FILE}. "
                "Evaluate the system again."
            )
        return digest

    def read(self) -> tuple[Run, Findings]:
        """Return the ranking in the file's order, and the oddities of its format."""
        self.fingerprint()
        run, oddities = read_run(self.path, repeats=self.repeats)
        repeats = self.repeats if oddities.repeated_documents else ""
        return run, Findings(**asdict(oddities), repeats=repeats)


def locate_run(text: str, repeats: Repeats = "refuse") -> RunFile:
    """Return the file of `run:TEXT`, where TEXT is a run file or the folder of a stored result.

    The run of a stored result is measured in the tie order of its record.
    """
    if not text:
        raise UsageError("run: the path is missing; expected run:PATH.")
    path = user_path(text)
    run = path / _RUN_FILE if path.is_dir() else path
    if not run.is_file():
        state = f"the folder contains no {_RUN_FILE}" if path.is_dir() else "no such file"
        raise MissingError(
            f"run {text!r}: {state}, expected a TREC run file (plain or .gz), a Parquet "
            "file with query_id, document_id and score, or the folder of a stored result "
            "(`r2med results --json` lists them)."
        )
    record = path / _RECORD_FILE
    if not record.is_file():
        return RunFile(run, repeats=repeats)
    try:
        content = unseal(record.read_text(encoding="utf-8"), record)
        return RunFile(run, content["system"]["ties"], repeats, content["files"][_RUN_FILE])
    except (ValueError, KeyError, TypeError) as problem:
        raise DamagedError(f"{record}: not a readable result ({problem}).") from None


def restrict_to_task(run: Run, task: Task, findings: Findings, source: str) -> tuple[Run, Findings]:
    """Return the entries of a ranking for the task's queries and documents.

    The findings count the dropped entries. An entry is dropped unless both its query and its
    document are the task's; ids are often small numbers that many tasks use. Raises DataError if no
    entry is left. `source` names the ranking in that error.
    """
    queries = find_positions(run.query_ids, task.queries.ids)
    documents = find_positions(run.document_ids, task.corpus.document_ids)
    is_unknown = documents[run.documents] < 0
    is_dropped = is_unknown & (queries[run.query_rows] >= 0)
    restricted = run.take(np.flatnonzero(~is_unknown)).over(task.queries.ids, queries)
    restricted = replace(
        restricted,
        document_ids=task.corpus.document_ids,
        documents=documents[restricted.documents].astype(np.int32),
    )
    restricted, excluded = remove_excluded(restricted, task.exclusions)
    if not len(restricted.documents):
        raise DataError(
            f"{source}: none of its {len(run.documents):,} entries is for a query and a document "
            f"of {task.name}, so there is nothing to measure. Was the run made on another task?"
        )
    unknown_queries = run.query_ids.filter(pa.array(queries < 0)).to_pylist()
    dropped_documents = run.documents[is_dropped]
    unknown_document = ""
    if len(dropped_documents):
        unknown_document = run.document_ids[int(dropped_documents[0])].as_py()
    return restricted, replace(
        findings,
        unknown_queries=len(unknown_queries),
        unknown_query=unknown_queries[0] if unknown_queries else "",
        unknown_documents=len(dropped_documents),
        unknown_document=unknown_document,
        missing_queries=int((restricted.lengths == 0).sum()),
        excluded_documents=excluded,
    )


@dataclass(frozen=True)
class Findings(Oddities):
    """Counts of everything unusual about a ranking, with the first example of each."""

    unknown_queries: int = 0
    unknown_query: str = ""
    unknown_documents: int = 0
    unknown_document: str = ""
    missing_queries: int = 0
    excluded_documents: int = 0
    """Entries that were removed because their query excludes the document."""
    repeats: str = ""
    """Whether the first or last entry of a repeated document counts; empty if none is repeated."""

    def facts(self) -> Mapping[str, object]:
        """Return the fields that are not 0 or empty, for the record."""
        return {name: value for name, value in asdict(self).items() if value}

    def notices(self) -> list[str]:
        """Return one sentence for each finding, with its consequence."""
        facts = self.facts()
        decides = "lines" if self.without_scores else "scores"
        return [
            sentence.format(count=facts[name], decides=decides, **facts)
            for name, sentence in _NOTICES.items()
            if name in facts
        ]

    def check_strict(self, source: str) -> None:
        """Raise DataError if the ranking names unknown queries or documents."""
        if self.unknown_queries or self.unknown_documents:
            raise DataError(
                f"{source}: {self.notices()[0].removesuffix('; dropped.')}.\n"
                "Was the run made on other data? Without --strict they are dropped and counted."
            )


@dataclass(frozen=True)
class CandidateSettings:
    """The settings of a system `candidates:NAME`."""

    name: str
    safeguard: bool

    def __post_init__(self) -> None:
        """Raise UsageError if the name cannot be the name of a folder."""
        if not re.fullmatch(r"[\w-][\w.-]{0,99}", self.name):
            raise UsageError(
                f"candidates:{self.name[:60]}: expected the name of a subset, as in "
                "candidates:bm25."
            )


@dataclass(frozen=True)
class Subset:
    """One candidate subset of one task, and its files."""

    name: str
    files: tuple[Path, ...]

    def fingerprint(self) -> str:
        """Return one sha256 for the contents of all files."""
        digests = b"".join(bytes.fromhex(sha256_of(file)) for file in self.files)
        return hashlib.sha256(digests).hexdigest()

    def read(self, *, safeguard: bool) -> Run:
        """Return the candidate lists; scores are negative ranks, because none were published."""
        entries = [
            (query, document, -float(rank))
            for file in self.files
            for query, documents in _read(file)
            for rank, document in enumerate(documents, start=1)
        ]
        queries, documents, scores = zip(*entries, strict=True) if entries else ((), (), ())
        run = Run.from_columns(queries, documents, scores)
        if self.name == _HYBRID and not safeguard:
            return run.truncate(_SAFEGUARD_RANK - 1)
        return run

    def safeguards(self) -> Mapping[str, str]:
        """Return, by query, the positive that was added below the candidates as a safeguard."""
        if self.name != _HYBRID:
            return {}
        run = self.read(safeguard=True)
        entries = np.flatnonzero(run.ranks >= _SAFEGUARD_RANK)
        queries = run.query_ids.take(pa.array(run.query_rows[entries])).to_pylist()
        documents = run.document_ids.take(pa.array(run.documents[entries])).to_pylist()
        return dict(zip(queries, documents, strict=True))


def find_subset(task: Task, name: str) -> Subset:
    """Return a candidate subset of a task; MissingError with the available names if none fits."""
    files = tuple(split_files(task.source, name, split_of(task)))
    if files:
        return Subset(name, files)
    names = subset_names(task)
    hint = nearest(name, names) if names else "It has no candidate subsets; Nano tasks have them."
    raise MissingError(f"candidates {name!r}: {task.name} has no such subset. {hint}")


def subset_names(task: Task) -> list[str]:
    """Return the names of the candidate subsets in the folder of a task's data."""
    return sorted(
        folder.name
        for folder in task.source.iterdir()
        if folder.is_dir() and folder.name not in NANO_CONFIGS
        if split_files(task.source, folder.name, split_of(task))
    )


def split_of(task: Task) -> str:
    """Return the split of a task in a Parquet folder; in another layout, the task's name."""
    return task.split or task.name


def _read(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield every query id of a file with its document ids, best first.

    Integer ids become texts.
    """
    with arrow_errors(file):
        table = pq.read_table(file)
    types = {column.name: column.type for column in table.schema}
    query_type, list_type = (types.get(column, pa.null()) for column in _COLUMNS)
    is_list = pa.types.is_list(list_type) or pa.types.is_large_list(list_type)
    document_type = list_type.value_type if is_list else pa.null()
    if not (_is_id_type(query_type) and _is_id_type(document_type)):
        columns = ", ".join(f"{name} ({column_type})" for name, column_type in types.items())
        raise DataError(f"{file}: has the columns {columns}; {_EXPECTED}")
    seen = set()
    rows = zip(*(table[column].to_pylist() for column in _COLUMNS), strict=True)
    for row, (query, documents) in enumerate(rows, start=1):
        problem = None
        if query is None or documents is None or None in documents:
            problem = "a null"
        elif query in seen or len(set(documents)) < len(documents):
            problem = "a repeated id"
        if problem:
            raise DataError(f"{file}, row {row} (query {query!r}): {problem}; {_EXPECTED}")
        seen.add(query)
        yield str(query), [str(document) for document in documents]


def _is_id_type(column_type: pa.DataType) -> bool:
    return column_type in (pa.string(), pa.large_string()) or pa.types.is_integer(column_type)
