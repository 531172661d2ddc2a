"""The profile of a task: its observed shape, and how three plain retrievers fare on it.

The figures are defined as in the published profiles. Judgements are binary. Lists are scored in the
order in which they are stored. recall@100 is micro-averaged (positives found / all positives); the
macro average is shown too, with a label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc

from r2med.errors import MissingError, first_line
from r2med.execution.resources import Resources, Warn
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
    run_retriever,
)
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import Check, make_check
from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Task

if TYPE_CHECKING:
    import pyarrow as pa

#: The figures of a candidate subset, by the names of a manifest.
_PUBLISHED = {
    "ndcg_at_10": "ndcg@10",
    "hit_at_10": "hit@10",
    "recall_at_100": "micro_recall@100",
    "candidate_count_min": "candidates_min",
    "candidate_count_mean": "candidates_mean",
    "candidate_count_max": "candidates_max",
    "safeguard_positive_rows": "safeguard_rows",
}
#: Figures that a group averages, and the weight of each task.
_WEIGHTS = {"ndcg@10": "queries", "hit@10": "queries", "micro_recall@100": "positives"}


@dataclass(frozen=True)
class RetrievalProfile:
    """The scores of one candidate subset, measured here or published."""

    role: Role
    config: str
    source: str
    """How the lists were made, as text."""
    queries: int
    positives: int
    figures: Mapping[str, float]
    """Scores and counts by name; only the hybrid has a count of safeguards."""

    @property
    def ndcg(self) -> float:
        """nDCG@10, by which subsets are ranked."""
        return self.figures["ndcg@10"]


@dataclass(frozen=True)
class Profile:
    """A task's shape and its retrieval profiles, in the published order."""

    task: str
    suite: str | None
    data: Mapping[str, Any]
    """The result of `data_profile`; empty if the data is not available."""
    retrieval: tuple[RetrievalProfile, ...]
    published: tuple[RetrievalProfile, ...]
    """The published figures, from the manifest."""

    @property
    def best(self) -> RetrievalProfile | None:
        """The subset with the highest nDCG@10; the first one if several are equal."""
        return max(self.retrieval or self.published, key=lambda row: row.ndcg, default=None)

    def of(self, role: Role) -> RetrievalProfile | None:
        """Return the profile of one role; None if it was not measured."""
        return next((row for row in self.retrieval if row.role == role), None)


@dataclass(frozen=True)
class GroupMean:
    """The means of one role's figures over all tasks, unweighted and weighted by queries."""

    role: Role
    tasks: int
    weighted: Mapping[str, float]
    """Means in which every query counts once, and in micro recall every positive."""
    task_mean: Mapping[str, float]
    safeguard_rows: int


@dataclass(frozen=True, eq=False)
class Profiles(Tabular):
    """Profiles of tasks and, if there are several, their means; figures are 0 to 1."""

    title: str
    tasks: tuple[Profile, ...]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per task and candidate subset; published figures if nothing is measured."""
        rows = [
            {"task": profile.task, "suite": profile.suite, **vars(row), **row.figures}
            for profile in self.tasks
            for row in profile.retrieval or profile.published
        ]
        names = dict.fromkeys(name for row in rows for name in row["figures"])
        columns = {"task": str, "suite": str, **table_columns(RetrievalProfile)}
        return make_table({**columns, **dict.fromkeys(names, float)}, rows)

    def to_json(self) -> dict[str, Any]:
        """Return every profile and, if there are several, their means."""
        means = (
            group_means([profile.retrieval for profile in self.tasks])
            if len(self.tasks) > 1
            else []
        )
        return {"tasks": [*map(asdict, self.tasks)], "group": [*map(asdict, means)]}


def profile(task: Task, lists: Iterable[CandidateList] | None = None) -> Profile:
    """Profile a task by its candidate lists, by default those stored beside the task's data."""
    binary = replace(task.judgements, scores=np.minimum(task.judgements.scores, 1))
    rows = []
    for subset in read_candidates(task) if lists is None else lists:
        scores = measure(subset.run, binary, ["ndcg@10", "hit@10", "recall@100"], ties="list")
        means, lengths = scores.means(), subset.run.lengths
        figures: dict[str, float] = {
            "ndcg@10": means["ndcg@10"],
            "hit@10": means["hit@10"],
            "micro_recall@100": scores.micro_recall(100),
            "macro_recall@100": means["recall@100"],
            "candidates_min": int(lengths.min()) if len(lengths) else 0,
            "candidates_mean": float(lengths.mean()) if len(lengths) else 0.0,
            "candidates_max": int(lengths.max(initial=0)),
        }
        if subset.role == "reranking_hybrid":
            figures["safeguard_rows"] = int((lengths > HYBRID_DEPTH).sum())
        beside = f"the subset {subset.config} beside the data"
        source = f"{subset.system}, run here" if subset.system else beside
        positives = int(scores.positives.sum())
        rows.append(
            RetrievalProfile(subset.role, subset.config, source, len(scores), positives, figures)
        )
    rows.sort(key=lambda row: ROLES.index(row.role))
    published = published_profile(task.entry).published if task.entry else ()
    return Profile(task.name, task.suite, data_profile(task), tuple(rows), published)


def published_profile(entry: TaskEntry) -> Profile:
    """Return the profile that the manifest publishes, for a task whose data is not here."""
    rows = []
    for role in (role for role in ROLES if role in entry.candidates):
        published = entry.candidates[role]
        figures = {name: published[key] for key, name in _PUBLISHED.items() if key in published}
        counts = published["query_count"], entry.counts["judgements"]
        rows.append(RetrievalProfile(role, published["config"], "as published", *counts, figures))
    return Profile(entry.name, entry.suite, {}, (), tuple(rows))


def profile_with_candidates(
    task: Task, dense: str | None, *, warn: Warn = lambda message: None
) -> tuple[Profile, list[CandidateList]]:
    """Return the profile of a task and its candidate lists, which are made if it has none.

    `dense` names the encoder for tasks without candidates. Only BM25 is profiled if `dense` is None
    or, with a warning, if the encoder's weights are not on this machine.
    """
    resources = Resources(warn=warn)
    lists = list(read_candidates(task))
    if not lists and dense is not None:
        try:
            lists = make_candidates(task, dense, resources=resources)
        except MissingError as problem:
            warn(f"{task.name}: no dense and no hybrid profile. {first_line(problem)}")
    if not lists:
        run = run_retriever(BM25, task, depth=FIRST_DEPTH, resources=resources)
        lists = [CandidateList("bm25", run, "bm25", BM25)]
    return profile(task, lists), lists


def data_profile(task: Task) -> dict[str, Any]:
    """Return counts, positives per query as in a manifest, and text lengths in characters."""
    judged = task.judgements
    positive = judged.query_ids.take(np.flatnonzero(judged.scores > 0))
    counts = np.array(positive.value_counts().field("counts").to_pylist() or [0])
    several = int((counts > 1).sum())
    lengths = {}
    for role, texts in (("query", task.queries.texts), ("document", task.corpus.texts)):
        characters = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
        mean = float(characters.mean()) if len(characters) else 0.0
        lengths[f"{role}_length"] = {"mean": mean, "max": int(characters.max(initial=0))}
    return {
        "queries": len(task.queries),
        "documents": len(task.corpus),
        "positives": len(positive),
        "positives_per_query": {
            "min": int(counts.min()),
            "median": float(np.median(counts)),
            "average": float(counts.mean()),
            "max": int(counts.max()),
            "multi_positive_queries": several,
            "multi_positive_query_percent": 100 * several / len(counts),
        },
        **lengths,
    }


def group_means(tasks: Sequence[Sequence[RetrievalProfile]]) -> list[GroupMean]:
    """Return the means of each role; roles that a task of the group lacks are left out."""
    means = []
    for role in ROLES:
        rows = [row for profile in tasks for row in profile if row.role == role]
        if not rows or len(rows) < len(tasks):
            continue
        weighted, plain = {}, {}
        for name, counted in _WEIGHTS.items():
            values = [row.figures[name] for row in rows]
            weights = [getattr(row, counted) for row in rows]
            weighted[name] = float(np.dot(values, weights)) / max(sum(weights), 1)
            plain[name] = fmean(values)
        safeguards = sum(int(row.figures.get("safeguard_rows", 0)) for row in rows)
        means.append(GroupMean(role, len(rows), weighted, plain, safeguards))
    return means


def check_profile(measured: Profile, entry: TaskEntry) -> list[Check]:
    """Compare a profile with the manifest: positives per query and all published figures."""
    positives = measured.data["positives_per_query"]
    figures = {row.role: row.figures for row in measured.retrieval}
    return [
        *(
            make_check(entry, "profile", f"positives.{name}", value, positives.get(name))
            for name, value in entry.positives.items()
        ),
        *(
            make_check(entry, "profile", f"{row.role}.{name}", value, published.get(name))
            for row in published_profile(entry).published
            for published in [figures.get(row.role, {})]
            for name, value in row.figures.items()
        ),
    ]
