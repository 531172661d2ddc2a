"""The interface of rerankers, cached scores of pairs, and the order that follows from scores.

Scores of pairs are cached by reranker and by the exact texts, so that depth 100 reuses depth 10,
whatever the first stage. Every finished batch is stored, so a killed process loses at most one.
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
    """One query with the documents that the first stage retrieved for it, best first."""

    query_id: str
    query: str
    document_ids: Sequence[str]
    documents: Sequence[str]
    scores: Sequence[float] = ()
    """Scores of the first stage; empty if they are not known."""


@dataclass(frozen=True)
class RerankOutput:
    """The scores of lists, with facts and usage."""

    scores: list[ListScores]
    """One array per list: a finite score for each document, where higher is better."""
    facts: Mapping[str, object]
    """Facts for the record, as JSON values: cached scores, answers that could not be read."""
    usage: Usage


class Reranker(Protocol):
    """A configured reranker; its model is loaded by the first call of `rerank`."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that can change a score, as JSON values; settings are stored separately."""

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Score the documents of every list."""


def candidate_lists(run: Run, task: Task) -> list[Candidates]:
    """Return the lists of a run with the texts of queries and documents.

    If a document id occurs several times in the corpus, its last row counts. A text is the same
    Python string in all lists that contain it.
    """
    used_documents, indexes = np.unique(run.documents, return_inverse=True)
    used_ids = run.document_ids.take(pa.array(used_documents))
    rows = task.corpus.last_rows[find_positions(used_ids, task.corpus.document_ids)]
    document_ids = used_ids.to_pylist()
    texts = task.corpus.texts.take(pa.array(rows)).to_pylist()
    queries = dict(task.queries.items())
    lists = []
    for row, query_id in enumerate(run.query_ids.to_pylist()):
        span = slice(run.offsets[row], run.offsets[row + 1])
        list_indexes = indexes[span].tolist()
        lists.append(
            Candidates(
                query_id,
                queries[query_id],
                [document_ids[index] for index in list_indexes],
                [texts[index] for index in list_indexes],
                run.scores[span].tolist(),
            )
        )
    return lists


class _PairForm(Form):
    """A form in which a pair's address is a hash of the query's length and of both texts."""

    def addresses(self, texts: Iterable[Pair]) -> Addresses:
        """Return the address of each pair in the cache."""
        parts = [hash_texts(b"", [])]
        for query, pairs in groupby(texts, key=itemgetter(0)):
            prefix = query.encode("utf-8", "surrogatepass")
            documents = [document for _, document in pairs]
            parts.append(hash_texts(f"{len(prefix)}:".encode() + prefix, documents))
        return np.concatenate(parts)


class PairReranker:
    """A reranker that scores every candidate separately, with an encoder of pairs."""

    def __init__(self, name: str, scorer: Encoder, resources: Resources) -> None:
        self.name = name
        self.scorer = scorer
        self.encoders = {"pair": scorer}
        self.resources = resources
        self.worker_stage: StageSpec | None = None
        """How workers build this reranker; None for an object that exists only in this process."""
        self.batches = Batches(resources.options.batch_tokens, resources.warn)
        self._anonymous = anonymous_identity(scorer)

    @property
    def identity(self) -> Mapping[str, object]:
        """The identity of the scorer; if it has none, one that no other object has."""
        return self.scorer.identity or self._anonymous

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Score all pairs; scores that are cached are not computed again."""
        ids = [
            (candidates.query_id, document_id)
            for candidates in lists
            for document_id in candidates.document_ids
        ]

        def name_pair(row: int) -> str:
            query_id, document_id = ids[row]
            return f"query {query_id!r} and document {document_id!r} with {self.name}"

        encoded = encode(
            self.scorer,
            [(candidates.query, text) for candidates in lists for text in candidates.documents],
            _PairForm(),
            open_cache("rerank-scores", self.scorer.identity, self.name, self.resources.warn),
            self.resources,
            batches=self.batches,
            name_text=name_pair,
            description=f"reranking with {self.name}",
            part="pair",
            worker_stage=self.worker_stage,
        )
        scores = [np.zeros(0, dtype=np.float32) for _ in lists]
        if ids:
            ends = np.cumsum([len(candidates.documents) for candidates in lists])
            scores = np.split(encoded.matrix()[encoded.distinct, 0], ends[:-1])
        facts = {**encoded.facts, **self.scorer.facts()}
        return RerankOutput(scores, facts, encoded.usage)


def anonymous_identity(model: object) -> Mapping[str, object]:
    """Return an identity that no other object has, so that its results are never reused."""
    model_class = type(model)
    return {
        "object": f"{model_class.__module__}.{model_class.__qualname__}",
        "unidentified": secrets.token_hex(8),
    }


def scores_from_order(order: Sequence[int]) -> ListScores:
    """Return scores for an order of n documents: n for the first one, 1 for the last one."""
    scores = np.zeros(len(order), dtype=np.float32)
    scores[list(order)] = np.arange(len(order), 0, -1)
    return scores


def reorder_run(first: Run, scores: Sequence[ListScores], reranked: int, tail: Tail) -> Run:
    """Order the first `reranked` documents of each list by score, with ties as in trec_eval.

    With `keep`, all other documents follow in their order. Their scores are lower than the lowest
    reranked one, so that every tool that sorts by score has the same list. With `drop`, they are
    left out.
    """
    head = first.truncate(reranked)
    all_scores = np.concatenate(scores) if len(head.documents) else np.zeros(0, dtype=np.float32)
    order = np.lexsort((-id_ranks(head), -all_scores, head.query_rows))
    top = Run(
        head.query_ids,
        head.document_ids,
        head.offsets,
        head.documents[order],
        all_scores[order].astype(np.float64),
    )
    if tail == "drop":
        return top
    documents = first.documents.copy()
    extended_scores = np.empty(len(first.documents), dtype=np.float64)
    for row in np.flatnonzero(first.lengths):
        start, end = first.offsets[row], first.offsets[row + 1]
        span = slice(top.offsets[row], top.offsets[row + 1])
        documents[start : start + top.lengths[row]] = top.documents[span]
        extended_scores[start:end] = _extend_scores(top.scores[span], int(end - start))
    return Run(first.query_ids, first.document_ids, first.offsets, documents, extended_scores)


def _extend_scores(scores: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Continue decreasing scores to a total of `count`, all different in float32.

    If no such numbers exist below the lowest score, the scores are count, ..., 2, 1 instead.
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
