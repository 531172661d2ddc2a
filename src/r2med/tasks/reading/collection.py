"""Read a task's corpus, queries and judgements according to its layout, and check them.

Problems that do not stop loading but matter to a reader of the scores become notices.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError, plural
from r2med.storage import release_memory
from r2med.tasks.reading import fields
from r2med.tasks.reading.exclusions import (
    apply_exclusions_file,
    normalize_exclusions,
    remove_excluded_judgements,
)
from r2med.tasks.reading.fields import JUDGEMENT, Field, ReportProblem, Rows, raise_problem
from r2med.tasks.reading.jsonl import decode_line, read_jsonl, read_lines, whole_number
from r2med.tasks.reading.lines import lines
from r2med.tasks.reading.source import PARTS, TaskFiles
from r2med.tasks.task import Corpus, Judgements, Queries, Task

#: Only texts that begin with the same characters are compared in full.
_COMPARED_CHARACTERS = 64
#: Texts that are compared at once.
_COMPARED_TEXTS = 1 << 18
_JSONL: dict[tuple[str, str], Sequence[Field]] = {
    ("r2med", "corpus"): fields.DOCUMENT,
    ("r2med", "queries"): fields.QUERY,
    ("beir", "corpus"): fields.BEIR_DOCUMENT,
    ("beir", "queries"): fields.BEIR_QUERY,
}
_PARQUET: dict[str, Sequence[Sequence[Field]]] = {
    "corpus": (fields.BEIR_QUERY[:2], fields.DOCUMENT),
    "queries": (fields.BEIR_QUERY, fields.QUERY),
    "judgements": (fields.BEIR_JUDGEMENT, fields.JUDGEMENT),
}
QUERY_NAMES = {"query-id", "query_id", "q_id", "qid", "query"}
DOCUMENT_NAMES = {
    *("corpus-id", "corpus_id", "p_id", "pid", "doc-id", "doc_id", "docid", "docno", "document_id"),
    *("document", "doc", "passage_id"),
}
SCORE_NAMES = {"score", "relevance", "rel", "label", "grade"}
_OBJECT = re.compile(rb'\s*\{\s*["}]')
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_HINT = (
    "A line is `query 0 document score` (TREC), or follows a header such as "
    "`query-id corpus-id score`; see docs/data.md."
)


def read_task(source: TaskFiles, *, strict: bool = False) -> Task:
    """Read and check a task; errors name the file, the line or row, and the field.

    With `strict`, judgements of unknown queries or documents are errors.
    """
    parts = [read_part(source, part) for part in PARTS]
    for rows, part in zip(parts, PARTS, strict=True):
        if not len(rows):
            records = "documents" if part == "corpus" else part
            raise DataError(f"{source.parts[part][0]} holds no {records}.")
    return _combine_parts(source, *parts, strict=strict)


def read_part(source: TaskFiles, part: str, report: ReportProblem = raise_problem) -> Rows:
    """Read the documents, queries or judgements of a task according to its layout."""
    files = source.parts[part]
    if source.layout == "parquet":
        from r2med.tasks.reading.parquet import read_parquet

        return read_parquet(files, *_PARQUET[part], report=report)
    if part == "judgements":
        return read_judgements(files[0], report)
    rows = read_jsonl(files[0], _JSONL[source.layout, part], report)
    if "title" not in rows.columns:
        return rows
    # Title, a space and the text, as BEIR's own tools join them; either may be empty.
    title, text = rows.columns["title"], rows.columns["text"]
    is_single = pc.or_(pc.is_null(title), pc.equal(text, ""))
    separators = pc.if_else(is_single, "", " ").cast(pa.large_string())
    empty = pa.scalar("", pa.large_string())
    joined = pc.binary_join_element_wise(pc.fill_null(title, ""), separators, text, empty)
    return replace(rows, columns={"id": rows.columns["id"], "text": joined})


def read_judgements(path: Path, report: ReportProblem = raise_problem) -> Rows:
    """Read query id, document id and score of every judgement from JSON lines or text.

    The content decides on the format, because qrels.txt occurs in both. In text, the first line
    decides on the columns: a header names them; without a header, 3 columns are query, document and
    score, and 4 are TREC qrels. If a header names no score, every row is positive.
    """
    first = next((line for _, line in lines(path)), b"")
    if ".jsonl" in path.suffixes or _OBJECT.match(first):
        return read_jsonl(path, JUDGEMENT, report)
    tabs = "\t" if b"\t" in first.strip() else None
    cells = [cell.strip().lower() for cell in first.decode(errors="replace").split(tabs)]
    indexes: dict[str, int | None] = {
        field.name: next((index for index, cell in enumerate(cells) if cell in names), None)
        for field, names in zip(JUDGEMENT, (QUERY_NAMES, DOCUMENT_NAMES, SCORE_NAMES), strict=True)
    }
    has_header = indexes["q_id"] is not None and indexes["p_id"] is not None
    width = len(cells) if has_header or len(cells) == 3 else 4
    if not has_header:
        indexes = {"q_id": 0, "p_id": width - 2, "score": width - 1}

    def parse(line: bytes, location: str, hint: str) -> dict[str, object]:
        cells = [cell.strip() for cell in decode_line(line, location).split(tabs)]
        if len(cells) != width:
            fields = plural(len(cells), "field")
            raise DataError(f"{location}: {fields}, expected {width}.\n{hint}")
        record: dict[str, object] = {
            name: cells[index] for name, index in indexes.items() if index is not None
        }
        score = str(record.get("score", ""))
        if _NUMBER.fullmatch(score):
            record["score"] = float(score)
        return record

    return read_lines(path, JUDGEMENT, parse, _HINT, report, skipped=1 if has_header else 0)


def parse_score(cell: str) -> int | None:
    """Return the whole number in a cell; None if it is not one."""
    return whole_number(float(cell)) if _NUMBER.fullmatch(cell.strip()) else None


def _combine_parts(
    source: TaskFiles, documents: Rows, queries: Rows, judgements: Rows, *, strict: bool
) -> Task:
    """Return the task that the three parts form, checked against each other.

    In the BEIR layout, the queries of all splits are in one file; queries without judgements are
    left out.
    """
    only_judged = source.layout == "beir"
    corpus = Corpus(documents.columns["id"], documents.columns["text"])
    _refuse_contradictions(queries, judgements)
    first_rows = _first_rows(judgements, "query", "document")
    distinct = np.flatnonzero(first_rows == np.arange(len(first_rows)))
    of_unknown_query = find_unknown(judgements, "query", queries.columns["id"], distinct)
    usable = np.setdiff1d(distinct, of_unknown_query, assume_unique=True)
    if not len(usable):
        raise DataError(f"{judgements.locate(0)}: no judgement is for a query of this task.")
    of_unknown_document = find_unknown(judgements, "document", corpus.document_ids, usable)
    judged = Judgements(
        query_ids=judgements.columns["query"].take(pa.array(usable)),
        document_ids=judgements.columns["document"].take(pa.array(usable)),
        scores=judgements.columns["score"].to_numpy()[usable],
    )
    task_queries = Queries(*(queries.columns[field.column] for field in fields.QUERY))
    task_queries = normalize_exclusions(task_queries, queries.locate)
    exclusion_notices: list[str] = []
    if source.exclusions is not None:
        task_queries, unknown = apply_exclusions_file(task_queries, source.exclusions)
        exclusion_notices += _count_notice(
            unknown, "query", f"in {source.exclusions} unknown to the task, ignored."
        )
    is_judged = pc.is_in(task_queries.ids, value_set=judged.query_ids)
    if only_judged:
        task_queries = task_queries.filter(is_judged)
    unknown_notices = (
        *_unknown_notice(judgements, "query", of_unknown_query, "dropped"),
        *_unknown_notice(
            judgements,
            "document",
            of_unknown_document,
            "kept: trec_eval counts such documents too, though none can be found",
        ),
    )
    if strict and unknown_notices:
        raise DataError(
            f"{unknown_notices[0]}\nLeave --strict (strict=True) out to go on with a notice."
        )
    repaired = documents.repaired + queries.repaired
    repeated = len(judgements) - len(distinct)
    left_out = " in this split, left out of the task" if only_judged else ", left out of all means"
    notices = (
        *_text_notices(corpus),
        *_count_notice(repaired, "text", "with half a surrogate pair, replaced by U+FFFD."),
        *_count_notice(_count_empty(task_queries.texts), "query", "without text."),
        *_count_notice(is_judged.false_count, "query", f"without judgements{left_out}."),
        *unknown_notices,
        *_count_notice(
            repeated, "judgement", "given more than once with the same score, counted once."
        ),
    )
    task = Task(
        source.folder.name,
        None,
        corpus,
        task_queries,
        judged,
        source.folder,
        source.split,
        notices=(*notices, *exclusion_notices),
    )
    if not task.exclusions:
        return task
    excluded = sum(map(len, task.exclusions.values()))
    notice = (
        f"{plural(len(task.exclusions), 'query')} with {plural(excluded, 'excluded document')}, "
        "removed from every ranked list before measuring."
    )
    return replace(
        task,
        judgements=remove_excluded_judgements(judged, task.exclusions),
        notices=(*task.notices, notice),
    )


def _refuse_contradictions(queries: Rows, judgements: Rows) -> None:
    for row, problem in repeated_ids(queries):
        raise DataError(
            f'{queries.locate(row)}: query id "{queries.columns["id"][row]}" {problem}.\n'
            "Every query needs a distinct id."
        )
    for row, problem in contradictions(judgements):
        query, document = (judgements.columns[name][row] for name in ("query", "document"))
        raise DataError(
            f'{judgements.locate(row)}: query "{query}" and document "{document}" are {problem}.\n'
            "Keep one of the two judgements."
        )


def _text_notices(corpus: Corpus) -> Iterator[str]:
    rows_per_id = np.bincount(corpus.codes)
    repeated_ids = rows_per_id[rows_per_id > 1]
    if len(repeated_ids):
        yield (
            f"{repeated_ids.sum():,} document rows share {plural(len(repeated_ids), 'id')}: "
            "BM25 indexes every row, dense retrieval keeps the last one of an id."
        )
    repeated_texts = count_repeated(corpus.texts)
    if repeated_texts:
        yield f"{repeated_texts:,} of {len(corpus):,} documents repeat the text of an earlier one."
    yield from _count_notice(_count_empty(corpus.texts), "document", "without text.")


def _unknown_notice(
    judgements: Rows, column: str, rows: NDArray[np.int64], treatment: str
) -> list[str]:
    """Return a notice of how judgements with unknown ids are treated, with the first of them."""
    if not len(rows):
        return []
    row = int(rows[0])
    first = f'{judgements.locate(row)}: {column} "{judgements.columns[column][row]}"'
    return _count_notice(
        len(rows), "judgement", f"with an unknown {column} id, {treatment}; the first is {first}."
    )


def _count_notice(count: int, noun: str, description: str) -> list[str]:
    return [f"{plural(count, noun)} {description}"] if count else []


def repeated_ids(rows: Rows) -> Iterator[tuple[int, str]]:
    """Yield each row that repeats the id of an earlier row, with a description of the problem."""
    first = _first_rows(rows, "id")
    for row in np.flatnonzero(first != np.arange(len(first))).tolist():
        yield row, f"was already used in {rows.locate(int(first[row]))}"


def contradictions(judgements: Rows) -> Iterator[tuple[int, str]]:
    """Yield each row that judges a pair differently than an earlier row, with a description."""
    first = _first_rows(judgements, "query", "document")
    scores = judgements.columns["score"].to_numpy()
    for row in np.flatnonzero(scores != scores[first]).tolist():
        earlier = int(first[row])
        before = f"{scores[earlier]} in {judgements.locate(earlier)}"
        yield row, f"judged {scores[row]} here, but {before}"


def _first_rows(rows: Rows, *names: str) -> NDArray[np.int64]:
    """Return for every row the first row that has the same values in the columns `names`."""
    keys = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        encoded = rows.columns[name].dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        keys = keys * len(encoded.dictionary) + codes
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def find_unknown(
    judgements: Rows, column: str, ids: pa.Array, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return those of `rows` whose id in a column is not one of `ids`."""
    values = judgements.columns[column].take(pa.array(rows))
    is_unknown = pc.invert(pc.is_in(values, value_set=ids)).to_numpy(zero_copy_only=False)
    return np.asarray(rows[is_unknown])


def _count_empty(texts: pa.Array) -> int:
    return int(pc.sum(pc.equal(texts, "")).as_py() or 0)


def count_repeated(texts: pa.LargeStringArray) -> int:
    """Return how many texts repeat an earlier text.

    Only texts of the same length that begin alike are compared in full.
    """
    beginnings = [
        pc.utf8_slice_codeunits(part, 0, _COMPARED_CHARACTERS) for part in _parts_of(texts)
    ]
    encoded = pa.chunked_array(beginnings, pa.large_string()).combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    keys = codes * (int(lengths.max(initial=0)) + 1) + lengths
    _, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    is_candidate = counts[inverse] > 1
    candidates = [
        part.filter(pa.array(chosen))
        for part, chosen in zip(_parts_of(texts), _parts_of(is_candidate), strict=True)
    ]
    compared = pa.chunked_array(candidates, pa.large_string())
    return len(compared) - len(compared.unique())


def _parts_of(column: Any) -> Iterator[Any]:
    """Yield consecutive parts of a column, releasing the memory of parts of a mapped file."""
    for start in range(0, len(column), _COMPARED_TEXTS):
        yield column[start : start + _COMPARED_TEXTS]
        if start:
            release_memory()
