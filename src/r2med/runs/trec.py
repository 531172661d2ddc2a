"""TREC run files: `query Q0 document rank score tag`, one line an entry, whitespace between."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.atomic import atomic_file
from r2med.errors import DataError, MissingError
from r2med.runs.run import Run

_FORM = "Each line is `query Q0 document rank score tag`, separated by spaces or tabs."


@dataclass(frozen=True, eq=False)
class Lines:
    """A run file as it stands: parallel columns in file order, nothing judged yet."""

    numbers: list[int]
    queries: list[str]
    documents: list[str]
    ranks: list[str]
    scores: list[float] | None
    """None where no line has a score (`query Q0 document rank`)."""


def read_trec(path: Path) -> Run:
    """Read a run; each query's lines are ordered by score (float32), then by line.

    As in trec_eval the rank column is not trusted: scores decide.
    """
    lines = read_lines(path)
    if lines.scores is None:
        raise DataError(f"{path}, line {lines.numbers[0]}: 4 fields, expected 6.\n{_FORM}")
    return run_of_lines(lines, lines.scores, path)


def read_lines(path: Path) -> Lines:
    """The fields of every line; a line of another form, or one score that is missing, fails."""
    lines = Lines([], [], [], [], None)
    scores: list[float | None] = []
    for number, line in _numbered_lines(path):
        fields = line.split()
        if len(fields) not in (4, 5, 6):
            raise DataError(f"{path}, line {number}: {len(fields)} fields, expected 6.\n{_FORM}")
        scores.append(_score(fields[4], path, number) if len(fields) > 4 else None)
        lines.numbers.append(number)
        lines.queries.append(fields[0])
        lines.documents.append(fields[2])
        lines.ranks.append(fields[3])
    if not lines.queries:
        raise DataError(f"{path}: the file holds no run.\n{_FORM}")
    known = [score for score in scores if score is not None]
    if known and len(known) < len(scores):
        raise DataError(
            f"{path}, line {lines.numbers[scores.index(None)]}: the score is missing, though "
            f"other lines have one.\n{_FORM}"
        )
    return replace(lines, scores=known or None)


def run_of_lines(lines: Lines, scores: list[float], path: Path) -> Run:
    """The run that the lines are, ordered by score; a document twice in a list is an error."""
    run = Run.from_columns(lines.queries, lines.documents, scores)
    _refuse_repeats(run, np.array(lines.numbers), np.array(lines.queries), path)
    return _by_score(run)


def write_trec(run: Run, path: Path, *, tag: str) -> None:
    """Write a run file, gzipped when the name ends in .gz."""
    _refuse_spaces(pa.array([tag]), "tag")
    _refuse_spaces(run.query_ids, "query id")
    _refuse_spaces(run.document_ids.take(pa.array(np.unique(run.documents))), "document id")
    table = run.to_table()
    fields = [table["query_id"], "Q0", table["document_id"], table["rank"], table["score"], tag]
    texts = [field if isinstance(field, str) else field.cast("string") for field in fields]
    lines = pc.binary_join_element_wise(*texts, " ").combine_chunks().to_pylist()
    data = "".join(f"{line}\n" for line in lines).encode()
    with atomic_file(path) as draft:
        draft.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def _refuse_spaces(names: pa.Array, what: str) -> None:
    spaced = names.filter(pc.match_substring_regex(names, r"\s|^$"))
    if len(spaced):
        raise DataError(
            f"{what} {spaced[0].as_py()!r}: TREC run files separate fields by spaces, so ids and "
            "tags must not hold any; write Parquet instead (`Run.to_parquet`)."
        )


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    except FileNotFoundError:
        raise MissingError(f"{path}: no such run file.") from None
    except (OSError, EOFError, UnicodeDecodeError) as problem:
        raise DataError(f"{path}: cannot be read as a text file ({problem}).") from problem
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line


def _score(text: str, path: Path, number: int) -> float:
    try:
        score = float(text)
    except ValueError:
        raise DataError(
            f"{path}, line {number}: score {text!r} is not a number.\n{_FORM}"
        ) from None
    if not np.isfinite(score):
        raise DataError(f"{path}, line {number}: score {text!r} is not a finite number.")
    return score


def _refuse_repeats(
    run: Run, lines: NDArray[np.int64], queries: NDArray[np.str_], path: Path
) -> None:
    keys = run.query_rows * len(run.document_ids) + run.documents
    _, first = np.unique(keys, return_index=True)
    if len(first) == len(keys):
        return
    repeated = int(np.setdiff1d(np.arange(len(keys)), first)[0])
    query = run.query_ids[int(run.query_rows[repeated])].as_py()
    document = run.document_ids[int(run.documents[repeated])].as_py()
    line = lines[np.flatnonzero(queries == query)[run.ranks[repeated] - 1]]
    raise DataError(
        f"{path}, line {line}: document {document!r} appears twice for query {query!r}; "
        "a ranking holds each document once."
    )


def _by_score(run: Run) -> Run:
    order = np.lexsort((-run.scores.astype(np.float32), run.query_rows))
    return Run(
        query_ids=run.query_ids,
        document_ids=run.document_ids,
        offsets=run.offsets,
        documents=run.documents[order],
        scores=run.scores[order],
    )
