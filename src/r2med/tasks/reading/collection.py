"""Corpus, queries and judgements put together: what only shows when the files meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.tasks.reading.fields import Rows
from r2med.tasks.reading.findings import Findings
from r2med.tasks.statistics import distinct, statistics
from r2med.tasks.task import Corpus, Judgements, Queries


@dataclass(frozen=True, eq=False)
class Collection:
    """The data of a task, whatever it is called, with what was found while reading it."""

    corpus: Corpus
    queries: Queries
    judgements: Judgements
    findings: Findings
    known_statistics: Mapping[str, Any] | None = None

    @cached_property
    def statistics(self) -> Mapping[str, Any]:
        """Counts and text statistics; a stored copy brings its own."""
        return self.known_statistics or statistics(self)


def collect(
    documents: Rows, queries: Rows, judgements: Rows, *, only_judged: bool = False
) -> Collection:
    """Check the three against each other; `only_judged` leaves out queries of other splits."""
    corpus = Corpus(documents.columns["id"], documents.columns["text"])
    _check_unique_queries(queries)
    kept, repeated = _without_repeats(judgements)
    unknown = _unknown(judgements, "query", queries.columns["id"], kept)
    kept = kept[~np.isin(kept, unknown)]
    if not len(kept):
        raise DataError(f"{judgements.place(0)}: no judgement is for a query of this task.")
    unfound = _unknown(judgements, "document", corpus.document_ids, kept)
    judged = _taken(judgements, kept)
    asked, unjudged = _asked(queries, judged, only_judged=only_judged)
    findings = Findings(
        **_corpus_findings(corpus),
        empty_queries=_count_empty(asked.texts),
        unjudged_queries=0 if only_judged else unjudged,
        other_split_queries=unjudged if only_judged else 0,
        unknown_queries=len(unknown),
        unknown_query_example=_example(judgements, "query", unknown),
        unknown_documents=len(unfound),
        unknown_document_example=_example(judgements, "document", unfound),
        repeated_judgements=repeated,
        repaired_texts=documents.repaired + queries.repaired,
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
    query = queries.columns["id"][again].as_py()
    raise DataError(
        f'{queries.place(again)}: query id "{query}" was already used '
        f"({queries.place(earlier)}).\nEvery query needs an id of its own."
    )


def _without_repeats(judgements: Rows) -> tuple[NDArray[np.int64], int]:
    """The first row of every pair, in file order, and how many rows said the same again."""
    documents = judgements.columns["document"].dictionary_encode()
    queries = _codes(judgements.columns["query"])
    pairs = queries * len(documents.dictionary) + documents.indices.to_numpy(zero_copy_only=False)
    _, first, inverse = np.unique(pairs, return_index=True, return_inverse=True)
    scores = judgements.columns["score"].to_numpy()
    conflicts = np.flatnonzero(scores != scores[first[inverse]])
    if conflicts.size:
        row = int(conflicts[0])
        raise _conflict(judgements, row, int(first[inverse[row]]))
    return np.sort(first), len(pairs) - len(first)


def _conflict(judgements: Rows, row: int, earlier: int) -> DataError:
    columns = judgements.columns
    return DataError(
        f'{judgements.place(row)}: query "{columns["query"][row]}" and document '
        f'"{columns["document"][row]}" are judged {columns["score"][row]} here, '
        f"but {columns['score'][earlier]} before ({judgements.place(earlier)}).\n"
        "Keep one of the two judgements."
    )


def _unknown(
    judgements: Rows, column: str, known: pa.Array, rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    values = judgements.columns[column].take(pa.array(rows))
    missing: NDArray[np.bool_] = pc.invert(pc.is_in(values, value_set=known)).to_numpy(
        zero_copy_only=False
    )
    return rows[missing]


def _taken(judgements: Rows, rows: NDArray[np.int64]) -> Judgements:
    chosen = pa.array(rows)
    return Judgements(
        query_ids=judgements.columns["query"].take(chosen),
        document_ids=judgements.columns["document"].take(chosen),
        scores=judgements.columns["score"].to_numpy()[rows],
    )


def _asked(queries: Rows, judged: Judgements, *, only_judged: bool) -> tuple[Queries, int]:
    columns = queries.columns
    known = pc.is_in(columns["id"], value_set=judged.query_ids)
    unjudged = len(queries) - int(pc.sum(known).as_py())
    if only_judged:
        columns = {name: column.filter(known) for name, column in columns.items()}
    asked = Queries(
        ids=columns["id"],
        texts=columns["text"],
        answers=columns["answer"],
        body_systems=columns["body_system"],
        reasonings=columns["reasoning"],
    )
    return asked, unjudged


def _corpus_findings(corpus: Corpus) -> dict[str, int]:
    rows = np.bincount(corpus.codes, minlength=len(corpus.document_ids))
    return {
        "documents": len(corpus),
        "shared_ids": int((rows > 1).sum()),
        "shared_id_rows": int(rows[rows > 1].sum()),
        "repeated_texts": len(corpus) - distinct(corpus.texts),
        "empty_documents": _count_empty(corpus.texts),
    }


def _count_empty(texts: pa.Array) -> int:
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    return int((lengths == 0).sum())


def _example(judgements: Rows, column: str, rows: NDArray[np.int64]) -> str:
    if not len(rows):
        return ""
    row = int(rows[0])
    return f'{judgements.place(row)}: {column} "{judgements.columns[column][row]}"'


def _codes(values: pa.Array) -> NDArray[np.int64]:
    codes = values.dictionary_encode().indices.to_numpy(zero_copy_only=False)
    wide: NDArray[np.int64] = codes.astype(np.int64)
    return wide
