"""Choose the queries and documents of a Nano task by the published recipe.

Documents come in this order, equal texts skipped throughout, until the pool is full: positives in
the order of the judgements; judged non-positives in rounds over the sorted query ids; the fill.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DataError
from r2med.nano.fill import fill_order
from r2med.nano.recipe import Recipe
from r2med.nano.report import PoolReport
from r2med.runs import Run
from r2med.tasks.task import Corpus, Judgements, Queries, Task

Pair = tuple[str, int]
"""A query id and a document, by its place among the corpus's distinct ids (-1: not there)."""


@dataclass(frozen=True, eq=False)
class Pool:
    """The three parts of a Nano task, and how they came about."""

    queries: Queries
    corpus: Corpus
    judgements: Judgements
    report: PoolReport


@dataclass
class _Shelf:
    """Documents taken so far; says of each whether and why not."""

    texts: Sequence[int]
    """For every document a number that equal texts share."""
    limit: int

    def __post_init__(self) -> None:
        self.kept: dict[int, None] = {}
        self.seen: set[int] = set()
        self.repeated: set[int] = set()

    @property
    def full(self) -> bool:
        return len(self.kept) >= self.limit

    def take(self, documents: Iterable[int]) -> int:
        """Take what there is room for and return how many rows were looked at."""
        looked_at = 0
        for document in documents:
            if self.full:
                break
            looked_at += 1
            if document in self.kept or document < 0:
                continue
            if self.texts[document] in self.seen:
                self.repeated.add(document)
                continue
            self.seen.add(self.texts[document])
            self.kept[document] = None
        return looked_at


def make_pool(task: Task, recipe: Recipe | None = None, *, hard: Run | None = None) -> Pool:
    """Choose a pool; `hard` is the ranking that a hard fill draws from.

    A document whose id repeats in the corpus has its last row's text, as everywhere.
    """
    recipe = recipe or Recipe()
    positives, negatives = _judged(task)
    chosen, losses = _chosen_queries(task, {query for query, _ in positives}, recipe.queries)
    offered = [pair for pair in positives if pair[0] in chosen]
    wanted, over_cap = _capped(offered, recipe.positives_cap)
    rounds = list(_rounds([n for n in negatives if n[0] in chosen]))
    shelf = _Shelf(_text_numbers(task.corpus), recipe.documents)
    shelf.take(document for _, document in wanted)
    after_positives = len(shelf.kept)
    shelf.take(rounds)
    after_negatives = len(shelf.kept)
    judged = len({document for _, document in wanted} | set(rounds))
    looked_at = shelf.take(fill_order(task, recipe, judged=judged, avoid=over_cap, hard=hard))
    kept_pairs = [pair for pair in wanted if pair[1] in shelf.kept]
    answered = {query for query, _ in kept_pairs}
    report = PoolReport(
        source_queries=len(task.queries),
        source_documents=len(task.corpus),
        **losses,
        queries=len(answered),
        queries_left_without_positive=len(chosen) - len(answered),
        documents=len(shelf.kept),
        positive_documents=after_positives,
        judged_negative_documents=after_negatives - after_positives,
        fill_documents=len(shelf.kept) - after_negatives,
        positives=len(kept_pairs),
        **_lost(wanted, shelf, len(offered) - len(wanted)),
        repeated_texts_skipped=len(shelf.repeated),
        rows_looked_at=looked_at,
    )
    if not kept_pairs:
        raise DataError(f"{task.name}: no positive is in the corpus, so no query would be left.")
    return _assembled(task, answered, list(shelf.kept), kept_pairs, report)


def _judged(task: Task) -> tuple[list[Pair], list[Pair]]:
    """Positive and non-positive pairs, in the order of the judgements."""
    judgements = task.judgements
    places = pc.index_in(judgements.document_ids, value_set=task.corpus.document_ids)
    documents = places.fill_null(-1).to_pylist()
    pairs = list(zip(judgements.query_ids.to_pylist(), documents, strict=True))
    positive = (judgements.scores > 0).tolist()
    found = [pair for pair, good in zip(pairs, positive, strict=True) if good]
    if not found:
        raise DataError(
            f"{task.name}: {len(judgements):,} judgements, none with a score above 0; a Nano task "
            "needs positives."
        )
    return found, [pair for pair, good in zip(pairs, positive, strict=True) if not good]


def _chosen_queries(
    task: Task, answerable: set[str], limit: int
) -> tuple[dict[str, None], dict[str, int]]:
    """Queries in file order that have a positive and a text of their own, up to the limit."""
    chosen: dict[str, None] = {}
    texts: set[str] = set()
    losses = Counter({"queries_without_positive": 0, "repeated_query_texts": 0})
    over = 0
    ids, asked = task.queries.ids.to_pylist(), task.queries.texts.to_pylist()
    for query, text in zip(ids, asked, strict=True):
        if query not in answerable:
            losses["queries_without_positive"] += 1
        elif text in texts:
            losses["repeated_query_texts"] += 1
        elif len(chosen) >= limit:
            over += 1
        else:
            chosen[query] = None
            texts.add(text)
    return chosen, {**losses, "queries_over_limit": over}


def _capped(positives: list[Pair], cap: int | None) -> tuple[list[Pair], set[int]]:
    """The first positives of every query, and the documents that are positive beyond the cap only.

    Those are kept out of the fill, where they would count as wrong answers.
    """
    if cap is None:
        return positives, set()
    count: Counter[str] = Counter()
    kept: list[Pair] = []
    over: set[int] = set()
    for query, document in positives:
        count[query] += 1
        if count[query] <= cap:
            kept.append((query, document))
        else:
            over.add(document)
    return kept, over - {document for _, document in kept}


def _rounds(negatives: list[Pair]) -> Iterator[int]:
    """One judged non-positive of each query, then the next of each, over the sorted query ids."""
    lists: dict[str, list[int]] = {}
    for query, document in negatives:
        lists.setdefault(query, []).append(document)
    for layer in zip_longest(*(lists[query] for query in sorted(lists))):
        yield from (document for document in layer if document is not None)


def _text_numbers(corpus: Corpus) -> list[int]:
    texts = corpus.texts.take(pa.array(corpus.last_rows))
    numbers: list[int] = texts.dictionary_encode().indices.to_pylist()
    return numbers


def _lost(wanted: list[Pair], shelf: _Shelf, over_cap: int) -> dict[str, int]:
    lost = [document for _, document in wanted if document not in shelf.kept]
    absent = sum(document < 0 for document in lost)
    repeated = sum(document in shelf.repeated for document in lost)
    return {
        "positives_not_in_corpus": absent,
        "positives_repeated_text": repeated,
        "positives_over_limit": len(lost) - absent - repeated,
        "positives_over_cap": over_cap,
    }


def _assembled(
    task: Task, answered: set[str], documents: list[int], pairs: list[Pair], report: PoolReport
) -> Pool:
    rows = pa.array(task.corpus.last_rows[np.array(documents, dtype=np.int64)])
    asked = pc.is_in(task.queries.ids, value_set=pa.array(sorted(answered), pa.large_string()))
    queries = task.queries
    return Pool(
        queries=Queries(
            ids=queries.ids.filter(asked),
            texts=queries.texts.filter(asked),
            answers=queries.answers.filter(asked),
            body_systems=queries.body_systems.filter(asked),
            reasonings=queries.reasonings.filter(asked),
        ),
        corpus=Corpus(task.corpus.ids.take(rows), task.corpus.texts.take(rows)),
        judgements=Judgements(
            query_ids=pa.array([query for query, _ in pairs], pa.large_string()),
            document_ids=task.corpus.document_ids.take(
                pa.array([document for _, document in pairs], pa.int64())
            ),
            scores=np.ones(len(pairs), dtype=np.int32),
        ),
        report=report,
    )
