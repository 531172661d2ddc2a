"""Choose the queries and documents of a Nano task by the published recipe.

Texts lose the white space around them, and rows without text are no documents. Documents come in
this order, equal texts skipped throughout, until the pool is full: positives in the order of the
judgements; judged non-positives in rounds over the sorted query ids; the fill. A document whose
id repeats has the text of its first row.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
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
    """How many queries and documents, and where the unjudged documents come from.

    The defaults are the published ones.
    """

    queries: int = 200
    documents: int = 10_000
    fill: Fill = "source"
    """`source`: the head of the corpus, as published; `random`: by a seeded hash of the id;
    `hard`: what a retriever ranks highest for the queries."""
    seed: int = SEED
    """Decides the random fill; the others have no chance in them."""
    hard_from: str = "bm25-nano"
    """The system whose rankings give the hard fill."""
    positives_cap: int | None = None
    """The most positives per query; the published tasks have no such limit."""

    def __post_init__(self) -> None:
        """Refuse settings that no pool can be made with."""
        counts = {
            "--max-queries": self.queries,
            "--documents": self.documents,
            "--positives-cap": self.positives_cap,
        }
        for option, count in counts.items():
            if count is not None and count < 1:
                raise UsageError(f"{option} {count}: expected a number from 1.")
        if self.fill not in FILLS:
            raise UsageError(f"--fill {self.fill!r} is not known. {nearest(self.fill, FILLS)}")


@dataclass(frozen=True)
class PoolReport:
    """Counts of everything kept and lost."""

    source_queries: int
    source_documents: int
    empty_documents: int
    """Rows of the corpus without text."""
    queries_without_text: int
    queries_without_positive: int
    repeated_query_texts: int
    queries_over_limit: int
    queries: int
    queries_left_without_positive: int
    """Chosen first, dropped because none of their positives was kept."""
    documents: int
    positive_documents: int
    judged_negative_documents: int
    fill_documents: int
    positives: int
    """Judgements kept."""
    positives_repeated_text: int
    """Judgements dropped because an equal text was already there under another id."""
    positives_over_limit: int
    positives_over_cap: int
    positives_not_in_corpus: int
    repeated_texts_skipped: int
    rows_looked_at: int
    """How far the fill went into its order of documents."""

    @property
    def positives_lost(self) -> int:
        """Judgements of chosen queries that the pool does not have."""
        return sum(getattr(self, name) for name in _LOSSES if name.startswith("positives_"))

    def notices(self, limit: int) -> list[str]:
        """One sentence for each loss that a reader of the scores must know."""
        sentences = []
        for name, sentence in _LOSSES.items():
            noun, _, rest = sentence.format(limit=limit).partition(" ")
            if count := getattr(self, name):
                sentences.append(f"{plural(count, noun)} {rest}")
        if self.documents < limit:
            sentences.append(
                f"{self.documents:,} documents instead of {limit:,}: the source has no more that "
                "may be taken."
            )
        return sentences


#: What is said of each count that is a loss, after the count; the first word is counted.
_LOSSES = {
    "positives_over_limit": "positive dropped: the pool has room for {limit:,} documents only.",
    "positives_repeated_text": "positive dropped: an equal text was already in the pool.",
    "positives_over_cap": "positive dropped by the limit of positives per query.",
    "positives_not_in_corpus": "positive dropped: the corpus has no such document with text.",
    "queries_without_text": "query without text left out.",
    "queries_without_positive": "query without a positive left out.",
    "repeated_query_texts": "query with a text asked before left out.",
    "queries_over_limit": "query left out: more than were asked for.",
    "queries_left_without_positive": "query dropped: no positive left.",
    "empty_documents": "row of the corpus without text left out.",
}


@dataclass(frozen=True, eq=False)
class Pool:
    """The three parts of a Nano task, and how they came about."""

    queries: Queries
    corpus: Corpus
    judgements: Judgements
    report: PoolReport


def make_pool(task: Task, recipe: Recipe | None = None, *, hard: Run | None = None) -> Pool:
    """Choose a pool; `hard` is the ranking that a hard fill draws from."""
    recipe = recipe or Recipe()
    positives, negatives = _judged(task)
    queries, fates = _chosen_queries(task.queries, positives, recipe.queries)
    chosen = set(queries.ids.to_pylist())
    offered = [pair for pair in positives if pair[0] in chosen]
    wanted, over_cap = _capped(offered, recipe.positives_cap)
    rounds = list(_rounds([pair for pair in negatives if pair[0] in chosen]))

    texts = pc.utf8_trim_whitespace(task.corpus.texts)
    some = pc.not_equal(texts, "")
    corpus = Corpus(task.corpus.ids.filter(some), texts.filter(some))
    taken = _Taken(corpus, recipe.documents)
    taken.add(document for _, document in wanted)
    positive_documents = len(taken.rows)
    taken.add(rounds)
    judged_documents = len(taken.rows)
    judged = len({document for _, document in wanted} | set(rounds))
    looked_at = taken.add_rows(_fill(taken, recipe, judged=judged, avoid=over_cap, hard=hard))

    kept = [pair for pair in wanted if pair[1] in taken.rows]
    if not kept:
        raise DataError(f"{task.name}: no positive is in the corpus, so no query would be left.")
    answered = {query for query, _ in kept}
    lost = [document for _, document in wanted if document not in taken.rows]
    absent = sum(document not in taken.first_rows for document in lost)
    repeated = sum(document in taken.repeated for document in lost)
    report = PoolReport(
        source_queries=len(task.queries),
        source_documents=len(task.corpus),
        empty_documents=len(task.corpus) - len(corpus),
        queries_without_text=fates["without text"],
        queries_without_positive=fates["without positive"],
        repeated_query_texts=fates["repeated"],
        queries_over_limit=fates["over limit"],
        queries=len(answered),
        queries_left_without_positive=len(chosen) - len(answered),
        documents=len(taken.rows),
        positive_documents=positive_documents,
        judged_negative_documents=judged_documents - positive_documents,
        fill_documents=len(taken.rows) - judged_documents,
        positives=len(kept),
        positives_repeated_text=repeated,
        positives_over_limit=len(lost) - absent - repeated,
        positives_over_cap=len(offered) - len(wanted),
        positives_not_in_corpus=absent,
        repeated_texts_skipped=len(taken.repeated),
        rows_looked_at=looked_at,
    )
    rows = pa.array(list(taken.rows.values()), pa.int64())
    return Pool(
        queries=queries.filter(pa.array([name in answered for name in queries.ids.to_pylist()])),
        corpus=Corpus(corpus.ids.take(rows), corpus.texts.take(rows)),
        judgements=Judgements(
            query_ids=pa.array([query for query, _ in kept], pa.large_string()),
            document_ids=pa.array([document for _, document in kept], pa.large_string()),
            scores=np.ones(len(kept), dtype=np.int32),
        ),
        report=report,
    )


class _Taken:
    """The documents taken so far, and the texts that were not taken twice."""

    def __init__(self, corpus: Corpus, limit: int) -> None:
        self.ids: list[str] = corpus.ids.to_pylist()
        self.first_rows = {name: row for row, name in reversed([*enumerate(self.ids)])}
        self.limit = limit
        self.rows: dict[str, int] = {}
        """The row of every document taken, by its id."""
        self.repeated: set[str] = set()
        self._texts: list[int] = corpus.texts.dictionary_encode().indices.to_pylist()
        self._seen: set[int] = set()

    def add(self, documents: Iterable[str]) -> None:
        """Take documents by their ids, each with the text of its first row."""
        self.add_rows(self.first_rows[name] for name in documents if name in self.first_rows)

    def add_rows(self, rows: Iterable[int]) -> int:
        """Take rows while there is room and return how many were looked at."""
        looked_at = 0
        for row in rows:
            if len(self.rows) >= self.limit:
                break
            looked_at += 1
            name, text = self.ids[row], self._texts[row]
            if name in self.rows:
                continue
            if text in self._seen:
                self.repeated.add(name)
                continue
            self._seen.add(text)
            self.rows[name] = row
        return looked_at


def _judged(task: Task) -> tuple[list[Pair], list[Pair]]:
    """Positive and non-positive pairs, in the order of the judgements."""
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
    """Queries in file order that have a positive and a text of their own, up to the limit."""
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


def _capped(positives: list[Pair], cap: int | None) -> tuple[list[Pair], set[str]]:
    """The first positives of every query, and the documents that are positive beyond the cap only.

    Those are kept out of the fill, where they would count as wrong answers.
    """
    count: Counter[str] = Counter()
    kept: list[Pair] = []
    over: set[str] = set()
    for query, document in positives:
        count[query] += 1
        if cap is None or count[query] <= cap:
            kept.append((query, document))
        else:
            over.add(document)
    return kept, over - {document for _, document in kept}


def _rounds(negatives: list[Pair]) -> Iterator[str]:
    """One judged non-positive of each query, then the next of each, over the sorted query ids."""
    lists: dict[str, list[str]] = {}
    for query, document in negatives:
        lists.setdefault(query, []).append(document)
    for layer in zip_longest(*(lists[query] for query in sorted(lists))):
        yield from (document for document in layer if document is not None)


def _fill(
    taken: _Taken, recipe: Recipe, *, judged: int, avoid: set[str], hard: Run | None
) -> Iterator[int]:
    """Rows of the corpus in the order that unjudged documents fill the pool.

    The published order is the head of the corpus file. Where a file lists its sources one after
    the other, its head holds little that resembles the queries, and the task becomes easier than
    its source; the two other orders show by how much.
    """

    def chance(name: str) -> bytes:
        """A hash of seed and id: a smaller pool is a part of a larger one, in any corpus order."""
        return hashlib.blake2b(f"{recipe.seed}\0{name}".encode(), digest_size=16).digest()

    rows: Iterable[int] = range(len(taken.ids))
    if recipe.fill == "random":
        rows = (taken.first_rows[name] for name in sorted(taken.first_rows, key=chance))
    elif recipe.fill == "hard":
        if hard is None:
            raise UsageError("--fill hard needs a ranking of the source task to draw from.")
        # rank by rank over the queries in file order; what no list holds follows in source order
        order = np.lexsort((hard.query_rows, hard.ranks))
        ranked = hard.document_ids.take(pa.array(hard.documents[order])).to_pylist()
        known = (taken.first_rows[name] for name in ranked if name in taken.first_rows)
        rows = chain(known, rows)
    else:
        rows = islice(rows, max(3 * recipe.documents, recipe.documents + judged))
    return (row for row in rows if taken.ids[row] not in avoid)
