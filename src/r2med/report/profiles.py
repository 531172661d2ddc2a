"""Profiles in the terminal: a task's shape, its three retrieval profiles, a group, fidelity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from r2med.nano.candidates import ROLES, TITLES, Role
from r2med.nano.profiles import Profile, Profiles, group_means
from r2med.report.drawing import draw_registered
from r2med.report.table import Cell, Column, Grid, Paper, SystemName, score_cell

if TYPE_CHECKING:
    from r2med.nano.fidelity import Fidelity


@draw_registered.register
def draw_profiles(value: Profiles, out: Paper) -> None:
    """Print a task's profile, or a table of several; published figures if the data is not here."""
    first, *more_tasks = value.tasks
    parts: list[RenderableType] = []
    if more_tasks:
        parts += group_parts(value.tasks, value.title)
    else:
        parts.append(Text(f"{first.task} · profile", style="bold"))
        parts += [data_grid(first.data), Text()] if first.data else []
        parts += retrieval_parts(first)
        if first.best is not None:
            parts.append(
                f"best by nDCG@10: {TITLES[first.best.role]} ({score_cell(first.best.ndcg)})"
            )
    if not first.data:
        parts.append(f"The data is not here; bring it with: r2med fetch {first.task}")
    for part in parts:
        out.print(part)


def data_rows(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the observed profile of a task's data as pairs of name and figure."""
    positives, query_length, document_length = (
        data[part] for part in ("positives_per_query", "query_length", "document_length")
    )
    several, share = positives["multi_positive_queries"], positives["multi_positive_query_percent"]
    spread = f"{positives['min']:,} to {positives['max']:,}, median {positives['median']:g}"
    return [
        *((name, f"{data[name]:,}") for name in ("queries", "documents", "positives")),
        ("positives per query", f"{spread}, mean {positives['average']:.2f}"),
        ("more than one positive", f"{several:,} queries ({share:.1f} %)"),
        (
            "characters per query",
            f"mean {query_length['mean']:,.1f}, at most {query_length['max']:,}",
        ),
        (
            "characters per document",
            f"mean {document_length['mean']:,.1f}, at most {document_length['max']:,}",
        ),
    ]


def data_grid(data: Mapping[str, Any]) -> Grid:
    """Return the observed profile of a task's data as a table."""
    return Grid([Column("data", right=False, fixed=True), Column("", right=False)], data_rows(data))


def retrieval_parts(profile: Profile) -> Iterator[RenderableType]:
    """Yield a table with one column per candidate list, measured or published.

    Then yields a line for each measured list that names its retriever.
    """
    rows_with_marks = [(row, "") for row in profile.retrieval]
    rows_with_marks += [(row, ", published") for row in profile.published]
    rows_with_marks.sort(key=lambda pair: ROLES.index(pair[0].role))
    subsets = {TITLES[row.role] + mark: row.figures for row, mark in rows_with_marks}
    names = dict.fromkeys(name for figures in subsets.values() for name in figures)
    rows = [
        [
            name.replace("_", " "),
            *(_figure(name, figures.get(name)) for figures in subsets.values()),
        ]
        for name in names
    ]
    columns = [Column("figure", right=False, fixed=True), *map(Column, subsets)]
    yield Grid(columns, rows, title="retrieval profiles")
    yield Text("scores × 100; binary judgements, lists in their own order", style="dim")
    for row in profile.retrieval:
        yield Text(f"{TITLES[row.role]} is {row.source}.", style="dim")


def _figure(name: str, value: float | None) -> Cell:
    """Return a cell with a figure of a profile: a plain count, or a score times 100."""
    if value is not None and name.startswith(("candidates", "safeguard")):
        return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}"
    return score_cell(value)


def group_parts(profiles: Sequence[Profile], title: str) -> Iterator[RenderableType]:
    """Yield a table of nDCG@10 per task and subset, with labelled means below the tasks.

    Then yields a line with the other mean scores of each subset.
    """
    means = group_means([profile.retrieval for profile in profiles])
    published = group_means([profile.published for profile in profiles])
    retrievals = [profile.retrieval or profile.published for profile in profiles]
    roles = [
        role
        for role in ROLES
        if any(row.role == role for retrieval in retrievals for row in retrieval)
    ]
    counts = [
        profile.data["queries"] if profile.data else profile.published[0].queries
        for profile in profiles
    ]

    def row(label: Cell, count: int, values: Mapping[Role, float], best: Cell) -> list[Cell]:
        return [label, f"{count:,}", *(score_cell(values.get(role)) for role in roles), best]

    rows = []
    for profile, retrieval, count in zip(profiles, retrievals, counts, strict=True):
        best = TITLES[profile.best.role] if profile.best else None
        rows.append(
            row(profile.task, count, {subset.role: subset.ndcg for subset in retrieval}, best)
        )
    for label, averages, mean_type in (
        ("query-weighted mean", means, "weighted"),
        (f"task mean of {len(profiles)} tasks", means, "task_mean"),
        ("published, query-weighted", published, "weighted"),
        ("published, task mean", published, "task_mean"),
    ):
        if averages:
            values = {mean.role: getattr(mean, mean_type)["ndcg@10"] for mean in averages}
            rows.append(row(Text(label, style="italic"), sum(counts), values, ""))
    columns = [Column("task", right=False, fixed=True), Column("queries")]
    columns += [*(Column(TITLES[role]) for role in roles), Column("best", right=False)]
    measured = any(profile.retrieval for profile in profiles)
    figures = f"nDCG@10 × 100 by candidate subset{'' if measured else ', as published'}"
    ends = frozenset([len(profiles) - 1])
    yield Grid(columns, rows, ends=ends, title=f"{title} · {figures}")
    for mean in means or published:
        weighted, plain = mean.weighted, mean.task_mean
        yield Text(
            f"{TITLES[mean.role]}: hit@10 {score_cell(weighted['hit@10'])} query-weighted, "
            f"{score_cell(plain['hit@10'])} task mean; recall@100 "
            f"{score_cell(weighted['micro_recall@100'])} micro, "
            f"{score_cell(plain['micro_recall@100'])} task mean; "
            f"safeguard rows: {mean.safeguard_rows:,}"
        )


def fidelity_tables(agreement: Fidelity) -> Iterator[RenderableType]:
    """Yield a table of the two rankings side by side, then lines on how far they agree."""
    columns = [
        Column("system", right=False, cell=lambda standing: SystemName(standing.system)),
        Column("full", cell=lambda standing: score_cell(standing.full)),
        Column("rank", cell=lambda standing: f"{standing.full_rank:g}"),
        Column("nano", cell=lambda standing: score_cell(standing.nano)),
        Column("rank", cell=lambda standing: f"{standing.nano_rank:g}"),
    ]
    title = f"{agreement.metric} × 100 · {agreement.full} and {agreement.nano}"
    title += f", {agreement.queries:,} queries"
    yield Grid.of(columns, agreement.systems, title=title)
    for name, value, interval in (
        ("Kendall tau-b", agreement.kendall, agreement.kendall_interval),
        ("Spearman rho", agreement.spearman, agreement.spearman_interval),
    ):
        percent = f"{100 * interval.confidence:g} %"
        yield Text(f"{name:13} {value:+.3f}  [{interval.low:+.3f}, {interval.high:+.3f}] {percent}")
    yield from (Text(note, style="dim") for note in agreement.passed_over)
