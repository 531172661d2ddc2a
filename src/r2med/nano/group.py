"""Means of profiles over a group of tasks, in two ways that are never mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from r2med.nano.profiling import Profile, RetrievalProfile
from r2med.nano.subsets import ROLES, Role


@dataclass(frozen=True)
class GroupMean:
    """One role over all tasks; recall's query-weighted form is micro: positives found / all."""

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


def group_means(profiles: Sequence[Profile]) -> list[GroupMean]:
    """The roles that every task of the group has; a mean over fewer would claim too much."""
    means = []
    for role in ROLES:
        rows = [row for one in profiles if (row := one.of(role)) is not None]
        if profiles and len(rows) == len(profiles):
            means.append(_mean(role, rows))
    return means


def published_means(profiles: Sequence[Profile]) -> dict[Role, tuple[float, float]]:
    """Published nDCG@10 by role: (query-weighted, task mean), where all tasks have one."""
    found: dict[Role, tuple[float, float]] = {}
    for role in ROLES:
        rows = [one.published.get(role, {}) for one in profiles]
        if rows and all("ndcg_at_10" in row for row in rows):
            weights = [int(row["query_count"]) for row in rows]
            values = [float(row["ndcg_at_10"]) for row in rows]
            found[role] = (weighted_mean(values, weights), fmean(values))
    return found


def _mean(role: Role, rows: Sequence[RetrievalProfile]) -> GroupMean:
    queries = [row.queries for row in rows]
    positives = [row.positives for row in rows]
    return GroupMean(
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


def weighted_mean(values: Sequence[float], weights: Sequence[int]) -> float:
    """The mean of values of which each counts as often as its weight says."""
    summed = sum(value * weight for value, weight in zip(values, weights, strict=True))
    return summed / max(sum(weights), 1)
