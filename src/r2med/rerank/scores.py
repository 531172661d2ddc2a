"""What a reranker promises: a score for every candidate; and what becomes of the scores.

Scores of pairs are kept per reranker and exact texts, so depth 100 reuses depth 10, and any first
stage reuses any other; batches are on disk as they finish, so a kill loses one batch at most.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.execution.workers import StageSpec
from r2med.models.batching import Batches
from r2med.models.embedding_cache import Addresses, hash_texts, open_cache
from r2med.models.encoding import Encoder, Form, encode
from r2med.runs import Run
from r2med.runs.run import find_positions, id_ranks
from r2med.tasks.task import Task

ListScores = NDArray[np.float32]
Pair = tuple[str, str]
Tail = Literal["keep", "drop"]

_LOWEST = float(np.finfo(np.float32).min)


@dataclass(frozen=True)
class Candidates:
    """One query with the documents that a first stage found for it, best first."""

    query_id: str
    query: str
    document_ids: Sequence[str]
    documents: Sequence[str]
    scores: Sequence[float] = ()
    """Of the first stage, where they are known."""


@dataclass(frozen=True)
class RerankOutput:
    """Scores of lists, and what scoring them used."""

    scores: list[ListScores]
    """For each list a finite score for each of its documents, higher is better."""
    facts: Mapping[str, object]
    """What really ran, as JSON values: reuse, answers that could not be read."""
    usage: Usage


class Reranker(Protocol):
    """A configured reranker; nothing is loaded before `scores` is called."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides its scores besides the settings it was built from, as JSON values."""

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Score the documents of every list."""


def candidate_lists(run: Run, task: Task) -> list[Candidates]:
    """The lists of a run with their texts: the original query, and an id's last row.

    A text is one Python string however many lists hold it.
    """
    used, inside = np.unique(run.documents, return_inverse=True)
    ids = run.document_ids.take(pa.array(used))
    rows = task.corpus.last_rows[find_positions(ids, task.corpus.document_ids)]
    names = ids.to_pylist()
    texts = task.corpus.texts.take(pa.array(rows)).to_pylist()
    queries = dict(task.queries.items())
    lists = []
    for row, query_id in enumerate(run.query_ids.to_pylist()):
        span = slice(run.offsets[row], run.offsets[row + 1])
        listed, scores = inside[span].tolist(), run.scores[span].tolist()
        shown = [names[index] for index in listed], [texts[index] for index in listed]
        lists.append(Candidates(query_id, queries[query_id], *shown, scores))
    return lists


class _PairForm(Form):
    """A pair's address is a hash of both exact texts, with a boundary that no text can move."""

    def addresses(self, texts: Iterable[Pair]) -> Addresses:
        """The address of each pair in the store."""
        parts = [hash_texts(b"", [])]
        for query, pairs in groupby(texts, key=itemgetter(0)):
            prefix = query.encode("utf-8", "surrogatepass")
            documents = [document for _, document in pairs]
            parts.append(hash_texts(f"{len(prefix)}:".encode() + prefix, documents))
        return np.concatenate(parts)


class PairReranker:
    """A reranker that scores every candidate by itself, with an encoder of pairs."""

    def __init__(self, name: str, scorer: Encoder, resources: Resources) -> None:
        self.name = name
        self.scorer = scorer
        self.encoders = {"pair": scorer}
        self.resources = resources
        self.worker_stage: StageSpec | None = None
        """From what workers build this reranker; None for an object that exists only here."""
        self.batches = Batches(resources.options.batch_tokens, resources.warn)
        self._anonymous = anonymous_identity(scorer)

    @property
    def identity(self) -> Mapping[str, object]:
        """The scorer's; one without an identity equals nothing but itself."""
        return self.scorer.identity or self._anonymous

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Look every pair up and score the missing ones."""
        names = [(one.query_id, document) for one in lists for document in one.document_ids]
        warn = self.resources.warn
        encoded = encode(
            self.scorer,
            [(one.query, text) for one in lists for text in one.documents],
            _PairForm(),
            open_cache("rerank-scores", self.scorer.identity, self.name, warn),
            self.resources,
            batches=self.batches,
            name_text=lambda row: "query {!r} and document {!r} with {}".format(
                *names[row], self.name
            ),
            description=f"reranking with {self.name}",
            part="pair",
            worker_stage=self.worker_stage,
        )
        scores = [np.zeros(0, dtype=np.float32) for _ in lists]
        if names:
            ends = np.cumsum([len(one.documents) for one in lists])
            scores = np.split(encoded.matrix()[encoded.distinct, 0], ends[:-1])
        facts = {**encoded.facts, **self.scorer.facts()}
        return RerankOutput(scores, facts, encoded.usage)


def anonymous_identity(thing: object) -> Mapping[str, object]:
    """An identity for what has none: its results are never taken for another's."""
    kind = type(thing)
    return {
        "object": f"{kind.__module__}.{kind.__qualname__}",
        "unidentified": secrets.token_hex(8),
    }


def in_order(order: Sequence[int]) -> ListScores:
    """Scores of places: the first in the order scores the length of the list, the last one 1."""
    scores = np.zeros(len(order), dtype=np.float32)
    scores[list(order)] = np.arange(len(order), 0, -1)
    return scores


def reorder_run(first: Run, scores: Sequence[ListScores], reranked: int, tail: Tail) -> Run:
    """The first `reranked` documents of each list by score, ties as in trec_eval.

    `keep` leaves the rest in its order with scores below the lowest reranked one, so that
    every tool that sorts by score sees the same list; `drop` leaves it out.
    """
    head = first.truncate(reranked)
    flat = np.concatenate(scores) if len(head.documents) else np.zeros(0, dtype=np.float32)
    order = np.lexsort((-id_ranks(head), -flat, head.query_rows))
    documents, falling = head.documents[order], flat[order].astype(np.float64)
    top = Run(head.query_ids, head.document_ids, head.offsets, documents, falling)
    if tail == "drop":
        return top
    documents, falling = first.documents.copy(), np.empty(len(first.documents), dtype=np.float64)
    for row in np.flatnonzero(first.lengths):
        start, end = first.offsets[row], first.offsets[row + 1]
        span = slice(top.offsets[row], top.offsets[row + 1])
        documents[start : start + top.lengths[row]] = top.documents[span]
        falling[start:end] = _extend_scores(top.scores[span], int(end - start))
    return Run(first.query_ids, first.document_ids, first.offsets, documents, falling)


def _extend_scores(scores: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Falling scores followed by lower ones, `count` in all, that float32 tells apart.

    Where the lowest score leaves no such numbers below it, all become ranks, counted from the end.
    """
    lowest = float(scores[-1])
    steps = np.arange(count - len(scores) + 1, dtype=np.float64)
    step = 1.0
    while lowest - step * steps[-1] >= _LOWEST:
        below = lowest - step * steps
        if (np.diff(below.astype(np.float32)) < 0).all():
            return np.concatenate([scores, below[1:]])
        step *= 2
    return np.arange(count, 0, -1, dtype=np.float64)
