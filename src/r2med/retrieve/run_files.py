"""Rankings made elsewhere as first stages: where they are, how they fit a task, what is odd.

A ranking is a TREC or Parquet file or the folder of a stored result. Fitted to a task it has the
task's queries, in its order, with its documents only. What is odd about it is counted and said,
never silently mended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import SEAL, unseal
from r2med.errors import DamagedError, DataError, MissingError, UsageError
from r2med.home import user_path
from r2med.runs import Run
from r2med.runs.files import Repeats, read_run
from r2med.runs.run import places_of
from r2med.settings import setting
from r2med.tasks.task import Task

_RUN_FILE = "run.parquet"
_RECORD_FILE = "result.json"


@dataclass(frozen=True)
class RunSettings:
    """What `run:PATH` may say."""

    path: str = setting(identity="content")
    repeats: Repeats = "refuse"

    def __post_init__(self) -> None:
        """Refuse no path."""
        if not self.path:
            raise UsageError("run: what to read is missing, as in run:PATH.")


@dataclass(frozen=True)
class RunFile:
    """A file that holds a ranking, and the tie order it is to be measured by."""

    path: Path
    ties: str = "trec"
    repeats: Repeats = "refuse"
    stored_as: str | None = None
    """The fingerprint in the record of a stored result; another one is damage."""

    def fingerprint(self) -> str:
        """sha256 of the content, so that a changed file is another system."""
        with self.path.open("rb") as handle:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
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
        return run, Findings(**asdict(oddities), repeats=self.repeats)


def locate_run(text: str, repeats: Repeats = "refuse") -> RunFile:
    """Find what `run:TEXT` means: a run file, or the folder of a stored result."""
    path = user_path(text)
    if path.is_dir():
        if not (path / _RUN_FILE).is_file():
            raise MissingError(
                f"run {text!r}: the folder holds no {_RUN_FILE}, expected the folder of a stored "
                "result (`r2med results --json` lists them) or a run file."
            )
        return _of_result(path, repeats)
    if not path.is_file():
        raise MissingError(
            f"run {text!r}: no such file, expected a TREC run file (plain or .gz), a Parquet "
            "file with query_id, document_id and score, or the folder of a stored result."
        )
    return RunFile(path, repeats=repeats)


def _of_result(folder: Path, repeats: Repeats) -> RunFile:
    """The run of a stored result, in the tie order that its record says."""
    record = folder / _RECORD_FILE
    if not record.is_file():
        return RunFile(folder / _RUN_FILE, repeats=repeats)
    try:
        text = record.read_text(encoding="utf-8")
        content = json.loads(text)
        if SEAL in content:
            content = unseal(text, record)
        ties, sums = content["system"]["ties"], content["files"]
        return RunFile(folder / _RUN_FILE, str(ties), repeats, str(sums[_RUN_FILE]))
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise DamagedError(f"{record}: not a readable result ({problem}).") from None


def fitted(run: Run, task: Task, findings: Findings, source: str) -> tuple[Run, Findings]:
    """The part of a ranking that a task knows; the findings say what was lost.

    Nothing in common fails. Ids are often small numbers that many tasks use, so both a query and
    its documents must be met; `source` names the ranking in the error.
    """
    queries = places_of(run.query_ids, task.queries.ids)
    documents = places_of(run.document_ids, task.corpus.document_ids)
    strange = documents[run.documents] < 0
    lost = strange & (queries[run.query_rows] >= 0)
    known = run.take(np.flatnonzero(~strange)).over(task.queries.ids, queries)
    fit = replace(
        known,
        document_ids=task.corpus.document_ids,
        documents=documents[known.documents].astype(np.int32),
    )
    if not len(fit.documents):
        raise DataError(
            f"{source}: none of its {len(run.documents):,} entries is for a query and a document "
            f"of {task.name}, so there is nothing to measure. Was the run made on another task?"
        )
    return fit, replace(
        findings,
        unknown_queries=int((queries < 0).sum()),
        unknown_query=_first(run.query_ids, queries < 0),
        unknown_documents=int(lost.sum()),
        unknown_document=_first(run.document_ids.take(pa.array(run.documents)), lost),
        missing_queries=int((fit.lengths == 0).sum()),
    )


def _first(names: pa.Array, chosen: NDArray[np.bool_]) -> str:
    places = np.flatnonzero(chosen)
    return str(names[int(places[0])].as_py()) if len(places) else ""


@dataclass(frozen=True)
class Findings:
    """Counts of oddities; an example names the first of its kind."""

    unknown_queries: int = 0
    unknown_query: str = ""
    unknown_documents: int = 0
    unknown_document: str = ""
    missing_queries: int = 0
    repeats: str = "refuse"
    repeated_documents: int = 0
    repeated_ranks: int = 0
    unsorted_queries: int = 0
    without_scores: bool = False

    def facts(self) -> Mapping[str, object]:
        """Those that were found, for the record."""
        facts = {name: value for name, value in asdict(self).items() if value}
        if not self.repeated_documents:
            facts.pop("repeats")
        return facts

    def notices(self) -> list[str]:
        """A sentence for each, with what follows from it."""
        told = [
            (
                self.unknown_queries,
                f"{_many(self.unknown_queries, 'query', 'queries')} not in this task, dropped; "
                f"the first is {self.unknown_query!r}.",
            ),
            (
                self.unknown_documents,
                f"{_many(self.unknown_documents, 'entry', 'entries')} for documents that are not "
                f"in the corpus, dropped; the first is {self.unknown_document!r}.",
            ),
            (
                self.missing_queries,
                f"{_many(self.missing_queries, 'query', 'queries')} of the task without any "
                "document; they score zero.",
            ),
            (
                self.repeated_documents,
                f"{_many(self.repeated_documents, 'entry', 'entries')} for a document that the "
                f"list of its query holds already; the {self.repeats} one counts.",
            ),
            (
                self.unsorted_queries,
                f"{_many(self.unsorted_queries, 'list', 'lists')} whose ranks contradict the "
                "scores; scores decide, as in trec_eval.",
            ),
            (
                self.repeated_ranks,
                f"{_many(self.repeated_ranks, 'list', 'lists')} with a rank given twice; "
                f"{'lines' if self.without_scores else 'scores'} decide.",
            ),
            (int(self.without_scores), "no scores; the ranks decide."),
        ]
        return [sentence for count, sentence in told if count]

    def check_strict(self, source: str) -> None:
        """Fail where the ranking names something that is not there."""
        for count, what, example in (
            (self.unknown_queries, "queries that are not in this task", self.unknown_query),
            (
                self.unknown_documents,
                "entries for documents that are not in the corpus",
                self.unknown_document,
            ),
        ):
            if count:
                raise DataError(
                    f"{source}: {count:,} {what}; the first is {example!r}.\n"
                    "Was the run made on other data? Without --strict they are dropped and counted."
                )


def _many(count: int, one: str, more: str) -> str:
    return f"1 {one}" if count == 1 else f"{count:,} {more}"
