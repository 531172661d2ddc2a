"""Profiles in the terminal: a task's shape, its three retrieval profiles, a group, fidelity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from r2med.nano.candidates import ROLES, TITLES, Role
from r2med.nano.profiles import Profile, Profiles, group_means
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, points

if TYPE_CHECKING:
    from r2med.nano.fidelity import Fidelity


def draw(value: Profiles, out: Paper) -> None:
    """Print a task's profile, or a table of several; of data that is not here what is published."""
    first, *others = value.tasks
    parts: list[RenderableType] = []
    if others:
        parts += group_parts(value.tasks, value.title)
    else:
        parts.append(Text(f"{first.task} · profile", style="bold"))
        parts += [data_grid(first.data), Text()] if first.data else []
        parts += retrieval_parts(first)
        if first.best is not None:
            parts.append(f"best by nDCG@10: {TITLES[first.best.role]} ({points(first.best.ndcg)})")
    if not first.data:
        parts.append(f"The data is not here; bring it with: r2med fetch {first.task}")
    for part in parts:
        out.print(part)


def data_rows(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The observed profile as pairs of name and figure."""
    each, query, document = (
        data[part] for part in ("positives_per_query", "query_length", "document_length")
    )
    several, share = each["multi_positive_queries"], each["multi_positive_query_percent"]
    spread = f"{each['min']:,} to {each['max']:,}, median {each['median']:g}"
    return [
        *((name, f"{data[name]:,}") for name in ("queries", "documents", "positives")),
        ("positives per query", f"{spread}, mean {each['average']:.2f}"),
        ("more than one positive", f"{several:,} queries ({share:.1f} %)"),
        ("characters per query", f"mean {query['mean']:,.1f}, at most {query['max']:,}"),
        ("characters per document", f"mean {document['mean']:,.1f}, at most {document['max']:,}"),
    ]


def data_grid(data: Mapping[str, Any]) -> Grid:
    """The observed profile as a table."""
    return Grid([Column("data", right=False, fixed=True), Column("", right=False)], data_rows(data))


def retrieval_parts(profile: Profile) -> Iterator[RenderableType]:
    """One column per candidate subset, published figures beside the measured; who ranked what."""
    every = [(row, "") for row in profile.retrieval]
    every += [(row, ", published") for row in profile.published]
    every.sort(key=lambda pair: ROLES.index(pair[0].role))
    subsets = {TITLES[row.role] + mark: row.figures for row, mark in every}
    names = dict.fromkeys(name for figures in subsets.values() for name in figures)
    rows = [
        [name.replace("_", " "), *(_figure(name, own.get(name)) for own in subsets.values())]
        for name in names
    ]
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
    means = group_means([one.retrieval for one in profiles])
    published = group_means([one.published for one in profiles])
    shown = [one.retrieval or one.published for one in profiles]
    roles = [role for role in ROLES if any(row.role == role for own in shown for row in own)]
    counts = [one.data["queries"] if one.data else one.published[0].queries for one in profiles]

    def row(label: Cell, count: int, values: Mapping[Role, float], best: Cell) -> list[Cell]:
        return [label, f"{count:,}", *(points(values.get(role)) for role in roles), best]

    rows = []
    for one, own, count in zip(profiles, shown, counts, strict=True):
        best = TITLES[one.best.role] if one.best else None
        rows.append(row(one.task, count, {each.role: each.ndcg for each in own}, best))
    for label, averages, kind in (
        ("query-weighted mean", means, "weighted"),
        (f"task mean of {len(profiles)} tasks", means, "task_mean"),
        ("published, query-weighted", published, "weighted"),
        ("published, task mean", published, "task_mean"),
    ):
        if averages:
            values = {mean.role: getattr(mean, kind)["ndcg@10"] for mean in averages}
            rows.append(row(Text(label, style="italic"), sum(counts), values, ""))
    columns = [Column("task", right=False, fixed=True), Column("queries")]
    columns += [*(Column(TITLES[role]) for role in roles), Column("best", right=False)]
    measured = any(one.retrieval for one in profiles)
    figures = f"nDCG@10 × 100 by candidate subset{'' if measured else ', as published'}"
    ends = frozenset([len(profiles) - 1])
    yield Grid(columns, rows, ends=ends, title=f"{title} · {figures}")
    for mean in means or published:
        weighted, plain = mean.weighted, mean.task_mean
        yield Text(
            f"{TITLES[mean.role]}: hit@10 {points(weighted['hit@10'])} query-weighted, "
            f"{points(plain['hit@10'])} task mean; recall@100 "
            f"{points(weighted['micro_recall@100'])} micro, "
            f"{points(plain['micro_recall@100'])} task mean; "
            f"safeguard rows: {mean.safeguard_rows:,}"
        )


def fidelity_tables(agreement: Fidelity) -> Iterator[RenderableType]:
    """The two rankings side by side, then how far they agree."""
    columns = [
        Column("system", right=False, cell=lambda place: SystemName(place.system)),
        Column("full", cell=lambda place: points(place.full)),
        Column("rank", cell=lambda place: f"{place.full_rank:g}"),
        Column("nano", cell=lambda place: points(place.nano)),
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
