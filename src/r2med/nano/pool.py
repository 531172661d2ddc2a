"""Choose the queries and documents of a Nano task by the published recipe.

Texts are stripped, and rows without text are dropped. The pool is filled in this order, skipping
equal texts, until it is full: positives in the order of the judgements; judged non-positives in
rounds over the sorted query ids; unjudged documents (the fill). A document whose id repeats has the
text of its first row.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DataError, UsageError, nearest, plural
from r2med.runs import Run
from r2med.tasks.task import Corpus, Judgements, Queries, Task

Fill = Literal["source", "random", "hard"]
FILLS: tuple[Fill, ...] = get_args(Fill)
#: The seed of the published safeguard, used wherever chance is asked for.
SEED = 20260524
Pair = tuple[str, str]
"""A query id and a document id."""


@dataclass(frozen=True)
class Recipe:
    """The size of a Nano task, and which unjudged documents fill it.

    The defaults are those of the published recipe.
    """

    queries: int = 200
    documents: int = 10_000
    fill: Fill = "source"
    """Which unjudged documents fill the pool. `source`: the head of the corpus, as published;
    `random`: by a seeded hash of the id; `hard`: what BM25 ranks highest for the queries."""
    seed: int = SEED
    """The seed of the random fill; the other fills are deterministic."""

    def __post_init__(self) -> None:
        """Raise UsageError for settings with which no pool can be built."""
        for option, count in (("--max-queries", self.queries), ("--documents", self.documents)):
            if count < 1:
                raise UsageError(f"{option} {count}: expected a number from 1.")
        if self.fill not in FILLS:
            raise UsageError(f"--fill {self.fill!r} is not known. {nearest(self.fill, FILLS)}")


#: A sentence for each count of lost rows; its first word is the counted noun.
_LOSSES = {
    "positives_over_limit": "positive dropped: the pool has room for {limit:,} documents only.",
    "positives_repeated_text": "positive dropped: an equal text was already in the pool.",
    "positives_not_in_corpus": "positive dropped: the corpus has no such document with text.",
    "queries_without_text": "query without text left out.",
    "queries_without_positive": "query without a positive left out.",
    "repeated_query_texts": "query with a text asked before left out.",
    "queries_over_limit": "query left out: more than were asked for.",
    "queries_left_without_positive": "query dropped: no positive left.",
    "empty_documents": "row of the corpus without text left out.",
}


@dataclass(frozen=True, eq=False)
class NanoPool:
    """The three parts of a Nano task, and counts of how they were built."""

    queries: Queries
    corpus: Corpus
    judgements: Judgements
    report: Mapping[str, int]
    """Counts of everything kept and lost."""

    @property
    def positives_lost(self) -> int:
        """Number of positive judgements of the chosen queries whose document is not in the pool."""
        return sum(self.report[name] for name in _LOSSES if name.startswith("positives_"))

    def notices(self, limit: int) -> list[str]:
        """Return a warning for each type of loss; `limit` is the requested number of documents."""
        sentences = []
        for name, sentence in _LOSSES.items():
            noun, _, predicate = sentence.format(limit=limit).partition(" ")
            if count := self.report[name]:
                sentences.append(f"{plural(count, noun)} {predicate}")
        if (documents := self.report["documents"]) < limit:
            sentences.append(
                f"{documents:,} documents instead of {limit:,}: the source has no more that may be "
                "taken."
            )
        return sentences


def make_pool(task: Task, recipe: Recipe | None = None, *, hard: Run | None = None) -> NanoPool:
    """Choose the queries and documents of a Nano task; the fill `hard` needs the ranking `hard`."""
    recipe = recipe or Recipe()
    positives, negatives = _judged_rows(task)
    queries, fates = _chosen_queries(task.queries, positives, recipe.queries)
    chosen = set(queries.ids.to_pylist())
    chosen_pairs = [pair for pair in positives if pair[0] in chosen]
    rounds = list(_rounds([pair for pair in negatives if pair[0] in chosen]))

    texts = pc.utf8_trim_whitespace(task.corpus.texts)
    some = pc.not_equal(texts, "")
    corpus = Corpus(task.corpus.ids.filter(some), texts.filter(some))
    ids: list[str] = corpus.ids.to_pylist()
    first_rows = {name: row for row, name in reversed([*enumerate(ids)])}
    contents: list[int] = corpus.texts.dictionary_encode().indices.to_pylist()
    rows_by_document: dict[str, int] = {}
    seen: set[int] = set()
    repeated: set[str] = set()

    def take(rows: Iterable[int]) -> int:
        """Add rows while there is space, skipping ids and texts that are in the pool.

        Returns how many were added.
        """
        before = len(rows_by_document)
        for row in rows:
            if len(rows_by_document) >= recipe.documents:
                break
            if ids[row] not in rows_by_document and contents[row] in seen:
                repeated.add(ids[row])
            elif ids[row] not in rows_by_document:
                seen.add(contents[row])
                rows_by_document[ids[row]] = row
        return len(rows_by_document) - before

    positive_ids = [document for _, document in chosen_pairs]
    positive, negative = (
        take(first_rows[name] for name in names if name in first_rows)
        for names in (positive_ids, rounds)
    )
    fill = take(_fill(ids, first_rows, recipe, judged=len({*positive_ids, *rounds}), hard=hard))

    pairs_in_pool = [pair for pair in chosen_pairs if pair[1] in rows_by_document]
    if not pairs_in_pool:
        raise DataError(f"{task.name}: no positive is in the corpus, so no query would be left.")
    answered = {query for query, _ in pairs_in_pool}
    lost = [document for document in positive_ids if document not in rows_by_document]
    absent = sum(document not in first_rows for document in lost)
    equal = sum(document in repeated for document in lost)
    report = {
        "source_queries": len(task.queries),
        "source_documents": len(task.corpus),
        "queries": len(answered),
        "queries_without_text": fates["without text"],
        "queries_without_positive": fates["without positive"],
        "repeated_query_texts": fates["repeated"],
        "queries_over_limit": fates["over limit"],
        "queries_left_without_positive": len(chosen) - len(answered),
        "documents": len(rows_by_document),
        "positive_documents": positive,
        "judged_negative_documents": negative,
        "fill_documents": fill,
        "empty_documents": len(task.corpus) - len(corpus),
        "repeated_texts_skipped": len(repeated),
        "positives": len(pairs_in_pool),
        "positives_repeated_text": equal,
        "positives_over_limit": len(lost) - absent - equal,
        "positives_not_in_corpus": absent,
    }
    rows = pa.array(list(rows_by_document.values()), pa.int64())
    return NanoPool(
        queries=queries.filter(pa.array([name in answered for name in queries.ids.to_pylist()])),
        corpus=Corpus(corpus.ids.take(rows), corpus.texts.take(rows)),
        judgements=Judgements(
            query_ids=pa.array([query for query, _ in pairs_in_pool], pa.large_string()),
            document_ids=pa.array([document for _, document in pairs_in_pool], pa.large_string()),
            scores=np.ones(len(pairs_in_pool), dtype=np.int32),
        ),
        report=report,
    )


def _judged_rows(task: Task) -> tuple[list[Pair], list[Pair]]:
    """Return positive and non-positive pairs, in the order of the judgements."""
    judgements = task.judgements
    pairs = zip(judgements.query_ids.to_pylist(), judgements.document_ids.to_pylist(), strict=True)
    scored = list(zip(pairs, judgements.scores.tolist(), strict=True))
    positives = [pair for pair, score in scored if score > 0]
    if not positives:
        raise DataError(
            f"{task.name}: {len(judgements):,} judgements, none with a score above 0; a Nano task "
            "needs positives."
        )
    return positives, [pair for pair, score in scored if score <= 0]


def _chosen_queries(
    queries: Queries, positives: list[Pair], limit: int
) -> tuple[Queries, Counter[str]]:
    """Return the first `limit` queries that have a positive and a distinct text.

    They are in file order. The counter has the number of queries by outcome: chosen, or why not.
    """
    answerable = {query for query, _ in positives}
    texts = pc.utf8_trim_whitespace(queries.texts)
    seen: set[str] = set()
    fates = []
    for query, text in zip(queries.ids.to_pylist(), texts.to_pylist(), strict=True):
        if not text:
            fates.append("without text")
        elif query not in answerable:
            fates.append("without positive")
        elif text in seen:
            fates.append("repeated")
        elif len(seen) >= limit:
            fates.append("over limit")
        else:
            seen.add(text)
            fates.append("chosen")
    chosen = pa.array([fate == "chosen" for fate in fates], pa.bool_())
    return replace(queries, texts=texts).filter(chosen), Counter(fates)


def _rounds(negatives: list[Pair]) -> Iterator[str]:
    """Yield the first judged non-positive of each query, by query id, then the second ones, etc."""
    lists: dict[str, list[str]] = {}
    for query, document in negatives:
        lists.setdefault(query, []).append(document)
    for layer in zip_longest(*(lists[query] for query in sorted(lists))):
        yield from (document for document in layer if document is not None)


def _fill(
    ids: list[str],
    first_rows: Mapping[str, int],
    recipe: Recipe,
    *,
    judged: int,
    hard: Run | None,
) -> Iterable[int]:
    """Return rows of the corpus in the order in which they fill the pool after judged documents.

    The published order is the head of the corpus file. Where a file lists its sources one after
    the other, its head holds little that resembles the queries, and the task becomes easier than
    its source; the two other orders show by how much.
    """

    def chance(name: str) -> bytes:
        """Return a hash of seed and id, so that a smaller pool is a subset of a larger one."""
        return hashlib.blake2b(f"{recipe.seed}\0{name}".encode(), digest_size=16).digest()

    rows = range(len(ids))
    if recipe.fill == "random":
        return (first_rows[name] for name in sorted(first_rows, key=chance))
    if recipe.fill == "hard":
        if hard is None:
            raise UsageError("--fill hard needs a ranking of the source task to draw from.")
        # rank by rank over the queries in file order; what no list holds follows in source order
        order = np.lexsort((hard.query_rows, hard.ranks))
        ranked = hard.document_ids.take(pa.array(hard.documents[order])).to_pylist()
        return chain((first_rows[name] for name in ranked if name in first_rows), rows)
    return islice(rows, max(3 * recipe.documents, recipe.documents + judged))
