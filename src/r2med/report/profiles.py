"""Profiles in the terminal: a task's shape, its three retrieval profiles, a group, fidelity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from r2med.nano.candidates import ROLES, TITLES, Role
from r2med.nano.profiles import (
    PUBLISHED_NAMES,
    DataProfile,
    Profile,
    Profiles,
    group_means,
    published_means,
)
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, points
from r2med.tasks.registry import TaskEntry

if TYPE_CHECKING:
    from r2med.nano.fidelity import Fidelity


def draw(value: Profiles, out: Paper) -> None:
    """Print a task's profile, or a table of several; of data that is not here what is published."""
    parts: list[RenderableType]
    if value.absent:
        hint = f"Bring the data here with: r2med fetch {value.absent[0].name}"
        parts = [_published_table(value.absent), hint]
    elif len(value.tasks) > 1:
        parts = [*group_parts(value.tasks, value.title)]
    else:
        [profile] = value.tasks
        heading = Text(f"{profile.task} · observed profile", style="bold")
        parts = [heading, data_grid(profile.data), Text(), *retrieval_parts(profile)]
        if profile.best is not None:
            score = 100 * profile.best.ndcg_10
            parts.append(f"best by nDCG@10: {TITLES[profile.best.role]} ({score:.2f})")
    for part in parts:
        out.print(part)


def data_rows(data: DataProfile) -> list[tuple[str, str]]:
    """The observed profile as pairs of name and figure."""
    lowest, highest, median = data.positives_min, data.positives_max, data.positives_median
    several, share = data.multi_positive_queries, 100 * data.multi_positive_share
    query, document = data.query_length_mean, data.document_length_mean
    figures = {
        "queries": f"{data.queries:,}",
        "documents": f"{data.documents:,}",
        "positives": f"{data.positives:,}",
        "positives per query": f"{lowest:,} to {highest:,}, median {median:g}, "
        f"mean {data.positives_mean:.2f}",
        "more than one positive": f"{several:,} queries ({share:.1f} %)",
        "characters per query": f"mean {query:,.1f}, at most {data.query_length_max:,}",
        "characters per document": f"mean {document:,.1f}, at most {data.document_length_max:,}",
    }
    return list(figures.items())


def data_grid(data: DataProfile) -> Grid:
    """The observed profile as a table."""
    return Grid([Column("data", right=False, fixed=True), Column("", right=False)], data_rows(data))


def retrieval_parts(profile: Profile) -> Iterator[RenderableType]:
    """One column per candidate subset, published figures beside the measured; who ranked what."""
    subsets: dict[str, Mapping[str, float]] = {}
    for role in ROLES:
        measured, published = profile.of(role), profile.published.get(role)
        if measured is not None:
            subsets[TITLES[role]] = measured.figures()
        if published:
            known = {name: key for name, key in PUBLISHED_NAMES.items() if key in published}
            figures = {name: float(published[key]) for name, key in known.items()}
            subsets[f"{TITLES[role]}, published"] = figures
    names = dict.fromkeys(name for figures in subsets.values() for name in figures)
    rows = [[name, *(_figure(name, own.get(name)) for own in subsets.values())] for name in names]
    columns = [Column("figure", right=False, fixed=True), *map(Column, subsets)]
    yield Grid(columns, rows, title="retrieval profiles")
    yield Text("scores × 100; binary judgements, lists in their own order", style="dim")
    for row in profile.retrieval:
        yield Text(f"{TITLES[row.role]} is {row.source}.", style="dim")


def _figure(name: str, value: float | None) -> Cell:
    """A figure of a profile: a count as it is, a score times 100."""
    if value is not None and name.startswith(("candidates", "safeguard")):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return points(value)


def group_parts(profiles: Sequence[Profile], title: str) -> Iterator[RenderableType]:
    """One row per task with the nDCG@10 of each subset, then both means, each labelled."""
    roles = [role for role in ROLES if any(one.of(role) for one in profiles)]
    rows: list[list[Cell]] = []
    for one in profiles:
        measured = {row.role: row.ndcg_10 for row in one.retrieval}
        best = TITLES[one.best.role] if one.best else None
        rows.append([one.task, f"{one.data.queries:,}", *_cells(measured, roles), best])
    queries = f"{sum(one.data.queries for one in profiles):,}"
    means, published = group_means(profiles), published_means([one.published for one in profiles])
    for label, count, values in (
        ("query-weighted mean", queries, {m.role: m.ndcg_10_query_weighted for m in means}),
        (f"mean of {len(profiles)} tasks", queries, {m.role: m.ndcg_10_task_mean for m in means}),
        ("published, query-weighted", "", {role: pair[0] for role, pair in published.items()}),
        ("published, task mean", "", {role: pair[1] for role, pair in published.items()}),
    ):
        if values:
            rows.append([Text(label, style="italic"), count, *_cells(values, roles), ""])
    columns = [*_columns(roles), Column("best", right=False)]
    ends = frozenset([len(profiles) - 1])
    yield Grid(columns, rows, ends=ends, title=f"{title} · nDCG@10 × 100 by candidate subset")
    for mean in means:
        yield Text(
            f"{TITLES[mean.role]}: hit@10 {100 * mean.hit_10_query_weighted:.2f} query-weighted, "
            f"{100 * mean.hit_10_task_mean:.2f} task mean; recall@100 "
            f"{100 * mean.recall_100_micro:.2f} micro, "
            f"{100 * mean.recall_100_task_mean:.2f} task mean; "
            f"safeguard rows: {mean.safeguard_rows:,}"
        )


def _published_table(entries: Sequence[TaskEntry]) -> Grid:
    """Embedded figures alone, where the data that would be measured is not here."""
    rows: list[list[Cell]] = []
    for entry in entries:
        figures = {role: float(entry.candidates[role]["ndcg_at_10"]) for role in ROLES}
        rows.append([entry.name, f"{entry.counts['queries']:,}", *_cells(figures, ROLES)])
    if len(entries) > 1:
        means = published_means([entry.candidates for entry in entries])
        total = f"{sum(entry.counts['queries'] for entry in entries):,}"
        for at, label in enumerate(("query-weighted mean", f"mean of {len(entries)} tasks")):
            rows.append([label, total, *_cells({r: means[r][at] for r in ROLES}, ROLES)])
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


def _cells(values: Mapping[Role, float], roles: Sequence[Role]) -> list[Cell]:
    return [points(values.get(role)) for role in roles]
