"""The profile of a task: its observed shape, and how three plain retrievers fare on it.

The figures are those of the published profiles: judgements are binary, lists are scored in their
own order, and recall@100 is micro (positives found / positives); macro stands beside it, labelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.measure import measure
from r2med.nano.candidates import (
    BM25,
    FIRST_DEPTH,
    HYBRID_DEPTH,
    ROLES,
    CandidateList,
    Role,
    make_candidates,
    read_candidates,
    retrieved,
)
from r2med.retrieve.conditions import Conditions, Tell
from r2med.tabular import Tabular, fields_of, table_of
from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Task
from r2med.tasks.verify import Check, checked

if TYPE_CHECKING:
    import pyarrow as pa

#: The figures of a candidate subset: field here, and name where they were published.
_FIGURES = {
    "ndcg@10": ("ndcg_10", "ndcg_at_10"),
    "hit@10": ("hit_10", "hit_at_10"),
    "recall@100 (micro)": ("recall_100_micro", "recall_at_100"),
    "recall@100 (macro)": ("recall_100_macro", None),
    "candidates, least": ("candidates_min", "candidate_count_min"),
    "candidates, mean": ("candidates_mean", "candidate_count_mean"),
    "candidates, most": ("candidates_max", "candidate_count_max"),
    "safeguard rows": ("safeguard_rows", "safeguard_positive_rows"),
}
PUBLISHED_NAMES = {label: name for label, (_, name) in _FIGURES.items() if name}
#: What the manifest says of positives per query, by the name of the field here.
_POSITIVES = {
    "min": "positives_min",
    "median": "positives_median",
    "max": "positives_max",
    "average": "positives_mean",
    "multi_positive_queries": "multi_positive_queries",
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
    answered: int
    """Queries that have a positive."""
    multi_positive_queries: int
    query_length_mean: float
    query_length_max: int
    document_length_mean: float
    document_length_max: int

    @property
    def multi_positive_share(self) -> float:
        """Queries with more than one positive / queries with any."""
        return self.multi_positive_queries / max(self.answered, 1)


@dataclass(frozen=True)
class RetrievalProfile:
    """How one candidate subset scores; `published` holds the figures it was published with."""

    role: Role
    config: str
    system: str | None
    """What ranked the lists here; None for a subset that lies beside the data."""
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

    @property
    def source(self) -> str:
        """Where the lists come from, in words."""
        if self.system is None:
            return f"the subset {self.config} beside the data"
        return f"{self.system}, run here"

    def figures(self) -> dict[str, float]:
        """By the names a table shows; safeguards belong to the hybrid alone."""
        figures = {label: getattr(self, field) for label, (field, _) in _FIGURES.items()}
        if self.role != "reranking_hybrid":
            del figures["safeguard rows"]
        return figures


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
        return max(self.retrieval, key=lambda row: row.ndcg_10, default=None)

    def of(self, role: Role) -> RetrievalProfile | None:
        """The profile of one role, where it was measured."""
        return next((row for row in self.retrieval if row.role == role), None)


@dataclass(frozen=True)
class GroupMean:
    """One role over all tasks, in two ways that are never mixed."""

    role: Role
    tasks: int
    queries: int
    ndcg_10_query_weighted: float
    ndcg_10_task_mean: float
    hit_10_query_weighted: float
    hit_10_task_mean: float
    recall_100_micro: float
    """Positives found / positives, over all tasks at once."""
    recall_100_task_mean: float
    """The plain mean of the tasks' micro recalls."""
    safeguard_rows: int


@dataclass(frozen=True, eq=False)
class Profiles(Tabular):
    """Profiles of some tasks, and their means; or of tasks whose data is not here, the published.

    Figures are 0 to 1.
    """

    title: str
    tasks: tuple[Profile, ...]
    absent: tuple[TaskEntry, ...] = ()
    """Tasks whose data is not here; then there are no others."""

    drawn_by = "r2med.report.profiles"

    def to_arrow(self) -> pa.Table:
        """One row per task and candidate subset."""
        if self.absent:
            names = {"task": str, "role": str, **dict.fromkeys(PUBLISHED_NAMES.values(), float)}
            published = [(each, *item) for each in self.absent for item in each.candidates.items()]
            rows = [{"task": each.name, "role": role, **own} for each, role, own in published]
            return table_of(names, rows)
        columns = {"task": str, "suite": str, **fields_of(RetrievalProfile)}
        measured = [(one, row) for one in self.tasks for row in one.retrieval]
        rows = [{"task": one.task, "suite": one.suite, **asdict(row)} for one, row in measured]
        return table_of(columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Every profile, and the means where there are several; `data` is null where none is."""
        nothing: dict[str, object] = {"data": None, "retrieval": []}
        published = [
            {"task": each.name, "suite": each.suite, **nothing, "published": each.candidates}
            for each in self.absent
        ]
        means = group_means(self.tasks) if len(self.tasks) > 1 else []
        return {
            "tasks": [*map(asdict, self.tasks), *published],
            "group": [asdict(mean) for mean in means],
        }


def profile(task: Task, lists: Iterable[CandidateList] | None = None) -> Profile:
    """Profile a task by candidate lists, or by those that lie beside its data."""
    published = task.entry.candidates if task.entry else {}
    binary = replace(task.judgements, scores=np.minimum(task.judgements.scores, 1))
    rows = []
    for one in read_candidates(task) if lists is None else lists:
        scores = measure(one.run, binary, ["ndcg@10", "hit@10", "recall@100"], ties="list")
        means, lengths = scores.means(), one.run.lengths
        guarded = one.role == "reranking_hybrid"
        rows.append(
            RetrievalProfile(
                role=one.role,
                config=one.config,
                system=one.system,
                queries=len(scores),
                positives=int(scores.positives.sum()),
                ndcg_10=means["ndcg@10"],
                hit_10=means["hit@10"],
                recall_100_micro=scores.micro_recall(100),
                recall_100_macro=means["recall@100"],
                candidates_min=int(lengths.min()) if len(lengths) else 0,
                candidates_mean=float(lengths.mean()) if len(lengths) else 0.0,
                candidates_max=int(lengths.max(initial=0)),
                safeguard_rows=int((lengths > HYBRID_DEPTH).sum()) if guarded else 0,
                published=published.get(one.role, {}),
            )
        )
    rows.sort(key=lambda row: ROLES.index(row.role))
    return Profile(task.name, task.suite, data_profile(task), tuple(rows), published)


def profiled(
    task: Task, dense: str | None, *, tell: Tell = lambda message: None
) -> tuple[Profile, list[CandidateList]]:
    """The profile of a task and the lists it was drawn from, made here where it has none.

    `dense` names the encoder for tasks without candidates; None, or one whose weights are not
    here, leaves BM25 alone, and `tell` says so.
    """
    conditions = Conditions(tell=tell)
    lists = list(read_candidates(task))
    if not lists and dense is not None:
        try:
            lists = make_candidates(task, dense, conditions=conditions)
        except MissingError as problem:
            tell(f"{task.name}: no dense and no hybrid profile. {str(problem).splitlines()[0]}")
    if not lists:
        run = retrieved(BM25, task, depth=FIRST_DEPTH, conditions=conditions)
        lists = [CandidateList("bm25", run, "bm25", BM25)]
    return profile(task, lists), lists


def data_profile(task: Task) -> DataProfile:
    """Counts, positives per query, and text lengths."""
    judged = task.judgements
    positive = judged.query_ids.take(np.flatnonzero(judged.scores > 0))
    per_query = [row["counts"] for row in positive.value_counts().to_pylist()]
    counts = np.array(per_query or [0], dtype=np.int64)
    queries, documents = _lengths(task.queries.texts), _lengths(task.corpus.texts)
    return DataProfile(
        queries=len(task.queries),
        documents=len(task.corpus),
        positives=len(positive),
        positives_min=int(counts.min()),
        positives_median=float(np.median(counts)),
        positives_mean=float(counts.mean()),
        positives_max=int(counts.max()),
        answered=len(per_query),
        multi_positive_queries=int((counts > 1).sum()),
        query_length_mean=float(queries.mean()),
        query_length_max=int(queries.max()),
        document_length_mean=float(documents.mean()),
        document_length_max=int(documents.max()),
    )


def group_means(profiles: Sequence[Profile]) -> list[GroupMean]:
    """The roles that every task of the group has; a mean over fewer would claim too much."""
    means = []
    for role in ROLES:
        rows = [row for one in profiles if (row := one.of(role)) is not None]
        if not rows or len(rows) < len(profiles):
            continue
        queries = [row.queries for row in rows]
        positives = [row.positives for row in rows]
        means.append(
            GroupMean(
                role=role,
                tasks=len(rows),
                queries=sum(queries),
                ndcg_10_query_weighted=weighted_mean([row.ndcg_10 for row in rows], queries),
                ndcg_10_task_mean=fmean(row.ndcg_10 for row in rows),
                hit_10_query_weighted=weighted_mean([row.hit_10 for row in rows], queries),
                hit_10_task_mean=fmean(row.hit_10 for row in rows),
                recall_100_micro=weighted_mean([row.recall_100_micro for row in rows], positives),
                recall_100_task_mean=fmean(row.recall_100_micro for row in rows),
                safeguard_rows=sum(row.safeguard_rows for row in rows),
            )
        )
    return means


def published_means(
    tasks: Sequence[Mapping[str, Mapping[str, Any]]],
) -> dict[Role, tuple[float, float]]:
    """Published nDCG@10 by role: (query-weighted, task mean), where all tasks have one."""
    means: dict[Role, tuple[float, float]] = {}
    for role in ROLES:
        rows = [published.get(role, {}) for published in tasks]
        if rows and all("ndcg_at_10" in row for row in rows):
            weights = [int(row["query_count"]) for row in rows]
            values = [float(row["ndcg_at_10"]) for row in rows]
            means[role] = (weighted_mean(values, weights), fmean(values))
    return means


def weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """The mean of values of which each counts as often as its weight says."""
    total = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return total / max(sum(weights), 1)


def check_profile(task: Task, entry: TaskEntry) -> list[Check]:
    """Positives per query and the figures of every candidate subset, against the manifest."""
    measured = profile(task)
    data = measured.data
    checks = [
        checked(entry, "profile", f"positives.{name}", value, getattr(data, _POSITIVES[name]))
        for name, value in entry.positives.items()
        if name in _POSITIVES
    ]
    return checks + subset_checks(entry, measured)


def subset_checks(entry: TaskEntry, measured: Profile) -> list[Check]:
    """The figures of every published subset, against the manifest."""
    figures: dict[str, dict[str, float]] = {row.role: row.figures() for row in measured.retrieval}
    return [
        checked(entry, "profile", f"{role}.{name}", published[key], figures.get(role, {}).get(name))
        for role, published in entry.candidates.items()
        for name, key in PUBLISHED_NAMES.items()
        if key in published
    ]


def _lengths(texts: Any) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    return lengths if len(lengths) else np.zeros(1, dtype=np.int64)
