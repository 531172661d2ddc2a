"""Score tables: an evaluation, labelled so that no mean is mistaken, and stored results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich.console import Group
from rich.text import Text

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
    explained,
    mean_of,
    pairs,
    percent,
    points,
    print_fitting,
    scaled,
    signed,
    task_label,
)
from r2med.results.evaluation import Evaluation, Stored, size
from r2med.results.lookup import shared_names
from r2med.results.protocols import works_beside
from r2med.results.record import Result
from r2med.tasks.registry import find_suite, registered_task
from r2med.tasks.task import SAMPLE

Grouping = Literal["task", "scenario", "family"]

_LABELS = {
    "full": "R2MED",
    "nano": "NanoR2MED",
    "demo": "demo suite, edition {edition}, not comparable with published figures",
    None: "your data",
    SAMPLE: "a sample for a quick try: no part of a mean or leaderboard",
}
_SHORT = {"ndcg": "nDCG", "map": "MAP", "recall": "R", "precision": "P"}
_SHORT |= {"mrr": "MRR", "rprec": "Rprec", "bpref": "Bpref"}
_CEILING = "ceiling"
#: A share of documents above which a reader must know that they were cut.
_MANY_CUT = 0.05
_SCALE = "all values × 100"
_BEHIND = (
    f"*: below the best of its column, p < {SIGNIFICANT} (paired randomisation test, Holm's "
    "correction over the systems; each column is tested by itself, not corrected over tasks)"
)


def draw(value: Evaluation | Stored, out: Paper, *, by: Grouping = "task") -> None:
    """Print the grids, then what a reader of them must know; or the list of stored results."""
    if isinstance(value, Stored):
        _draw_stored(value, out)
        return
    for layouts in score_layouts(value.results, value.asked, by=by):
        print_fitting(layouts, out)
        out.print()
    for note in (*reranking_notes(value.results, value.metrics), *index_notes(value.results)):
        out.print(note)


def score_layouts(
    results: Sequence[Result], asked: Sequence[str] = (), *, by: Grouping = "task"
) -> Iterator[list[Grid]]:
    """Grids for any mix of systems and tasks, each in layouts from wide to narrow.

    Data of different suites is never averaged, a sample stands alone. Several systems are rows:
    over the metrics on one task, over the tasks on several, where every metric that was asked for
    has a grid of its own (without any, the first headline metric). One system has one row per task.
    """
    groups: dict[tuple[str | None, str], list[Result]] = {}
    for result in sorted(results, key=lambda each: list(_LABELS).index(each.suite)):
        alone = result.task if result.suite == SAMPLE else ""
        groups.setdefault((result.suite, alone), []).append(result)
    for (suite, _), group in groups.items():
        own = Evaluation(group, asked)
        label = _LABELS[suite].format(edition=find_suite("demo").entries[0].edition)
        if len(own.systems) == 1:
            yield [_one_system(own, label, by)]
        elif len(own.tasks) == 1:
            (task,) = own.tasks
            figures = [
                _Figure(_heading(name), name, [task], own.behind([task], name))
                for name in own.metrics
            ]
            yield [_by_system(own, figures, f"{task} · {label}", _SCALE)]
        else:
            for metric in asked or HEADLINE[:1]:
                yield list(_many(own, metric, label, by))


def _one_system(own: Evaluation, label: str, by: Grouping) -> Grid:
    """One row per task under its family, or one per group; then the mean over the tasks."""
    (system,) = own.systems
    first, *others = own.metrics
    columns = {_heading(first): own.column(system, first)}
    if own.reranked(system):
        columns[_CEILING] = own.column(system, first, ceiling=True)
    columns |= {_heading(metric): own.column(system, metric) for metric in others}

    def row(name: str | SystemName, tasks: Sequence[str]) -> list[Cell]:
        return [name, *(points(mean_of(map(each.get, tasks))) for each in columns.values())]

    rows: list[list[Cell]] = []
    ends: list[int] = []
    for group, tasks in _groups(own.tasks, "family" if by == "task" else by).items():
        if by != "task" or [group] == tasks:
            rows.append(row(f"{group} (mean of {len(tasks)})" if tasks[1:] else group, tasks))
        else:
            rows.append([Text(group, style="italic")])
            rows += [row(SystemName(f" {task}"), [task]) for task in tasks]
            ends.append(len(rows) - 1)
    if len(own.tasks) > 1:
        ends.append(len(rows) - 1)
        rows.append(row(f"mean of {len(own.tasks)} tasks", own.tasks))
    return Grid(
        [Column("task", right=False), *map(Column, columns)],
        rows,
        ends=frozenset(ends),
        title=f"{system} · {label}",
        caption=_SCALE,
    )


@dataclass(frozen=True)
class _Figure:
    """A column of a table of systems: the mean of a metric over some tasks, and who is behind."""

    title: str
    metric: str
    tasks: Sequence[str]
    behind: frozenset[str]

    def cell(self, own: Evaluation, system: str, digits: int, *, ceiling: bool = False) -> Cell:
        """A score with its star; a space keeps the digits even where others have one."""
        column = own.column(system, self.metric, ceiling=ceiling)
        digits = 2 if self.title == "mean" else digits
        text = points(mean_of(map(column.get, self.tasks)), digits, "dim" if ceiling else "")
        if text is not None and self.behind and not ceiling:
            text.append("*" if system in self.behind else " ")
        return text


def _by_system(
    own: Evaluation,
    figures: Sequence[_Figure],
    title: str,
    caption: str,
    *,
    short: bool = False,
    digits: int = 2,
    gap: int = 2,
) -> Grid:
    """One row per system, and below a reranker its ceiling; the mean keeps two digits."""
    caption = f"{caption}; {_BEHIND}" if any(figure.behind for figure in figures) else caption
    rows: list[list[Cell]] = []
    for system in own.systems:
        rows.append([SystemName(system), *(each.cell(own, system, digits) for each in figures)])
        if own.reranked(system):
            best = (each.cell(own, system, digits, ceiling=True) for each in figures)
            rows.append([Text(f"  {_CEILING}", style="dim"), *best])
    columns = [Column("system", right=False)]
    for figure in figures:
        heading = SystemName(SHORT_NAMES.get(figure.title, figure.title) if short else figure.title)
        # How much was judged is no quality.
        columns.append(Column(heading, best=parse_metric(figure.metric).kind != "judged"))
    if short:
        caption = explained(caption, (figure.title for figure in figures))
    return Grid(columns, rows, gap=gap, title=title, caption=caption)


def _many(own: Evaluation, metric: str, label: str, by: Grouping) -> Iterator[Grid]:
    """One row per system, its mean first, then one column per task or group of tasks."""
    groups = _groups(own.tasks, by)
    means = {"mean": own.tasks, **{task_label(name): tasks for name, tasks in groups.items()}}
    figures = [
        _Figure(name, metric, tasks, own.behind(tasks, metric)) for name, tasks in means.items()
    ]
    counts = ", ".join(f"{name} of {len(own)}" for name, own in groups.items() if len(own) > 1)
    caption = f"mean of {len(own.tasks)} tasks{f' ({counts})' if counts else ''}; {_SCALE}"
    for short, digits, gap in ((False, 2, 2), (True, 2, 1), (True, 1, 1)):
        title = f"{metric} · {label}"
        yield _by_system(own, figures, title, caption, short=short, digits=digits, gap=gap)


def _groups(tasks: Sequence[str], by: Grouping) -> dict[str, list[str]]:
    """Tasks by family or scenario, or each alone, as data of the user's own is always."""
    groups: dict[str, list[str]] = {}
    for task in tasks:
        entry = registered_task(task)
        group = {"family": entry.family, "scenario": entry.scenario}.get(by) if entry else None
        groups.setdefault(group or task, []).append(task)
    return groups


def _heading(metric: str) -> str:
    """A metric's usual short name, so that six of them fit beside the tasks; others as they are."""
    kind, at, cutoff = metric.partition("@")
    return f"{_SHORT[kind]}{at}{cutoff}" if kind in _SHORT else metric


def reused_notes(results: Sequence[Result]) -> Iterator[str]:
    """Which results were not run now but stored before, and how long ago; none for none."""
    stored = [result for result in results if result.reused]
    if not stored:
        return
    systems = ", ".join(dict.fromkeys(result.name for result in stored))
    oldest = age(min(result.record.created for result in stored))
    yield (
        f"stored before and not run now: {len(stored)} of {len(results)} results ({systems}), up "
        f"to {oldest} ago. --force runs again."
    )


def truncation_notes(results: Sequence[Result]) -> Iterator[str]:
    """Which encoders and rerankers read only the beginning of many documents."""
    for name, tasks in _reported(results, "documents").items():
        shares = {task: facts.get("truncated") or 0.0 for task, facts in tasks.items()}
        cut = [f"{percent(s)} of the documents of {t}" for t, s in shares.items() if s > _MANY_CUT]
        if cut:
            yield f"{name} reads only the beginning of {', '.join(cut)}: they are too long for it."


def index_notes(results: Sequence[Result]) -> Iterator[str]:
    """What approximate indexes cost on each task, and against which system."""
    for name, tasks in _reported(results, "loss").items():
        for task, loss in tasks.items():
            yield (
                f"The index of {name} finds {percent(loss['recall_of_exact_100'])} of the exact "
                f"first 100 on {task}; {_heading(loss['metric'])} {signed(loss['difference'])} "
                f"[{signed(loss['low'])}, {signed(loss['high'])}] against exact {loss['exact']}."
            )


def _reported(results: Sequence[Result], fact: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """What the parts of systems reported of one thing, by part and task."""
    reported: dict[str, dict[str, Mapping[str, Any]]] = {}
    for result in results:
        for part, facts in result.record.facts.items():
            if isinstance(facts.get(fact), Mapping):
                name = result.name if part == result.system else part
                reported.setdefault(name, {})[result.task] = facts[fact]
    return reported


def reranking_notes(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    """What a reader of reranked scores must know; each sentence only where it applies."""
    reranked = [(each, each.record.reranking) for each in results]
    below = {"keep": "below them stands the first stage's order", "drop": "the list ends there"}
    if any(reranking for _, reranking in reranked):
        yield "ceiling: what a perfect reranker of the same candidates would score."
    yield from dict.fromkeys(
        f"{metric} reads deeper than the {reranking.depth} documents that {result.name} reranks: "
        f"{below[reranking.tail]} (tail={reranking.tail})."
        for result, reranking in reranked
        for metric in metrics
        if reranking and (parse_metric(metric).cutoff or 0) > reranking.depth
    )
    for result in results:
        if (safeguard := result.record.safeguard) is not None:
            without, score = safeguard.metrics_without[metrics[0]], result.metrics[metrics[0]]
            yield (
                f"{result.task}, {result.name}: safeguard on, positives put at rank 101: "
                f"{safeguard.queries}; without it {metrics[0]} is {points(without)}, not "
                f"{points(score)}."
            )


def _draw_stored(stored: Stored, out: Paper) -> None:
    """One row per stored result, then what sets apart those of one name."""
    columns = [
        Column("key", right=False, fixed=True, cell=lambda result: result.key),
        Column("task", right=False, cell=lambda result: SystemName(result.task)),
        Column("system", right=False, cell=lambda result: SystemName(result.name)),
        Column("nDCG@10", cell=lambda result: points(result.metrics.get("ndcg@10"))),
        Column("size", cell=lambda result: scaled(size(result), "B")),
        Column("age", cell=lambda result: age(result.record.created)),
    ]
    out.print(Grid.of(columns, stored.results))
    for note in shared_names(stored.results):
        out.print(note)


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
