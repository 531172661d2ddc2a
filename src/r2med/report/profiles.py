"""Profiles in the terminal: a task's shape, its three retrieval profiles, a group, fidelity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from r2med.nano.candidates import ROLES, TITLES, Role
from r2med.nano.profiles import (
    PUBLISHED_NAMES,
    DataProfile,
    Profile,
    Profiles,
    PublishedProfiles,
    group_means,
    published_means,
    weighted_mean,
)
from r2med.report.table import Cell, Column, Grid, Paper, SystemName
from r2med.tasks.registry import TaskEntry

if TYPE_CHECKING:
    from r2med.nano.fidelity import Fidelity


def draw(value: Profiles | PublishedProfiles, out: Paper) -> None:
    """Print a task's profile, or a table of several; of data that is not here what is published."""
    if isinstance(value, PublishedProfiles):
        out.print(_published_table(value.tasks))
        out.print(f"Bring the data here with: r2med fetch {value.tasks[0].name}")
        return
    one, several = value.tasks[0], len(value.tasks) > 1
    for part in _group_parts(value.tasks, value.title) if several else _profile_parts(one):
        out.print(part)


def data_rows(data: DataProfile) -> list[tuple[str, str]]:
    """The observed profile as pairs of name and figure."""
    return [
        ("queries", f"{data.queries:,}"),
        ("documents", f"{data.documents:,}"),
        ("positives", f"{data.positives:,}"),
        (
            "positives per query",
            f"{data.positives_min:,} least, {data.positives_median:g} median, "
            f"{data.positives_mean:.2f} mean, {data.positives_max:,} most",
        ),
        (
            "more than one positive",
            f"{data.multi_positive_queries:,} queries ({100 * data.multi_positive_share:.1f} %)",
        ),
        (
            "characters per query",
            f"{data.query_length_mean:,.1f} mean, {data.query_length_max:,} most",
        ),
        (
            "characters per document",
            f"{data.document_length_mean:,.1f} mean, {data.document_length_max:,} most",
        ),
    ]


def subset_figures(profile: Profile) -> Iterator[tuple[Role, bool, Mapping[str, float]]]:
    """The figures of each candidate subset, measured ones and then, marked, published ones."""
    for role in ROLES:
        measured, published = profile.of(role), profile.published.get(role)
        if measured is not None:
            yield role, False, measured.figures()
        if published:
            known = {name: key for name, key in PUBLISHED_NAMES.items() if key in published}
            yield role, True, {name: float(published[key]) for name, key in known.items()}


def figure_rows(columns: Sequence[Mapping[str, float]]) -> list[tuple[str, ...]]:
    """One row per figure of any column."""
    names = dict.fromkeys(name for column in columns for name in column)
    return [(name, *(_figure(name, column.get(name)) for column in columns)) for name in names]


def _figure(name: str, value: float | None) -> str:
    """A figure of a profile: a count as it is, a score times 100, "-" where unknown."""
    if value is None:
        return "-"
    if name.startswith(("candidates", "safeguard")):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return f"{100 * value:.2f}"


def group_scores(profiles: Sequence[Profile]) -> tuple[Mapping[Role, float], ...]:
    """The nDCG@10 of each subset: weighted by queries, the mean of tasks, and both as published."""
    means, published = group_means(profiles), published_means(profiles)
    return (
        {mean.role: mean.ndcg_10_query_weighted for mean in means},
        {mean.role: mean.ndcg_10_task_mean for mean in means},
        {role: pair[0] for role, pair in published.items()},
        {role: pair[1] for role, pair in published.items()},
    )


def _profile_parts(profile: Profile) -> Iterator[RenderableType]:
    """One task: its data, then one column per subset, published figures beside the measured."""
    yield Text(f"{profile.task} · observed profile", style="bold")
    columns = [Column("data", right=False, fixed=True), Column("", right=False)]
    yield Grid(columns, data_rows(profile.data))
    yield Text()
    yield _retrieval_table(profile)
    yield Text("scores × 100; binary judgements, lists in their own order", style="dim")
    for row in profile.retrieval:
        yield Text(f"{TITLES[row.role]}: {row.source}", style="dim")
    if profile.best is not None:
        score = 100 * profile.best.ndcg_10
        yield Text(f"best by nDCG@10: {TITLES[profile.best.role]} ({score:.2f})")


def _group_parts(profiles: Sequence[Profile], title: str) -> Iterator[RenderableType]:
    """One row per task with the nDCG@10 of each subset, then both means, each labelled."""
    roles = [role for role in ROLES if any(one.of(role) for one in profiles)]
    rows: list[list[Cell]] = []
    for one in profiles:
        measured = {row.role: row.ndcg_10 for row in one.retrieval}
        best = TITLES[one.best.role] if one.best else None
        rows.append([one.task, f"{one.data.queries:,}", *_cells(measured, roles), best])
    queries = f"{sum(one.data.queries for one in profiles):,}"
    labels = {
        "query-weighted mean": queries,
        f"mean of {len(profiles)} tasks": queries,
        "published, query-weighted": "",
        "published, task mean": "",
    }
    rows += [
        [Text(label, style="italic"), count, *_cells(values, roles), ""]
        for (label, count), values in zip(labels.items(), group_scores(profiles), strict=True)
        if values
    ]
    columns = [*_columns(roles), Column("best", right=False)]
    ends = frozenset([len(profiles) - 1])
    yield Grid(columns, rows, ends=ends, title=f"{title} · nDCG@10 × 100 by candidate subset")
    for mean in group_means(profiles):
        guarded = f"; {mean.safeguard_rows} safeguard rows" if mean.safeguard_rows else ""
        yield Text(
            f"{TITLES[mean.role]}: hit@10 {100 * mean.hit_10_query_weighted:.2f} query-weighted, "
            f"{100 * mean.hit_10_task_mean:.2f} task mean; recall@100 "
            f"{100 * mean.recall_100_micro:.2f} micro, "
            f"{100 * mean.recall_100_task_mean:.2f} task mean{guarded}"
        )


def _published_table(entries: Sequence[TaskEntry]) -> Grid:
    """Embedded figures alone, where the data that would be measured is not here."""
    values = {role: [float(e.candidates[role]["ndcg_at_10"]) for e in entries] for role in ROLES}
    weights = [entry.counts["queries"] for entry in entries]
    rows: list[list[Cell]] = [
        [entry.name, f"{weights[at]:,}", *(f"{100 * values[role][at]:.2f}" for role in ROLES)]
        for at, entry in enumerate(entries)
    ]
    if len(entries) > 1:
        weighted = {role: weighted_mean(values[role], weights) for role in ROLES}
        plain = {role: fmean(values[role]) for role in ROLES}
        total = f"{sum(weights):,}"
        rows.append(["query-weighted mean", total, *_cells(weighted, ROLES)])
        rows.append([f"mean of {len(entries)} tasks", total, *_cells(plain, ROLES)])
    title = "nDCG@10 × 100 as published (the data is not here)"
    return Grid(_columns(ROLES), rows, ends=frozenset([len(entries) - 1]), title=title)


def fidelity_tables(agreement: Fidelity) -> Iterator[RenderableType]:
    """The two rankings side by side, then how far they agree."""
    columns = [
        Column("system", right=False, cell=lambda place: SystemName(place.system)),
        Column("full", cell=lambda place: f"{100 * place.full:.2f}"),
        Column("rank", cell=lambda place: f"{place.full_rank:g}"),
        Column("nano", cell=lambda place: f"{100 * place.nano:.2f}"),
        Column("rank", cell=lambda place: f"{place.nano_rank:g}"),
    ]
    title = f"{agreement.metric} × 100 · {agreement.full} and {agreement.nano}"
    title += f", {agreement.queries:,} queries"
    yield Grid.of(columns, agreement.places, title=title)
    for name, value, interval in (
        ("Kendall tau-b", agreement.kendall, agreement.kendall_interval),
        ("Spearman rho", agreement.spearman, agreement.spearman_interval),
    ):
        percent = f"{100 * interval.confidence:g} %"
        yield Text(f"{name:13} {value:+.3f}  [{interval.low:+.3f}, {interval.high:+.3f}] {percent}")
    yield from (Text(note, style="dim") for note in agreement.passed_over)


def _columns(roles: Sequence[Role]) -> list[Column]:
    first = [Column("task", right=False, fixed=True), Column("queries")]
    return [*first, *(Column(TITLES[role]) for role in roles)]


def _cells(values: Mapping[Role, float], roles: Sequence[Role]) -> list[str | None]:
    return [f"{100 * values[role]:.2f}" if role in values else None for role in roles]


def _retrieval_table(profile: Profile) -> Grid:
    subsets = list(subset_figures(profile))
    measured = {role for role, published, _ in subsets if not published}
    titles = [
        TITLES[role]
        if not published
        else ("published" if role in measured else f"{TITLES[role]} published")
        for role, published, _ in subsets
    ]
    columns = [Column("figure", right=False, fixed=True), *map(Column, titles)]
    rows = figure_rows([figures for _, _, figures in subsets])
    return Grid(columns, rows, title="retrieval profiles")
