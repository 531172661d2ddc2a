"""Read a ranking from a file of any form: TREC, Parquet, or the folder of a stored result."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError
from r2med.home import user_path
from r2med.retrieve.given.findings import Findings
from r2med.runs import Run
from r2med.runs.parquet import read_parquet
from r2med.runs.trec import read_lines, run_of_lines
from r2med.settings import setting

_RUN_FILE = "run.parquet"
_RECORD_FILE = "result.json"


@dataclass(frozen=True)
class RunSettings:
    """What `run:PATH` may say."""

    path: str = setting(identity="content")

    def __post_init__(self) -> None:
        """Refuse no path."""
        if not self.path:
            raise UsageError("run: what to read is missing, as in run:PATH.")


@dataclass(frozen=True)
class RunFile:
    """A file that holds a ranking, and the tie order it is to be measured by."""

    path: Path
    ties: str = "trec"

    def fingerprint(self) -> str:
        """sha256 of the content, so that a changed file is another system."""
        with self.path.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    def read(self) -> tuple[Run, Findings]:
        """The ranking as the file has it, and what is odd about its form."""
        if self.path.suffix == ".parquet":
            return _read_parquet(self.path)
        return _read_trec(self.path)


def locate_run(text: str) -> RunFile:
    """Find what `run:TEXT` means: a run file, or the folder of a stored result."""
    path = user_path(text)
    if path.is_dir():
        if not (path / _RUN_FILE).is_file():
            raise MissingError(
                f"run {text!r}: the folder holds no {_RUN_FILE}, expected the folder of a stored "
                "result (`r2med results --json` lists them) or a run file."
            )
        return RunFile(path / _RUN_FILE, _stored_ties(path / _RECORD_FILE))
    if not path.is_file():
        raise MissingError(
            f"run {text!r}: no such file, expected a TREC run file (plain or .gz), a Parquet "
            "file with query_id, document_id and score, or the folder of a stored result."
        )
    return RunFile(path)


def _stored_ties(record: Path) -> str:
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["system"]["ties"])
    except (OSError, ValueError, KeyError, TypeError):
        return "trec"


def _read_trec(path: Path) -> tuple[Run, Findings]:
    lines = read_lines(path)
    numbered = zip(lines.ranks, lines.numbers, strict=True)
    ranks = [_rank(text, path, number) for text, number in numbered]
    queries = pa.array(lines.queries).dictionary_encode().indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((ranks, queries))
    queries, places = queries[order], np.array(ranks, dtype=np.int64)[order]
    same_list = queries[1:] == queries[:-1]
    repeated = _lists(queries, same_list & (places[1:] == places[:-1]))
    if lines.scores is None:
        findings = Findings(repeated_ranks=repeated, without_scores=True)
        return run_of_lines(lines, [-float(rank) for rank in ranks], path), findings
    scores = np.array(lines.scores, dtype=np.float32)[order]
    unsorted = _lists(queries, same_list & (scores[1:] > scores[:-1]))
    findings = Findings(repeated_ranks=repeated, unsorted_queries=unsorted)
    return run_of_lines(lines, lines.scores, path), findings


def _lists(queries: NDArray[np.int32], odd: NDArray[np.bool_]) -> int:
    """How many queries have a line that is odd after the one before it."""
    return len(np.unique(queries[1:][odd]))


def _rank(text: str, path: Path, number: int) -> int:
    try:
        return int(text)
    except ValueError:
        raise DataError(
            f"{path}, line {number}: rank {text!r} is not a whole number.\n"
            "Each line is `query Q0 document rank score tag`, separated by spaces or tabs."
        ) from None


def _read_parquet(path: Path) -> tuple[Run, Findings]:
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowInvalid) as problem:
        raise DataError(f"{path}: not a readable Parquet file ({problem}).") from problem
    if "score" not in schema.names and "rank" in schema.names:
        table = pq.read_table(path).sort_by([("rank", "ascending")])
        scores = -table["rank"].to_numpy().astype(np.float64)
        run = Run.from_columns(table["query_id"], table["document_id"], scores)
        return _checked(run, path), Findings(without_scores=True)
    run = _checked(read_parquet(path), path)
    falls = np.diff(run.scores.astype(np.float32)) > 0
    within = np.diff(run.query_rows) == 0
    unsorted = len(np.unique(run.query_rows[1:][falls & within]))
    return run, Findings(unsorted_queries=unsorted)


def _checked(run: Run, path: Path) -> Run:
    bad = np.flatnonzero(~np.isfinite(run.scores))
    if len(bad):
        query, document = _named(run, int(bad[0]))
        raise DataError(
            f"{path}: the score of document {document!r} for query {query!r} is missing or not a "
            "finite number."
        )
    keys = run.query_rows * len(run.document_ids) + run.documents
    _, first = np.unique(keys, return_index=True)
    if len(first) < len(keys):
        repeated = int(np.setdiff1d(np.arange(len(keys)), first)[0])
        query, document = _named(run, repeated)
        raise DataError(
            f"{path}: document {document!r} appears twice for query {query!r}; "
            "a ranking holds each document once."
        )
    return run


def _named(run: Run, entry: int) -> tuple[str, str]:
    query = run.query_ids[int(run.query_rows[entry])].as_py()
    return query, run.document_ids[int(run.documents[entry])].as_py()
