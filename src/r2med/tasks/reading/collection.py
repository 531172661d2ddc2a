"""Corpus, queries and judgements put together: read in the way of their layout, then checked.

What does not stop a load but matters to a reader of the scores becomes a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.tasks.reading import fields
from r2med.tasks.reading.fields import Complain, Field, Rows, many, stop
from r2med.tasks.reading.jsonl import read_jsonl
from r2med.tasks.reading.judgements import read_judgements
from r2med.tasks.reading.source import Source
from r2med.tasks.task import Corpus, Judgements, Queries

#: Letters by which texts are told apart before they are compared as a whole.
_COMPARED = 64
#: The parts of a task, as `Source` names their files.
PARTS = ("corpus", "queries", "judgements")
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


@dataclass(frozen=True, eq=False)
class Collection:
    """The data of a task, whatever it is called, and what is odd about it."""

    corpus: Corpus
    queries: Queries
    judgements: Judgements
    notices: tuple[str, ...] = ()
    """Oddities that do not stop a load, each with what follows from it."""
    strays: tuple[str, ...] = ()
    """Judgements for something that is not there, which a strict load refuses."""


def read_collection(source: Source) -> Collection:
    """The task in its files, checked; every error names file, line or row, and field."""
    documents, queries, judgements = (read_part(source, part) for part in PARTS)
    for rows, part in ((documents, "corpus"), (queries, "queries"), (judgements, "judgements")):
        if not len(rows):
            what = "documents" if part == "corpus" else part
            raise DataError(f"{getattr(source, part)[0]} holds no {what}.")
    return _collect(documents, queries, judgements, only_judged=source.layout == "beir")


def read_part(source: Source, part: str, complain: Complain = stop) -> Rows:
    """The documents, queries or judgements of a task, each in the way of its layout."""
    files: tuple[Path, ...] = getattr(source, part)
    if source.layout == "parquet":
        from r2med.tasks.reading.parquet import read_parquet

        return read_parquet(files, *_PARQUET[part], complain=complain)
    if part == "judgements":
        return read_judgements(files[0], complain)
    rows = read_jsonl(files[0], _JSONL[source.layout, part], complain)
    if "title" not in rows.columns:
        return rows
    return replace(rows, columns={"id": rows.columns["id"], "text": _titled(rows)})


def _titled(documents: Rows) -> pa.LargeStringArray:
    """Title, a space and the text, as BEIR's own tools join them; either may be empty."""
    title, text = documents.columns["title"], documents.columns["text"]
    alone = pc.or_(pc.is_null(title), pc.equal(text, ""))
    gaps = pc.if_else(alone, "", " ").cast(pa.large_string())
    nothing = pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(pc.fill_null(title, ""), gaps, text, nothing)


def _collect(documents: Rows, queries: Rows, judgements: Rows, *, only_judged: bool) -> Collection:
    """Check the three against each other; `only_judged` leaves out queries of other splits."""
    corpus = Corpus(documents.columns["id"], documents.columns["text"])
    _check_unique_queries(queries)
    kept, repeated = _without_repeats(judgements)
    strange = _unknown(judgements, "query", queries.columns["id"], kept)
    kept = kept[~np.isin(kept, strange)]
    if not len(kept):
        raise DataError(f"{judgements.place(0)}: no judgement is for a query of this task.")
    missing = _unknown(judgements, "document", corpus.document_ids, kept)
    judged = Judgements(
        query_ids=judgements.columns["query"].take(pa.array(kept)),
        document_ids=judgements.columns["document"].take(pa.array(kept)),
        scores=judgements.columns["score"].to_numpy()[kept],
    )
    asked = Queries(*(queries.columns[field.column] for field in fields.QUERY))
    known = pc.is_in(asked.ids, value_set=judged.query_ids)
    asked = asked.filter(known) if only_judged else asked
    strays = [
        *_stray(judgements, "query", strange, "dropped"),
        *_stray(
            judgements,
            "document",
            missing,
            "kept: trec_eval counts such documents too, though none can be found",
        ),
    ]
    repaired = documents.repaired + queries.repaired
    left_out = " in this split, left out of the task" if only_judged else ", left out of all means"
    notices = (
        *_told_of_texts(corpus),
        *_told(repaired, "text", "with half a surrogate pair, replaced by U+FFFD."),
        *_told(_count_empty(asked.texts), "query", "without text."),
        *_told(known.false_count, "query", f"without judgements{left_out}."),
        *strays,
        *_told(repeated, "judgement", "given more than once with the same score, counted once."),
    )
    return Collection(corpus, asked, judged, notices, tuple(strays))


def _told_of_texts(corpus: Corpus) -> Iterator[str]:
    rows = np.bincount(corpus.codes)
    shared, copies = rows[rows > 1], count_repeated(corpus.texts)
    if len(shared):
        yield (
            f"{shared.sum():,} document rows share {many(len(shared), 'id')}: "
            "BM25 indexes every row, dense retrieval keeps the last one of an id."
        )
    if copies:
        yield f"{copies:,} of {len(corpus):,} documents repeat the text of an earlier one."
    yield from _told(_count_empty(corpus.texts), "document", "without text.")


def _stray(judgements: Rows, column: str, rows: NDArray[np.int64], fate: str) -> list[str]:
    """What becomes of judgements for something that is not there, with the first of them."""
    if not len(rows):
        return []
    row = int(rows[0])
    first = f'{judgements.place(row)}: {column} "{judgements.columns[column][row]}"'
    return _told(
        len(rows), "judgement", f"with an unknown {column} id, {fate}; the first is {first}."
    )


def _told(count: int, noun: str, rest: str) -> list[str]:
    return [f"{many(count, noun)} {rest}"] if count else []


def _check_unique_queries(queries: Rows) -> None:
    encoded = queries.columns["id"].dictionary_encode()
    if len(encoded.dictionary) == len(queries):
        return
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    _, first = np.unique(codes, return_index=True)
    again = int(np.setdiff1d(np.arange(len(codes)), first)[0])
    earlier = int(np.flatnonzero(codes == codes[again])[0])
    raise DataError(
        f'{queries.place(again)}: query id "{queries.columns["id"][again]}" was already used '
        f"({queries.place(earlier)}).\nEvery query needs an id of its own."
    )


def _without_repeats(judgements: Rows) -> tuple[NDArray[np.int64], int]:
    """The first row of every pair, in file order, and how many rows said the same again."""
    columns = judgements.columns
    queries, documents = (columns[name].dictionary_encode() for name in ("query", "document"))
    pairs = queries.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = pairs * len(documents.dictionary) + documents.indices.to_numpy(zero_copy_only=False)
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    scores = columns["score"].to_numpy()
    conflicts = np.flatnonzero(scores != scores[first[inverse]])
    if conflicts.size:
        row = int(conflicts[0])
        earlier = int(first[inverse[row]])
        raise DataError(
            f'{judgements.place(row)}: query "{columns["query"][row]}" and document '
            f'"{columns["document"][row]}" are judged {scores[row]} here, '
            f"but {scores[earlier]} before ({judgements.place(earlier)}).\n"
            "Keep one of the two judgements."
        )
    return np.sort(first), len(pairs) - len(first)


def _unknown(
    judgements: Rows, column: str, known: pa.Array, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The rows whose id is not among the known ones."""
    values = judgements.columns[column].take(pa.array(rows))
    unknown = pc.invert(pc.is_in(values, value_set=known)).to_numpy(zero_copy_only=False)
    chosen: NDArray[np.int64] = rows[unknown]
    return chosen


def _count_empty(texts: pa.Array) -> int:
    return int(pc.sum(pc.equal(texts, "")).as_py() or 0)


def count_repeated(texts: pa.LargeStringArray) -> int:
    """How many texts repeat an earlier one; only those that begin alike are compared as a whole."""
    heads = pc.utf8_slice_codeunits(texts, 0, _COMPARED).dictionary_encode()
    codes = heads.indices.to_numpy(zero_copy_only=False)
    alike = texts.filter(pa.array(np.bincount(codes)[codes] > 1))
    return len(alike) - len(alike.unique())
