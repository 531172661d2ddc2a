"""Profiles in the terminal: a task's shape, its three retrieval profiles, a group, fidelity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from r2med.nano.candidates import ROLES, TITLES
from r2med.nano.profiles import (
    PUBLISHED_NAMES,
    DataProfile,
    GroupMean,
    Profile,
    group_means,
    published_means,
    weighted_mean,
)
from r2med.tasks.registry import TaskEntry

if TYPE_CHECKING:
    from r2med.nano.fidelity import Fidelity


def data_rows(data: DataProfile) -> list[tuple[str, str]]:
    """The observed profile as pairs of name and figure."""
    return [
        ("queries", f"{data.queries:,}"),
        ("documents", f"{data.documents:,}"),
        ("positives", f"{data.positives:,}"),
        (
            "positives a query",
            f"{data.positives_min:,} least, {data.positives_median:g} median, "
            f"{data.positives_mean:.2f} mean, {data.positives_max:,} most",
        ),
        (
            "more than one positive",
            f"{data.multi_positive_queries:,} queries ({100 * data.multi_positive_share:.1f} %)",
        ),
        (
            "characters a query",
            f"{data.query_length_mean:,.1f} mean, {data.query_length_max:,} most",
        ),
        (
            "characters a document",
            f"{data.document_length_mean:,.1f} mean, {data.document_length_max:,} most",
        ),
    ]


def profile_tables(profile: Profile) -> Iterator[RenderableType]:
    """One task: its data, then one column a subset, published figures beside the measured."""
    table = Table(
        title=Text(f"{profile.task} · observed profile"),
        title_justify="left",
        title_style="bold",
        box=None,
        show_header=False,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    for name, figure in data_rows(profile.data):
        table.add_row(name, figure)
    yield table
    yield Text()
    yield _retrieval_table(profile)
    yield Text("binary judgements, lists in their own order", style="dim")
    if profile.best is not None:
        yield Text(f"best by nDCG@10: {TITLES[profile.best.role]} ({profile.best.ndcg_10:.4f})")


def group_tables(profiles: Sequence[Profile], title: str) -> Iterator[RenderableType]:
    """One row a task with the nDCG@10 of each subset, then both means, each labelled."""
    roles = [role for role in ROLES if any(one.of(role) for one in profiles)]
    table = _plain(f"{title} · nDCG@10 by candidate subset")
    table.add_column("task", overflow="fold", min_width=24)
    table.add_column("queries", justify="right")
    for role in roles:
        table.add_column(TITLES[role], justify="right")
    table.add_column("best")
    for one in profiles:
        rows = [one.of(role) for role in roles]
        best = TITLES[one.best.role] if one.best else "-"
        cells = [f"{row.ndcg_10:.4f}" if row else "-" for row in rows]
        table.add_row(Text(one.task), f"{one.data.queries:,}", *cells, best)
    means = {mean.role: mean for mean in group_means(profiles)}
    queries = f"{sum(one.data.queries for one in profiles):,}"
    table.add_section()
    for label, name in (
        ("query-weighted mean", "ndcg_10_query_weighted"),
        (f"mean of {len(profiles)} tasks", "ndcg_10_task_mean"),
    ):
        cells = [f"{getattr(means[role], name):.4f}" if role in means else "-" for role in roles]
        table.add_row(Text(label, style="italic"), queries, *cells, "")
    for at, label in ((0, "published, query-weighted"), (1, "published, task mean")):
        known = published_means(profiles)
        if known:
            cells = [f"{known[role][at]:.4f}" if role in known else "-" for role in roles]
            table.add_row(Text(label, style="italic"), "", *cells, "")
    yield table
    yield from (_group_line(mean) for mean in group_means(profiles))


def published_table(entries: Sequence[TaskEntry]) -> Table:
    """Embedded figures alone, where the data that would be measured is not here."""
    table = _plain("nDCG@10 as published; the data is not here, so nothing was measured")
    table.add_column("task", no_wrap=True)
    table.add_column("queries", justify="right")
    for role in ROLES:
        table.add_column(TITLES[role], justify="right")
    values = {role: [float(e.candidates[role]["ndcg_at_10"]) for e in entries] for role in ROLES}
    for place, entry in enumerate(entries):
        cells = [f"{values[role][place]:.4f}" for role in ROLES]
        table.add_row(entry.name, f"{entry.counts['queries']:,}", *cells)
    if len(entries) > 1:
        weights = [entry.counts["queries"] for entry in entries]
        table.add_section()
        weighted = [f"{weighted_mean(values[role], weights):.4f}" for role in ROLES]
        table.add_row("query-weighted mean", f"{sum(weights):,}", *weighted)
        plain = [f"{fmean(values[role]):.4f}" for role in ROLES]
        table.add_row(f"mean of {len(entries)} tasks", f"{sum(weights):,}", *plain)
    return table


def fidelity_tables(found: Fidelity) -> Iterator[RenderableType]:
    """The two rankings side by side, then how far they agree."""
    table = _plain(f"{found.metric} · {found.full} and {found.nano}, {found.queries:,} queries")
    table.add_column("system", overflow="fold")
    for column in ("full", "rank", "nano", "rank"):
        table.add_column(column, justify="right")
    for place in found.places:
        table.add_row(
            Text(place.system),
            f"{place.full:.4f}",
            f"{place.full_rank:g}",
            f"{place.nano:.4f}",
            f"{place.nano_rank:g}",
        )
    yield table
    for name, value, interval in (
        ("Kendall tau-b", found.kendall, found.kendall_interval),
        ("Spearman rho", found.spearman, found.spearman_interval),
    ):
        percent = f"{100 * interval.confidence:g} %"
        yield Text(f"{name:13} {value:+.3f}  [{interval.low:+.3f}, {interval.high:+.3f}] {percent}")
    yield from (Text(note, style="dim") for note in found.passed_over)


def _retrieval_table(profile: Profile) -> Table:
    table = _plain("retrieval profiles")
    table.add_column("figure", no_wrap=True)
    for row in profile.retrieval:
        table.add_column(TITLES[row.role], justify="right")
        if row.published:
            table.add_column("published", justify="right", style="dim")
    missing = [role for role in profile.published if profile.of(role) is None]  # type: ignore[arg-type]
    for role in missing:
        table.add_column(f"{role} published", justify="right", style="dim")
    names = list(dict.fromkeys(name for row in profile.retrieval for name in row.figures()))
    for name in names or list(PUBLISHED_NAMES):
        cells = []
        for row in profile.retrieval:
            cells.append(figure(name, row.figures().get(name)))
            if row.published:
                cells.append(figure(name, row.published.get(PUBLISHED_NAMES.get(name, ""))))
        for role in missing:
            cells.append(figure(name, profile.published[role].get(PUBLISHED_NAMES.get(name, ""))))
        table.add_row(name, *cells)
    return table


def figure(name: str, value: float | None) -> str:
    """A figure of a profile: a count as it is, a share with four digits, "-" where unknown."""
    if value is None:
        return "-"
    whole = name.startswith(("candidates", "safeguard")) and float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:.4f}"


def _group_line(mean: GroupMean) -> Text:
    guarded = f"; {mean.safeguard_rows} safeguard rows" if mean.safeguard_rows else ""
    return Text(
        f"{TITLES[mean.role]}: hit@10 {mean.hit_10_query_weighted:.4f} query-weighted, "
        f"{mean.hit_10_task_mean:.4f} task mean; recall@100 {mean.recall_100_micro:.4f} micro, "
        f"{mean.recall_100_task_mean:.4f} task mean{guarded}"
    )


def _plain(title: str) -> Table:
    return Table(
        title=Text(title),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
