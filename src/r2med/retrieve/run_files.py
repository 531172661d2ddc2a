"""Rankings made elsewhere as first stages: run files, and the candidate subsets of Nano tasks.

A ranking is a TREC or Parquet file, the folder of a stored result, or a subset that lies beside a
task's data. Fitted to a task it has the task's queries, in its order, with its documents only. What
is odd about it is counted and said, never silently mended.

The hybrid subset was published with a safeguard: where its 100 candidates hold no positive, one
positive stands at rank 101. It leaks the answer into the candidates, so it is left out unless
asked for.
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
#: Candidates of a published hybrid list; what stands below was put there as a safeguard.
_SAFEGUARD_RANK = 101
_HYBRID = "reranking_hybrid"
_COLUMNS = ("query-id", "corpus-ids")
_EXPECTED = (
    "candidates have the columns query-id (an id, each once) and corpus-ids (a list of document "
    "ids, best first, each once), without nulls."
)
#: What is said of each count of `Findings`, in a sentence that is right for any number.
_NOTICES = {
    "unknown_queries": "queries not in this task: {count:,}, such as {unknown_query!r}; dropped.",
    "unknown_documents": (
        "entries for documents not in the corpus: {count:,}, such as {unknown_document!r}; dropped."
    ),
    "missing_queries": "queries of the task without any document: {count:,}; they score zero.",
    "repeated_documents": (
        "entries for a document that the list of its query holds already: {count:,}; the {repeats} "
        "one counts."
    ),
    "odd_ranks": (
        "lists with a rank given twice or against the scores: {count:,}; {decides} decide."
    ),
    "without_scores": "no scores; the ranks decide.",
}


@dataclass(frozen=True)
class RunSettings:
    """What `run:PATH` may say."""

    path: str = setting(identity="content")
    repeats: Repeats = "refuse"


@dataclass(frozen=True)
class RunFile:
    """A file that holds a ranking, and the tie order it is to be measured by."""

    path: Path
    ties: TieOrder = "trec"
    repeats: Repeats = "refuse"
    stored_as: str | None = None
    """The fingerprint in the record of a stored result; another one is damage."""

    def fingerprint(self) -> str:
        """sha256 of the content, so that a changed file is another system."""
        digest = sha256_of(self.path)
        if self.stored_as not in (None, digest):
            raise DamagedError(
                f"{self.path}: its checksum differs from the one in {_RECORD_FILE}. "
                "Evaluate the system again."
            )
        return digest

    def read(self) -> tuple[Run, Findings]:
        """The ranking as the file has it, and what is odd about its form."""
        self.fingerprint()
        run, oddities = read_run(self.path, repeats=self.repeats)
        repeats = self.repeats if oddities.repeated_documents else ""
        return run, Findings(**asdict(oddities), repeats=repeats)


def locate_run(text: str, repeats: Repeats = "refuse") -> RunFile:
    """Find what `run:TEXT` means: a run file, or the folder of a stored result.

    The run of a stored result is measured in the tie order that its record says.
    """
    if not text:
        raise UsageError("run: what to read is missing, as in run:PATH.")
    path = user_path(text)
    run = path / _RUN_FILE if path.is_dir() else path
    if not run.is_file():
        state = f"the folder holds no {_RUN_FILE}" if path.is_dir() else "no such file"
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


def fitted(run: Run, task: Task, findings: Findings, source: str) -> tuple[Run, Findings]:
    """The part of a ranking that a task knows; the findings say what was lost.

    Nothing in common fails. Ids are often small numbers that many tasks use, so both a query and
    its documents must be met; `source` names the ranking in the error.
    """
    queries = find_positions(run.query_ids, task.queries.ids)
    documents = find_positions(run.document_ids, task.corpus.document_ids)
    strange = documents[run.documents] < 0
    lost = strange & (queries[run.query_rows] >= 0)
    known = run.take(np.flatnonzero(~strange)).over(task.queries.ids, queries)
    fit = replace(
        known,
        document_ids=task.corpus.document_ids,
        documents=documents[known.documents].astype(np.int32),
    )
    fit, excluded = remove_excluded(fit, task.exclusions)
    if not len(fit.documents):
        raise DataError(
            f"{source}: none of its {len(run.documents):,} entries is for a query and a document "
            f"of {task.name}, so there is nothing to measure. Was the run made on another task?"
        )
    unknown = run.query_ids.filter(pa.array(queries < 0)).to_pylist()
    places = run.documents[lost]
    return fit, replace(
        findings,
        unknown_queries=len(unknown),
        unknown_query=unknown[0] if unknown else "",
        unknown_documents=len(places),
        unknown_document=run.document_ids[int(places[0])].as_py() if len(places) else "",
        missing_queries=int((fit.lengths == 0).sum()),
        excluded_documents=excluded,
    )


@dataclass(frozen=True)
class Findings(Oddities):
    """Counts of oddities; an example names the first of its kind."""

    unknown_queries: int = 0
    unknown_query: str = ""
    unknown_documents: int = 0
    unknown_document: str = ""
    missing_queries: int = 0
    excluded_documents: int = 0
    """Entries that were removed because their query excludes the document."""
    repeats: str = ""
    """Which of a document's entries counts, where one is repeated."""

    def facts(self) -> Mapping[str, object]:
        """Those that were found, for the record."""
        return {name: value for name, value in asdict(self).items() if value}

    def notices(self) -> list[str]:
        """A sentence for each, with what follows from it."""
        facts = self.facts()
        decides = "lines" if self.without_scores else "scores"
        return [
            sentence.format(count=facts[name], decides=decides, **facts)
            for name, sentence in _NOTICES.items()
            if name in facts
        ]

    def check_strict(self, source: str) -> None:
        """Fail where the ranking names something that is not there."""
        if self.unknown_queries or self.unknown_documents:
            raise DataError(
                f"{source}: {self.notices()[0].removesuffix('; dropped.')}.\n"
                "Was the run made on other data? Without --strict they are dropped and counted."
            )


@dataclass(frozen=True)
class CandidateSettings:
    """What `candidates:NAME` may say."""

    name: str
    safeguard: bool

    def __post_init__(self) -> None:
        """Refuse what cannot be the name of a folder beside the task's data."""
        if not re.fullmatch(r"[\w-][\w.-]{0,99}", self.name):
            raise UsageError(
                f"candidates:{self.name[:60]}: expected the name of a subset, as in "
                "candidates:bm25."
            )


@dataclass(frozen=True)
class Subset:
    """One candidate subset of one task, by the files that hold it."""

    name: str
    files: tuple[Path, ...]

    def fingerprint(self) -> str:
        """sha256 over the files' contents."""
        digests = b"".join(bytes.fromhex(sha256_of(file)) for file in self.files)
        return hashlib.sha256(digests).hexdigest()

    def read(self, *, safeguard: bool) -> Run:
        """The lists, with falling scores in place of the ones that were not published."""
        entries = [
            (query, document, -float(rank))
            for file in self.files
            for query, documents in _read(file)
            for rank, document in enumerate(documents, start=1)
        ]
        queries, documents, scores = zip(*entries, strict=True) if entries else ((), (), ())
        run = Run.from_columns(queries, documents, scores)
        guarded = self.name == _HYBRID and not safeguard
        return run.truncate(_SAFEGUARD_RANK - 1) if guarded else run

    def safeguards(self) -> Mapping[str, str]:
        """For each query that has one, the positive that was appended below the list."""
        if self.name != _HYBRID:
            return {}
        run = self.read(safeguard=True)
        places = np.flatnonzero(run.ranks >= _SAFEGUARD_RANK)
        queries = run.query_ids.take(pa.array(run.query_rows[places])).to_pylist()
        documents = run.document_ids.take(pa.array(run.documents[places])).to_pylist()
        return dict(zip(queries, documents, strict=True))


def find_subset(task: Task, name: str) -> Subset:
    """The subset of a task; the error says which there are."""
    files = tuple(split_files(task.source, name, split_of(task)))
    if files:
        return Subset(name, files)
    known = subset_names(task)
    hint = nearest(name, known) if known else "It has no candidate subsets; Nano tasks have them."
    raise MissingError(f"candidates {name!r}: {task.name} has no such subset. {hint}")


def subset_names(task: Task) -> list[str]:
    """The candidate subsets that lie beside a task's data."""
    return sorted(
        folder.name
        for folder in task.source.iterdir()
        if folder.is_dir() and folder.name not in NANO_CONFIGS
        if split_files(task.source, folder.name, split_of(task))
    )


def split_of(task: Task) -> str:
    """The split that a task of a Parquet folder is; of another layout, its name."""
    return task.split or task.name


def _read(file: Path) -> Iterator[tuple[str, list[str]]]:
    """Every query of a file with its documents, best first; whole numbers are ids, too."""
    with arrow_errors(file):
        table = pq.read_table(file)
    kinds = {column.name: column.type for column in table.schema}
    ids, lists = (kinds.get(column, pa.null()) for column in _COLUMNS)
    listed = pa.types.is_list(lists) or pa.types.is_large_list(lists)
    for kind in (ids, lists.value_type if listed else pa.null()):
        if kind not in (pa.string(), pa.large_string()) and not pa.types.is_integer(kind):
            held = ", ".join(f"{name} ({kind})" for name, kind in kinds.items())
            raise DataError(f"{file}: holds {held}; {_EXPECTED}")
    known = {None}
    rows = zip(*(table[column].to_pylist() for column in _COLUMNS), strict=True)
    for row, (query, documents) in enumerate(rows, start=1):
        if query in known or documents is None or len({None, *documents}) <= len(documents):
            what = "a null" if query is None or None in (documents or [None]) else "a repeated id"
            raise DataError(f"{file}, row {row} (query {query!r}): {what}; {_EXPECTED}")
        known.add(query)
        yield str(query), [str(document) for document in documents]
