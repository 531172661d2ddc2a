"""Score tables: an evaluation, labelled so that no mean is mistaken, and stored results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

from rich.console import Console, Group
from rich.text import Text

from r2med.errors import R2MedError
from r2med.measure.metrics import HEADLINE, parse_metric
from r2med.measure.significance import SIGNIFICANT
from r2med.report.table import (
    SHORT_NAMES,
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    age,
    file_size,
    mean_of,
    pairs,
    percent,
    points,
    print_fitting,
    signed,
    task_label,
)
from r2med.results.evaluation import MARK, Evaluation, Listing, size
from r2med.results.protocols import works_beside
from r2med.results.record import Result
from r2med.tasks.registry import find_suite, find_task
from r2med.tasks.task import SAMPLE

Grouping = Literal["task", "scenario", "family"]

_LABELS = {
    "full": "R2MED",
    "nano": "NanoR2MED",
    "demo": "demo suite, edition {edition}, not comparable with published figures",
    None: "your data",
    SAMPLE: "a sample for a quick try: no part of a mean or leaderboard",
}
_SHORT = {
    "ndcg": "nDCG",
    "map": "MAP",
    "recall": "R",
    "precision": "P",
    "hit": "hit",
    "mrr": "MRR",
    "rprec": "Rprec",
    "bpref": "Bpref",
    "judged": "judged",
}
_CEILING = "ceiling"
#: A share of documents above which a reader must know that they were cut.
_MANY_CUT = 0.05
_SCALE = "all values × 100"
_BEHIND = (
    f"*: below the best of its column, p < {SIGNIFICANT} (paired randomisation test, Holm's "
    "correction over the systems; each column is tested by itself, not corrected over tasks)"
)
_OLDER = (
    "older: stored by an older version that did not record all settings; tables and comparisons "
    "leave these out. `r2med eval` runs them again."
)


def draw(value: Evaluation | Listing, out: Paper, *, by: Grouping = "task") -> None:
    """Print the grids, then what a reader of them must know; or the list of stored results."""
    if isinstance(value, Listing):
        _draw_listing(value, out)
        return
    if not isinstance(out, Console):  # a page outlives this run, so it says nothing of it
        value = replace(value, results=[replace(each, reused=False) for each in value.results])
    for layouts in score_layouts(value.results, value.asked, by=by):
        print_fitting(layouts, out)
        out.print()
    for note in (
        *reused_notes(value.results),
        *truncation_notes(value.results),
        *reranking_notes(value.results, value.metrics),
        *index_notes(value.results),
    ):
        out.print(note)


def score_layouts(
    results: Sequence[Result], asked: Sequence[str] = (), *, by: Grouping = "task"
) -> Iterator[list[Grid]]:
    """Grids for any mix of systems and tasks, each in layouts from wide to narrow.

    Data of different suites is never averaged. Several systems are rows: over the metrics on one
    task, over the tasks on several, where every metric that was asked for has a grid of its own
    (without any, the first headline metric). One system has one row per task.
    """
    for (suite, _), group in groupby(sorted(results, key=_suite_order), key=_averaged):
        own = Evaluation(list(group), asked)
        label = _LABELS[suite].format(edition=find_suite("demo").entries[0].edition)
        if len(own.systems) == 1:
            yield [_one_system(own, label, by)]
        elif len(own.tasks) == 1:
            yield [_one_task(own, label)]
        else:
            for metric in asked or HEADLINE[:1]:
                yield list(_many(own, metric, label, by))


def _averaged(result: Result) -> tuple[str | None, str]:
    """What results share whose mean is taken; a sample stands alone."""
    return result.suite, result.task if result.suite == SAMPLE else ""


def _suite_order(result: Result) -> int:
    return list(_LABELS).index(result.suite)


def _one_system(own: Evaluation, label: str, by: Grouping) -> Grid:
    """One row per task under its family, or one per group; then the mean over the tasks."""
    (system,) = own.systems
    columns = [own.column(system, metric) for metric in own.metrics]
    headings = [_heading(metric) for metric in own.metrics]
    if own.reranked(system):
        columns.insert(1, own.column(system, own.metrics[0], ceiling=True))
        headings.insert(1, _CEILING)
    rows: list[list[Cell]] = []
    ends: list[int] = []
    if by == "task":
        for family, tasks in groupby(own.tasks, key=lambda task: _group(task, "family")):
            if family:
                rows.append([Text(family, style="italic")])
            for task in tasks:
                name = SystemName(" " * bool(family) + task, own.mark(task=task))
                rows.append([name, *(points(column[task]) for column in columns)])
            ends.append(len(rows) - 1)
    else:
        for group, members in _groups(own.tasks, by).items():
            means = (points(mean_of(column[task] for task in members)) for column in columns)
            many = f" (mean of {len(members)})" if len(members) > 1 else ""
            rows.append([group + many, *means])
        ends.append(len(rows) - 1)
    if len(own.tasks) > 1:
        means = (points(mean_of(column.values())) for column in columns)
        rows.append([f"mean of {len(own.tasks)} tasks", *means])
    return Grid(
        [Column("task", right=False), *map(Column, headings)],
        rows,
        ends=frozenset(ends),
        title=f"{system} · {label}",
        caption=_SCALE,
    )


def _one_task(own: Evaluation, label: str) -> Grid:
    """One row per system, one column per metric."""
    (task,) = own.tasks
    rows: list[list[Cell]] = []
    behind = {metric: own.behind([task], metric) for metric in own.metrics}
    for system in own.systems:
        values = {metric: own.column(system, metric)[task] for metric in own.metrics}
        cells = (_marked(value, behind[name], system, 2) for name, value in values.items())
        rows.append([SystemName(system, own.mark(system=system)), *cells])
        if own.reranked(system):
            best = (own.column(system, metric, ceiling=True)[task] for metric in own.metrics)
            rows.append([_ceiling(), *(points(value, style="dim") for value in best)])
    metrics = (Column(_heading(metric), best=_has_best(metric)) for metric in own.metrics)
    return Grid(
        [Column("system", right=False), *metrics],
        rows,
        title=f"{task} · {label}",
        caption=_caption(*behind.values()),
    )


def _many(own: Evaluation, metric: str, label: str, by: Grouping) -> Iterator[Grid]:
    """One row per system, its mean first, then one column per task or group of tasks."""
    groups = {task: [task] for task in own.tasks} if by == "task" else _groups(own.tasks, by)
    behind = {name: own.behind(tasks, metric) for name, tasks in groups.items()}
    overall = own.behind(own.tasks, metric)
    names = {name: task_label(name) for name in groups}
    short = {name: SHORT_NAMES.get(title, title) for name, title in names.items()}
    means = _mean_caption(own.tasks, groups)
    for titles, digits, gap in ((names, 2, 2), (short, 2, 2), (short, 2, 1), (short, 1, 1)):
        rows: list[list[Cell]] = []
        for system in own.systems:
            column = own.column(system, metric)
            cells = [
                _marked(mean_of(column[task] for task in tasks), behind[name], system, digits)
                for name, tasks in groups.items()
            ]
            mean = _marked(mean_of(column.values()), overall, system, 2)
            rows.append([SystemName(system, own.mark(system=system)), mean, *cells])
            if own.reranked(system):
                best = own.column(system, metric, ceiling=True)
                values = [mean_of(best[task] for task in tasks) for tasks in groups.values()]
                dim = (points(value, digits, "dim") for value in values)
                rows.append([_ceiling(), points(mean_of(best.values()), style="dim"), *dim])
        best_is_bold = _has_best(metric)
        columns = [Column("system", right=False), Column("mean", best=best_is_bold)]
        columns += [Column(title, best=best_is_bold) for title in titles.values()]
        yield Grid(
            columns,
            rows,
            gap=gap,
            title=f"{metric} · {label}",
            caption=f"{means}; {_caption(overall, *behind.values())}",
        )


def _has_best(metric: str) -> bool:
    """Whether more is better; how much was judged is no quality."""
    return parse_metric(metric).kind != "judged"


def _marked(value: float | None, behind: frozenset[str], system: str, digits: int) -> Cell:
    """A score with its star; where others of its column have one, a space keeps the digits even."""
    text = points(value, digits)
    if text is not None and behind:
        text.append("*" if system in behind else " ")
    return text


def _ceiling() -> Text:
    return Text(f"  {_CEILING}", style="dim")


def _caption(*behind: frozenset[str]) -> str:
    return f"{_SCALE}; {_BEHIND}" if any(behind) else _SCALE


def _mean_caption(tasks: Sequence[str], groups: Mapping[str, Sequence[str]]) -> str:
    counts = ", ".join(f"{name} of {len(own)}" for name, own in groups.items() if len(own) > 1)
    return f"mean of {len(tasks)} tasks" + (f" ({counts})" if counts else "")


def _groups(tasks: Sequence[str], by: Grouping) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for task in tasks:
        groups.setdefault(_group(task, by) or task, []).append(task)
    return groups


def _group(task: str, by: Grouping) -> str:
    """The family or scenario of a registered task; none for data of the user's own."""
    try:
        entry = find_task(task)
    except R2MedError:
        return ""
    return {"family": entry.family, "scenario": entry.scenario, "task": task}[by]


def _heading(metric: str) -> str:
    """A metric's usual short name, so that six of them fit beside the tasks; others as they are."""
    kind, at, cutoff = metric.partition("@")
    return f"{_SHORT[kind]}{at}{cutoff}" if kind in _SHORT else metric


def reused_notes(results: Sequence[Result]) -> Iterator[str]:
    """Which results were not run now but stored before, and how long ago."""
    stored = [result for result in results if result.reused]
    if not stored:
        return
    ages = [age(each.record.created) for each in sorted(stored, key=lambda r: r.record.created)]
    when = ages[-1] if ages[0] == ages[-1] else f"{ages[-1]} to {ages[0]}"
    ago = f"{when}{'' if when.endswith('now') else ' ago'}".replace("now", "just now")
    every = len(stored) == len(results)
    which = f"{MARK}: {len(stored)} of {len(results)} results were"
    if every:
        which = "All results were" if len(stored) > 1 else "The result was"
    yield f"{which} stored before ({ago}) and not run now; --force runs again."


def truncation_notes(results: Sequence[Result]) -> Iterator[str]:
    """Which encoders and rerankers read only the beginning of many documents."""
    cut: dict[str, dict[str, float]] = {}
    for result in results:
        for part, facts in result.record.facts.items():
            documents = facts.get("documents")
            share = documents.get("truncated") if isinstance(documents, Mapping) else None
            if share is not None and share > _MANY_CUT:
                cut.setdefault(part, {})[result.task] = share
    for part, shares in cut.items():
        worst = max(shares, key=lambda task: shares[task])
        others = f" ({len(shares)} tasks have more than {percent(_MANY_CUT)} of such)"
        yield (
            f"{part} reads only the beginning of {percent(shares[worst])} of the documents of "
            f"{worst}{others if len(shares) > 1 else ''}: they are longer than it takes."
        )


def reranking_notes(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    """What a reader of reranked scores must know; each sentence only where it applies."""
    if any(result.record.reranking for result in results):
        yield "ceiling: what a perfect reranker of the same candidates would score."
    yield from dict.fromkeys(_deeper(results, metrics))
    name = metrics[0] if metrics else ""
    for result in results:
        if (safeguard := result.record.safeguard) is not None:
            count = safeguard.queries
            queries = "1 query has a positive" if count == 1 else f"{count} queries have one"
            yield (
                f"{result.task}, {result.name}: safeguard on, {queries} put at rank 101; without "
                f"it {name} is {100 * safeguard.metrics_without[name]:.2f}, "
                f"not {100 * result.metrics[name]:.2f}."
            )


def _deeper(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    for result in results:
        reranking = result.record.reranking
        if reranking is None:
            continue
        deeper = [name for name in metrics if (parse_metric(name).cutoff or 0) > reranking.depth]
        if deeper:
            keeps = reranking.tail == "keep"
            below = "below them stands the first stage's order" if keeps else "the list ends there"
            yield (
                f"{', '.join(deeper)} {'reads' if len(deeper) == 1 else 'read'} deeper than the "
                f"{reranking.depth} documents that {result.name} reranks: {below} "
                f"(tail={reranking.tail})."
            )


def index_notes(results: Sequence[Result]) -> Iterator[str]:
    """What approximate indexes cost: over the tasks at most, and against which system."""
    losses: dict[str, dict[str, Mapping[str, Any]]] = {}
    for result in results:
        for part, facts in result.record.facts.items():
            if isinstance(loss := facts.get("loss"), Mapping):
                losses.setdefault(part, {})[result.task] = loss
    for part, tasks in losses.items():
        for task, loss in sorted(tasks.items(), key=lambda item: item[1]["difference"])[:1]:
            recall, metric = loss["recall_of_exact_100"], _heading(loss["metric"])
            worst = f", the most of {len(tasks)} tasks" if len(tasks) > 1 else ""
            yield (
                f"The index of {part} finds {percent(recall)} of the exact first 100 on {task}; "
                f"{metric} {signed(loss['difference'])} [{signed(loss['low'])}, "
                f"{signed(loss['high'])}] against exact {loss['exact']}{worst}."
            )


def _draw_listing(listing: Listing, out: Paper) -> None:
    """One row per stored result, then what sets apart those of one name."""
    columns = [
        Column("key", right=False, fixed=True, cell=lambda result: result.key),
        Column("task", right=False, cell=lambda result: SystemName(result.task)),
        Column("system", right=False, cell=lambda result: SystemName(result.name)),
        Column("nDCG@10", cell=lambda result: points(result.metrics.get("ndcg@10"))),
        Column("size", cell=lambda result: file_size(size(result))),
        Column(
            "age",
            cell=lambda result: (
                age(result.record.created) + (" (older)" if result.record.older else "")
            ),
        ),
    ]
    out.print(Grid.of(columns, listing.results))
    for note in listing.notes:
        out.print(note)
    if any(result.record.older for result in listing.results):
        out.print(_OLDER)


def result_details(result: Result) -> Group:
    """What a reader asks of a stored result; JSON has the rest."""
    record, task = result.record, result.record.task
    beside = works_beside(result.system) if result.suite == "full" else ()
    facts = [
        ("key", result.key),
        ("stored in", str(result.folder)),
        ("created", record.created),
        ("data", f"{task.documents:,} documents, {task.queries:,} queries, hash {task.hash[:12]}"),
        ("metrics × 100", ", ".join(f"{n} {100 * v:.2f}" for n, v in record.metrics.items())),
        ("seconds", ", ".join(f"{name} {value:.2f}" for name, value in record.seconds.items())),
        ("depth, tie order", f"{record.system.depth}, {record.system.ties}"),
        ("published as", record.system.published_as or "not published"),
        ("may be set beside", "; ".join(beside) or "no printed figure"),
        ("versions", ", ".join(f"{name} {number}" for name, number in record.versions.items())),
        *(("deviation", text) for text in record.system.deviations),
        *(("notice", text) for text in task.notices),
    ]
    return Group(Text(f"{result.name} · {result.task}", style="bold"), pairs(facts, indent=2))
