"""Corpus, queries and judgements put together: read in the way of their layout, then checked.

What does not stop a load but matters to a reader of the scores becomes a notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError, plural
from r2med.tasks.reading import fields
from r2med.tasks.reading.fields import JUDGEMENT, Complain, Field, Rows, stop
from r2med.tasks.reading.jsonl import decoded, read_jsonl, read_lines, whole_number
from r2med.tasks.reading.lines import lines
from r2med.tasks.reading.source import PARTS, Source
from r2med.tasks.task import Corpus, Judgements, Queries, Task

#: Letters by which texts are told apart before they are compared as a whole.
_COMPARED = 64
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


def read_task(source: Source, *, strict: bool = False) -> Task:
    """The task in its files, checked; every error names file, line or row, and field.

    `strict` makes judgements for something that is not there an error.
    """
    parts = [read_part(source, part) for part in PARTS]
    for rows, part in zip(parts, PARTS, strict=True):
        if not len(rows):
            what = "documents" if part == "corpus" else part
            raise DataError(f"{source.parts[part][0]} holds no {what}.")
    return _checked(source, *parts, strict=strict)


def read_part(source: Source, part: str, complain: Complain = stop) -> Rows:
    """The documents, queries or judgements of a task, each in the way of its layout."""
    files = source.parts[part]
    if source.layout == "parquet":
        from r2med.tasks.reading.parquet import read_parquet

        return read_parquet(files, *_PARQUET[part], complain=complain)
    if part == "judgements":
        return read_judgements(files[0], complain)
    rows = read_jsonl(files[0], _JSONL[source.layout, part], complain)
    if "title" not in rows.columns:
        return rows
    # Title, a space and the text, as BEIR's own tools join them; either may be empty.
    title, text = rows.columns["title"], rows.columns["text"]
    alone = pc.or_(pc.is_null(title), pc.equal(text, ""))
    gaps = pc.if_else(alone, "", " ").cast(pa.large_string())
    nothing = pa.scalar("", pa.large_string())
    joined = pc.binary_join_element_wise(pc.fill_null(title, ""), gaps, text, nothing)
    return replace(rows, columns={"id": rows.columns["id"], "text": joined})


def read_judgements(path: Path, complain: Complain = stop) -> Rows:
    """Query id, document id and score of every judgement, be it JSON or text.

    A text file may hold either: qrels.txt is found in both forms. Of text the first line says how
    the others look; without a column for the score, every row is positive.
    """
    first = next((line for _, line in lines(path)), b"")
    if ".jsonl" in path.suffixes or _OBJECT.match(first):
        return read_jsonl(path, JUDGEMENT, complain)
    tabs = "\t" if b"\t" in first.strip() else None
    cells = [cell.strip().lower() for cell in first.decode(errors="replace").split(tabs)]
    named = {
        field.name: next((at for at, cell in enumerate(cells) if cell in names), None)
        for field, names in zip(JUDGEMENT, (QUERY_NAMES, DOCUMENT_NAMES, SCORE_NAMES), strict=True)
    }
    header = named["q_id"] is not None and named["p_id"] is not None
    width = len(cells) if header or len(cells) == 3 else 4
    places = named if header else {"q_id": 0, "p_id": width - 2, "score": width - 1}

    def parse(line: bytes, where: str, hint: str) -> dict[str, object]:
        cells = [cell.strip() for cell in decoded(line, where).split(tabs)]
        if len(cells) != width:
            raise DataError(f"{where}: {plural(len(cells), 'field')}, expected {width}.\n{hint}")
        record: dict[str, object] = {n: cells[at] for n, at in places.items() if at is not None}
        if _NUMBER.fullmatch(score := str(record.get("score", ""))):
            record["score"] = float(score)
        return record

    return read_lines(path, JUDGEMENT, parse, _HINT, complain, skipped=int(header))


def score_of(cell: str) -> int | None:
    """The whole number that a cell holds, or None."""
    return whole_number(float(cell)) if _NUMBER.fullmatch(cell.strip()) else None


def _checked(
    source: Source, documents: Rows, queries: Rows, judgements: Rows, *, strict: bool
) -> Task:
    """Check the three against each other; BEIR has queries of other splits, which are left out."""
    only_judged = source.layout == "beir"
    corpus = Corpus(documents.columns["id"], documents.columns["text"])
    for row, problem in repeated_ids(queries):
        raise DataError(
            f'{queries.where(row)}: query id "{queries.columns["id"][row]}" {problem}.\n'
            "Every query needs an id of its own."
        )
    for row, problem in contradictions(judgements):
        query, document = (judgements.columns[name][row] for name in ("query", "document"))
        raise DataError(
            f'{judgements.where(row)}: query "{query}" and document "{document}" are {problem}.\n'
            "Keep one of the two judgements."
        )
    first = np.unique(_first_rows(judgements, "query", "document"))
    repeated = len(judgements) - len(first)
    strange = unknown(judgements, "query", queries.columns["id"], first)
    kept = np.setdiff1d(first, strange)
    if not len(kept):
        raise DataError(f"{judgements.where(0)}: no judgement is for a query of this task.")
    missing = unknown(judgements, "document", corpus.document_ids, kept)
    judged = Judgements(
        query_ids=judgements.columns["query"].take(pa.array(kept)),
        document_ids=judgements.columns["document"].take(pa.array(kept)),
        scores=judgements.columns["score"].to_numpy()[kept],
    )
    asked = Queries(*(queries.columns[field.column] for field in fields.QUERY))
    known = pc.is_in(asked.ids, value_set=judged.query_ids)
    asked = asked.filter(known) if only_judged else asked
    kept_why = "kept: trec_eval counts such documents too, though none can be found"
    strays = (
        *_stray(judgements, "query", strange, "dropped"),
        *_stray(judgements, "document", missing, kept_why),
    )
    for stray in strays if strict else ():
        raise DataError(f"{stray}\nLeave --strict (strict=True) out to go on with a notice.")
    repaired = documents.repaired + queries.repaired
    left_out = " in this split, left out of the task" if only_judged else ", left out of all means"
    notices = (
        *_text_notices(corpus),
        *_counted(repaired, "text", "with half a surrogate pair, replaced by U+FFFD."),
        *_counted(_count_empty(asked.texts), "query", "without text."),
        *_counted(known.false_count, "query", f"without judgements{left_out}."),
        *strays,
        *_counted(repeated, "judgement", "given more than once with the same score, counted once."),
    )
    place = (source.folder, source.split)
    return Task(source.folder.name, None, corpus, asked, judged, *place, notices=notices)


def _text_notices(corpus: Corpus) -> Iterator[str]:
    rows = np.bincount(corpus.codes)
    shared, copies = rows[rows > 1], count_repeated(corpus.texts)
    if len(shared):
        yield (
            f"{shared.sum():,} document rows share {plural(len(shared), 'id')}: "
            "BM25 indexes every row, dense retrieval keeps the last one of an id."
        )
    if copies:
        yield f"{copies:,} of {len(corpus):,} documents repeat the text of an earlier one."
    yield from _counted(_count_empty(corpus.texts), "document", "without text.")


def _stray(judgements: Rows, column: str, rows: NDArray[np.int64], fate: str) -> list[str]:
    """What becomes of judgements for something that is not there, with the first of them."""
    if not len(rows):
        return []
    row = int(rows[0])
    first = f'{judgements.where(row)}: {column} "{judgements.columns[column][row]}"'
    return _counted(
        len(rows), "judgement", f"with an unknown {column} id, {fate}; the first is {first}."
    )


def _counted(count: int, noun: str, rest: str) -> list[str]:
    return [f"{plural(count, noun)} {rest}"] if count else []


def repeated_ids(rows: Rows) -> Iterator[tuple[int, str]]:
    """Rows whose id an earlier one has, each with what is wrong in words."""
    first = _first_rows(rows, "id")
    for row in np.flatnonzero(first != np.arange(len(first))).tolist():
        yield row, f"was already used in {rows.where(int(first[row]))}"


def contradictions(judgements: Rows) -> Iterator[tuple[int, str]]:
    """Rows that judge a pair as an earlier one does not, each with what is wrong in words."""
    first, scores = _first_rows(judgements, "query", "document"), judgements.columns["score"]
    values = scores.to_numpy()
    for row in np.flatnonzero(values != values[first]).tolist():
        earlier = int(first[row])
        before = f"{values[earlier]} in {judgements.where(earlier)}"
        yield row, f"judged {values[row]} here, but {before}"


def _first_rows(rows: Rows, *names: str) -> NDArray[np.int64]:
    """For every row, the first one that has the same values in these columns."""
    keys = np.zeros(len(rows), dtype=np.int64)
    for name in names:
        encoded = rows.columns[name].dictionary_encode()
        codes = encoded.indices.to_numpy(zero_copy_only=False)
        keys = keys * len(encoded.dictionary) + codes
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return np.asarray(first[inverse], dtype=np.int64)


def unknown(
    judgements: Rows, column: str, known: pa.Array, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Those of the rows whose id is not among the known ones."""
    values = judgements.columns[column].take(pa.array(rows))
    strange = pc.invert(pc.is_in(values, value_set=known)).to_numpy(zero_copy_only=False)
    return np.asarray(rows[strange])


def _count_empty(texts: pa.Array) -> int:
    return int(pc.sum(pc.equal(texts, "")).as_py() or 0)


def count_repeated(texts: pa.LargeStringArray) -> int:
    """How many texts repeat an earlier one; only those that begin alike are compared as a whole."""
    heads = pc.utf8_slice_codeunits(texts, 0, _COMPARED).dictionary_encode()
    codes = heads.indices.to_numpy(zero_copy_only=False)
    alike = texts.filter(pa.array(np.bincount(codes)[codes] > 1))
    return len(alike) - len(alike.unique())
