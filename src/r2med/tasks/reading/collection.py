"""Corpus, queries and judgements put together: read in the way of their layout, then checked.

What does not stop a load but matters to a reader of the scores is counted in `Findings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.tasks.reading import fields
from r2med.tasks.reading.fields import Complain, Field, Rows, stop
from r2med.tasks.reading.jsonl import read_jsonl
from r2med.tasks.reading.judgements import read_judgements
from r2med.tasks.reading.source import Source
from r2med.tasks.task import Corpus, Judgements, Queries

#: Letters by which texts are told apart before they are compared as a whole.
_COMPARED = 16
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


@dataclass(frozen=True)
class Findings:
    """Oddities that do not stop a load; an example names the first place of its kind."""

    documents: int = 0
    shared_ids: int = 0
    shared_id_rows: int = 0
    repeated_texts: int = 0
    empty_documents: int = 0
    repaired_texts: int = 0
    empty_queries: int = 0
    unjudged_queries: int = 0
    other_split_queries: int = 0
    unknown_queries: int = 0
    unknown_query_example: str = ""
    unknown_documents: int = 0
    unknown_document_example: str = ""
    repeated_judgements: int = 0

    def notices(self) -> tuple[str, ...]:
        """A sentence for each, with what follows from it."""
        sentences = (
            f"{self.shared_id_rows:,} document rows share {many(self.shared_ids, 'id')}: "
            "BM25 indexes every row, dense retrieval keeps the last one of an id.",
            f"{self.repeated_texts:,} of {self.documents:,} documents repeat the text of "
            "an earlier one.",
            f"{many(self.empty_documents, 'document')} without text.",
            f"{many(self.repaired_texts, 'text')} with half a surrogate pair, replaced by U+FFFD.",
            f"{many(self.empty_queries, 'query')} without text.",
            f"{many(self.unjudged_queries, 'query')} without judgements, left out of all means.",
            f"{many(self.other_split_queries, 'query')} without judgements in this split, "
            "left out of the task.",
            f"{many(self.unknown_queries, 'judgement')} with an unknown query id, dropped; "
            f"the first is {self.unknown_query_example}.",
            f"{many(self.unknown_documents, 'judgement')} with an unknown document id, kept: "
            "trec_eval counts such documents too, though none can be found; "
            f"the first is {self.unknown_document_example}.",
            f"{many(self.repeated_judgements, 'judgement')} given more than once with the "
            "same score, counted once.",
        )
        counts = (
            *(self.shared_ids, self.repeated_texts, self.empty_documents, self.repaired_texts),
            *(self.empty_queries, self.unjudged_queries, self.other_split_queries),
            *(self.unknown_queries, self.unknown_documents, self.repeated_judgements),
        )
        return tuple(sentence for count, sentence in zip(counts, sentences, strict=True) if count)

    def check_strict(self) -> None:
        """Fail where a judgement is for something that is not there."""
        for count, what, example in (
            (self.unknown_queries, "query", self.unknown_query_example),
            (self.unknown_documents, "document", self.unknown_document_example),
        ):
            if count:
                raise DataError(
                    f"{many(count, 'judgement')} with an unknown {what} id; the first is "
                    f"{example}.\nLeave --strict (strict=True) out to go on with a notice."
                )


@dataclass(frozen=True, eq=False)
class Collection:
    """The data of a task, whatever it is called, and what is odd about it."""

    corpus: Corpus
    queries: Queries
    judgements: Judgements
    findings: Findings


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
    asked, unjudged = _asked(queries, judged, only_judged=only_judged)
    rows = np.bincount(corpus.codes, minlength=len(corpus.document_ids))
    findings = Findings(
        documents=len(corpus),
        shared_ids=int((rows > 1).sum()),
        shared_id_rows=int(rows[rows > 1].sum()),
        repeated_texts=count_repeated(corpus.texts),
        empty_documents=_count_empty(corpus.texts),
        repaired_texts=documents.repaired + queries.repaired,
        empty_queries=_count_empty(asked.texts),
        unjudged_queries=0 if only_judged else unjudged,
        other_split_queries=unjudged if only_judged else 0,
        unknown_queries=len(strange),
        unknown_query_example=_example(judgements, "query", strange),
        unknown_documents=len(missing),
        unknown_document_example=_example(judgements, "document", missing),
        repeated_judgements=repeated,
    )
    return Collection(corpus, asked, judged, findings)


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


def _asked(queries: Rows, judged: Judgements, *, only_judged: bool) -> tuple[Queries, int]:
    """The queries, or only the judged ones, and how many have no judgement."""
    columns = queries.columns
    asked = Queries(
        ids=columns["id"],
        texts=columns["text"],
        answers=columns["answer"],
        body_systems=columns["body_system"],
        reasonings=columns["reasoning"],
    )
    known = pc.is_in(asked.ids, value_set=judged.query_ids)
    return asked.filter(known) if only_judged else asked, known.false_count


def _count_empty(texts: pa.Array) -> int:
    return int(pc.sum(pc.equal(texts, "")).as_py() or 0)


def count_repeated(texts: pa.LargeStringArray) -> int:
    """How many texts repeat an earlier one.

    Only those that agree in length and some of their letters are compared as a whole.
    """
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    starts = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts)]
    letters = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    marks = lengths.astype(np.uint64)
    for place in range(_COMPARED) if len(letters) else ():
        places = starts + (lengths - 1) * place // (_COMPARED - 1)
        marks *= np.uint64(0x9E3779B97F4A7C15)
        marks += letters[np.clip(places, 0, len(letters) - 1)] * (lengths > 0)
    order = np.argsort(marks)
    same = np.diff(marks[order]) == 0
    alike = texts.take(pa.array(order[np.append(same, False) | np.append(False, same)]))
    return len(alike) - len(alike.unique())


def _example(judgements: Rows, column: str, rows: NDArray[np.int64]) -> str:
    if not len(rows):
        return ""
    row = int(rows[0])
    return f'{judgements.place(row)}: {column} "{judgements.columns[column][row]}"'


def many(count: int, noun: str) -> str:
    """A count with its noun."""
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"1 {noun}" if count == 1 else f"{count:,} {plural}"
