"""The profile of a task: its observed shape, and how three plain retrievers fare on it.

The figures are those of the published profiles: judgements are binary, lists are scored in their
own order, and recall@100 is micro (positives found / positives); macro stands beside it, labelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.measure import measure
from r2med.nano.candidates import Candidates
from r2med.nano.subsets import ROLES, Role, read_subsets
from r2med.runs import Run
from r2med.tasks.task import Judgements, Task

SubsetList = tuple[Role, str, Run]

#: Published name of each figure, by the name here.
PUBLISHED_NAMES = {
    "ndcg@10": "ndcg_at_10",
    "hit@10": "hit_at_10",
    "recall@100 (micro)": "recall_at_100",
    "candidates, least": "candidate_count_min",
    "candidates, mean": "candidate_count_mean",
    "candidates, most": "candidate_count_max",
    "safeguard rows": "safeguard_positive_rows",
}


@dataclass(frozen=True)
class DataProfile:
    """What the data looks like; lengths are in characters."""

    queries: int
    documents: int
    positives: int
    positives_min: int
    positives_median: float
    positives_mean: float
    positives_max: int
    multi_positive_queries: int
    query_length_mean: float
    query_length_max: int
    document_length_mean: float
    document_length_max: int

    @property
    def multi_positive_share(self) -> float:
        """Queries with more than one positive / queries with any."""
        return self.multi_positive_queries / max(self.answered, 1)

    @property
    def answered(self) -> int:
        """Queries that have a positive."""
        return round(self.positives / self.positives_mean) if self.positives_mean else 0


@dataclass(frozen=True)
class RetrievalProfile:
    """How one candidate subset scores; `published` holds the figures it was published with."""

    role: Role
    config: str
    queries: int
    positives: int
    ndcg_10: float
    hit_10: float
    recall_100_micro: float
    recall_100_macro: float
    candidates_min: int
    candidates_mean: float
    candidates_max: int
    safeguard_rows: int
    published: Mapping[str, Any]

    def figures(self) -> dict[str, float]:
        """By the names a table shows; safeguards belong to the hybrid alone."""
        told = {
            "ndcg@10": self.ndcg_10,
            "hit@10": self.hit_10,
            "recall@100 (micro)": self.recall_100_micro,
            "recall@100 (macro)": self.recall_100_macro,
            "candidates, least": self.candidates_min,
            "candidates, mean": self.candidates_mean,
            "candidates, most": self.candidates_max,
        }
        if self.role == "reranking_hybrid":
            told["safeguard rows"] = self.safeguard_rows
        return told


@dataclass(frozen=True)
class Profile:
    """A task's shape and its retrieval profiles, in the published order."""

    task: str
    suite: str | None
    data: DataProfile
    retrieval: tuple[RetrievalProfile, ...]
    published: Mapping[str, Mapping[str, Any]]
    """Figures of the manifest, also where nothing was measured."""

    @property
    def best(self) -> RetrievalProfile | None:
        """The subset with the highest nDCG@10; the first of equals."""
        return max(self.retrieval, key=lambda found: found.ndcg_10, default=None)

    def of(self, role: Role) -> RetrievalProfile | None:
        """The profile of one role, where it was measured."""
        return next((found for found in self.retrieval if found.role == role), None)


def profile(task: Task, candidates: Candidates | None = None) -> Profile:
    """Profile a task by the candidates given, or by those that lie beside its data."""
    return profile_of(task, subset_lists(task, candidates))


def subset_lists(task: Task, candidates: Candidates | None = None) -> list[SubsetList]:
    """Role, configuration and lists of every subset; the hybrid's with its safeguards."""
    if candidates is None:
        return list(read_subsets(task))
    return [
        ("bm25", "bm25", candidates.bm25),
        ("dense", candidates.dense_config, candidates.dense),
        ("reranking_hybrid", "reranking_hybrid", candidates.guarded),
    ]


def profile_of(task: Task, lists: Iterable[SubsetList]) -> Profile:
    """Profile a task by the lists of any subsets."""
    published = task.entry.candidates if task.entry else {}
    rows = [
        _retrieval(role, config, run, task.judgements, published.get(role, {}))
        for role, config, run in lists
    ]
    ordered = tuple(sorted(rows, key=lambda row: ROLES.index(row.role)))
    return Profile(task.name, task.suite, data_profile(task), ordered, published)


def data_profile(task: Task) -> DataProfile:
    """Counts, positives a query, and text lengths."""
    judged = task.judgements
    positive = judged.query_ids.take(np.flatnonzero(judged.scores > 0))
    counts = np.array(
        [row["counts"] for row in positive.value_counts().to_pylist()] or [0], dtype=np.int64
    )
    queries, documents = _lengths(task.queries.texts), _lengths(task.corpus.texts)
    return DataProfile(
        queries=len(task.queries),
        documents=len(task.corpus),
        positives=len(positive),
        positives_min=int(counts.min()),
        positives_median=float(np.median(counts)),
        positives_mean=float(counts.mean()),
        positives_max=int(counts.max()),
        multi_positive_queries=int((counts > 1).sum()),
        query_length_mean=float(queries.mean()),
        query_length_max=int(queries.max()),
        document_length_mean=float(documents.mean()),
        document_length_max=int(documents.max()),
    )


def _lengths(texts: Any) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    return lengths if len(lengths) else np.zeros(1, dtype=np.int64)


def _retrieval(
    role: Role, config: str, run: Run, judgements: Judgements, published: Mapping[str, Any]
) -> RetrievalProfile:
    binary = replace(judgements, scores=np.minimum(judgements.scores, 1))
    scores = measure(run, binary, ["ndcg@10", "hit@10", "recall@100"], ties="list")
    means, lengths = scores.means(), run.lengths
    guarded = int((lengths > 100).sum()) if role == "reranking_hybrid" else 0
    return RetrievalProfile(
        role=role,
        config=config,
        queries=len(scores),
        positives=int(scores.positives.sum()),
        ndcg_10=means["ndcg@10"],
        hit_10=means["hit@10"],
        recall_100_micro=scores.micro_recall(100),
        recall_100_macro=means["recall@100"],
        candidates_min=int(lengths.min()) if len(lengths) else 0,
        candidates_mean=float(lengths.mean()) if len(lengths) else 0.0,
        candidates_max=int(lengths.max(initial=0)),
        safeguard_rows=guarded,
        published=published,
    )
