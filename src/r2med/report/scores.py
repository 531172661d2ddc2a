"""Tables of scores of an evaluation and of stored results.

Every table of an evaluation is labelled with its suite, so that means of different suites are not
confused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group
from rich.text import Text

from r2med.measure.metrics import HEADLINE, parse_metric
from r2med.number_format import format_count, format_difference, format_percent, format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    SHORT_NAMES,
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    append_short_names,
    format_age,
    judgements_note,
    mean_or_none,
    name_value_table,
    print_fitting,
    score_cell,
    task_label,
)
from r2med.results.answers import answer_notes, count_answers, mark_answers
from r2med.results.evaluation import Evaluation, Stored, size
from r2med.results.published_data import find_other_data, has_published_data, name_tasks
from r2med.results.record import Result
from r2med.results.versions import describe_versions, group_systems, sort_by_age
from r2med.tasks.registry import find_suite, registered_task
from r2med.tasks.task import SAMPLE

if TYPE_CHECKING:
    from r2med.measure.verdicts import Verdict

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
#: Results that a table lists.
_MOST_LISTED = 500
#: A share of documents above which a reader must know that they were cut.
_MANY_CUT = 0.05
_SCALE = "all values × 100"
_BEHIND = (
    "*: below the best of its column (p < .05, Holm's correction over all pairs of the systems "
    "in this column)"
)
#: With more systems only the verdict on the two best is printed.
_VERDICTS_SHOWN = 3


@draw_registered.register
def draw_evaluation(value: Evaluation, out: Paper, *, by: Grouping = "task") -> None:
    """Print score tables, the verdicts on them, and notes."""
    if value.judgements:
        out.print(judgements_note(value.judgements), style="yellow")
    for layouts in score_layouts(value.results, value.requested_metrics, by=by):
        print_fitting(layouts, out)
        out.print()
    for note in verdict_notes(value):
        out.print(note)
    for note in (
        *answer_notes(value.results),
        *sample_notes(value.results, value.metrics[0]),
        *reranking_notes(value.results, value.metrics),
        *index_notes(value.results),
    ):
        out.print(note)


def verdict_notes(value: Evaluation) -> Iterator[str]:
    """Yield, per suite, the verdict on the best system and the others by the first metric shown."""
    for results in _by_suite(value.results).values():
        group = Evaluation(results, value.requested_metrics)
        verdicts = group.verdicts(group.tasks, group.metrics[0]).values()
        closest = sorted(verdicts, key=lambda verdict: verdict.difference.difference)
        printed = closest if len(closest) < _VERDICTS_SHOWN else closest[:1]
        if printed:
            yield f"{group.metrics[0]}: {' '.join(verdict.sentence for verdict in printed)}"
            yield " ".join(printed[0].remarks)
        elif skipped := group.skipped_queries(group.tasks):
            from r2med.measure.verdicts import describe_skipped

            yield describe_skipped(skipped)


def _by_suite(results: Sequence[Result]) -> dict[tuple[str | None, str], list[Result]]:
    """Group results into those that one table may contain: results of one suite or one sample."""
    groups: dict[tuple[str | None, str], list[Result]] = {}
    for result in sorted(results, key=lambda result: list(_LABELS).index(result.suite)):
        sample = result.task if result.suite == SAMPLE else ""
        groups.setdefault((result.suite, sample), []).append(result)
    return groups


def score_layouts(
    results: Sequence[Result], metrics: Sequence[str] = (), *, by: Grouping = "task"
) -> Iterator[list[Grid]]:
    """Yield tables for any mix of systems and tasks, each as a list of layouts from wide to narrow.

    Suites are never averaged together, and a sample has a separate table. One system: a row per
    task. Several systems: a row per system. Their columns are the metrics if there is one task; if
    there are several tasks, the columns are the tasks, and each metric has its own grid.
    """
    for (suite, _), group in _by_suite(results).items():
        evaluation = Evaluation(group, metrics)
        label = _LABELS[suite].format(edition=find_suite("demo").entries[0].edition)
        if differing := find_other_data(group):
            label += f", not the published data of {', '.join(differing)}"
        if len(evaluation.systems) == 1:
            yield [_system_grid(evaluation, label, by)]
        elif len(evaluation.tasks) == 1:
            (task,) = evaluation.tasks
            figures = [
                _Figure(_heading(name), name, [task], evaluation.verdicts([task], name))
                for name in evaluation.metrics
            ]
            yield [_by_system(evaluation, figures, f"{task} · {label}", _SCALE)]
        else:
            for metric in metrics or HEADLINE[:1]:
                yield list(_systems_by_task(evaluation, metric, label, by))


def _system_grid(evaluation: Evaluation, label: str, by: Grouping) -> Grid:
    """Return the table of one system: a row per task or group, then the mean over the tasks."""
    (system,) = evaluation.systems
    first, *other_metrics = evaluation.metrics
    columns = {_heading(first): evaluation.column(system, first)}
    if evaluation.reranked(system):
        columns[_CEILING] = evaluation.column(system, first, ceiling=True)
    columns |= {_heading(metric): evaluation.column(system, metric) for metric in other_metrics}

    def row(name: str | SystemName, tasks: Sequence[str]) -> list[Cell]:
        return [
            name,
            *(
                score_cell(mean_or_none([column.get(task) for task in tasks]))
                for column in columns.values()
            ),
        ]

    rows: list[list[Cell]] = []
    ends: list[int] = []
    for group, tasks in _groups(evaluation.tasks, "family" if by == "task" else by).items():
        if by != "task" or [group] == tasks:
            rows.append(row(f"{group} (mean of {len(tasks)})" if tasks[1:] else group, tasks))
        else:
            rows.append([Text(group, style="italic")])
            rows += [row(SystemName(f" {task}"), [task]) for task in tasks]
            ends.append(len(rows) - 1)
    if len(evaluation.tasks) > 1:
        ends.append(len(rows) - 1)
        rows.append(row(f"mean of {len(evaluation.tasks)} tasks", evaluation.tasks))
    return Grid(
        [Column("task", right=False), *map(Column, columns)],
        rows,
        ends=frozenset(ends),
        title=f"{mark_system(system, evaluation.results)} · {label}",
        caption=_SCALE,
    )


@dataclass(frozen=True)
class _Figure:
    """A column of a table of systems: the mean of a metric over some tasks, with verdicts."""

    title: str
    metric: str
    tasks: Sequence[str]
    verdicts: Mapping[str, Verdict]
    """Verdicts on the best system against each other system, by name of the other system."""

    @property
    def significant(self) -> frozenset[str]:
        """The systems that are significantly below the best."""
        return frozenset(name for name, verdict in self.verdicts.items() if verdict.is_significant)

    def cell(
        self, evaluation: Evaluation, system: str, digits: int, *, ceiling: bool = False
    ) -> Cell:
        """Return a score, with a star if the system is significantly below the best.

        If any system of the column has a star, other scores end in a space, so that digits stay
        aligned.
        """
        column = evaluation.column(system, self.metric, ceiling=ceiling)
        digits = 2 if self.title == "mean" else digits
        text = score_cell(
            mean_or_none([column.get(task) for task in self.tasks]),
            digits,
            "dim" if ceiling else "",
        )
        if text is not None and self.significant and not ceiling:
            text.append("*" if system in self.significant else " ")
        return text


def _by_system(
    evaluation: Evaluation,
    figures: Sequence[_Figure],
    title: str,
    caption: str,
    *,
    short: bool = False,
    digits: int = 2,
    gap: int = 2,
) -> Grid:
    """Return one row per system; below a reranker, a second row shows its ceiling.

    The ceiling is the score of a perfect reranker of the same candidates. The mean always has two
    digits.
    """
    if any(figure.significant for figure in figures):
        caption = f"{caption}; {_BEHIND}"
    rows: list[list[Cell]] = []
    for system in evaluation.systems:
        name = mark_system(system, evaluation.results)
        rows.append([name, *(figure.cell(evaluation, system, digits) for figure in figures)])
        if evaluation.reranked(system):
            best = (figure.cell(evaluation, system, digits, ceiling=True) for figure in figures)
            rows.append([Text(f"  {_CEILING}", style="dim"), *best])
    columns = [Column("system", right=False)]
    for figure in figures:
        heading = SystemName(SHORT_NAMES.get(figure.title, figure.title) if short else figure.title)
        # Judged@k is not a quality.
        columns.append(Column(heading, best=parse_metric(figure.metric).family != "judged"))
    if short:
        caption = append_short_names(caption, (figure.title for figure in figures))
    return Grid(columns, rows, gap=gap, title=title, caption=caption)


def _systems_by_task(
    evaluation: Evaluation, metric: str, label: str, by: Grouping
) -> Iterator[Grid]:
    """Yield layouts with one row per system: the mean, then a column per task or task group."""
    groups = _groups(evaluation.tasks, by)
    means = {
        "mean": evaluation.tasks,
        **{task_label(name): tasks for name, tasks in groups.items()},
    }
    figures = [
        _Figure(name, metric, tasks, evaluation.verdicts(tasks, metric))
        for name, tasks in means.items()
    ]
    counts = ", ".join(
        f"{name} of {len(tasks)}" for name, tasks in groups.items() if len(tasks) > 1
    )
    caption = f"mean of {len(evaluation.tasks)} tasks{f' ({counts})' if counts else ''}; {_SCALE}"
    for short, digits, gap in ((False, 2, 2), (True, 2, 1), (True, 1, 1)):
        title = f"{metric} · {label}"
        yield _by_system(evaluation, figures, title, caption, short=short, digits=digits, gap=gap)


def _groups(tasks: Sequence[str], by: Grouping) -> dict[str, list[str]]:
    """Return tasks by family or scenario, or each alone; local tasks are always alone."""
    groups: dict[str, list[str]] = {}
    for task in tasks:
        entry = registered_task(task)
        group = {"family": entry.family, "scenario": entry.scenario}.get(by) if entry else None
        groups.setdefault(group or task, []).append(task)
    return groups


def _heading(metric: str) -> str:
    """Return the short name of a metric, or the full name if the metric has no short one."""
    family, sign, cutoff = metric.partition("@")
    return f"{_SHORT[family]}{sign}{cutoff}" if family in _SHORT else metric


def reused_notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield a note on results that were stored before instead of run now, and on their age."""
    stored = [result for result in results if result.reused]
    if not stored:
        return
    systems = ", ".join(dict.fromkeys(result.name for result in stored))
    oldest = format_age(min(result.record.created for result in stored))
    yield (
        f"stored before and not run now: {len(stored)} of {len(results)} results ({systems}), up "
        f"to {oldest} ago. --force runs again."
    )


def truncation_notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield which encoders and rerankers read only the beginning of many texts."""
    for side in ("documents", "queries"):
        for name, tasks in _collect_facts(results, side).items():
            shares = {task: facts.get("truncated") or 0.0 for task, facts in tasks.items()}
            truncated = [
                f"{format_percent(share)} of the {side} of {task}"
                for task, share in shares.items()
                if share > _MANY_CUT
            ]
            if truncated:
                yield (
                    f"{name} reads only the beginning of {', '.join(truncated)}: they are too long "
                    "for it."
                )


def sample_notes(results: Sequence[Result], metric: str) -> Iterator[str]:
    """Yield a note per result with the score of each sample of an expander.

    Each score is that of a search with one sample alone; the note also has their standard
    deviation.
    """
    for result in results:
        samples = result.record.samples
        if samples is None or metric not in samples.variance:
            continue
        scores = [sample[metric] for sample in samples.metrics]
        listed = ", ".join(format_points(score, 2) for score in scores)
        deviation = format_points(samples.variance[metric] ** 0.5, 2)
        yield (
            f"{result.name} on {task_label(result.task)}: {_heading(metric)} of its "
            f"{len(scores)} samples alone {listed} (standard deviation {deviation})."
        )


def mark_system(name: str, results: Sequence[Result]) -> SystemName:
    """Return a system's name, with a mark if too many of its models' answers have problems."""
    mark = mark_answers(count_answers(results).get(name))
    return SystemName(name, f" {mark}" if mark else "")


def index_notes(results: Sequence[Result]) -> Iterator[str]:
    """Yield what approximate indexes cost on each task, compared with which system."""
    for name, tasks in _collect_facts(results, "loss").items():
        for task, loss in tasks.items():
            recall = format_percent(loss["recall_of_exact_100"])
            difference, low, high = (
                format_difference(loss[field]) for field in ("difference", "low", "high")
            )
            yield (
                f"The index of {name} finds {recall} of the exact first 100 on {task}; "
                f"{_heading(loss['metric'])} {difference} [{low}, {high}] against exact "
                f"{loss['exact']}."
            )


def _collect_facts(results: Sequence[Result], fact: str) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return one fact that the stages of systems reported, by stage and task."""
    reported: dict[str, dict[str, Mapping[str, Any]]] = {}
    for result in results:
        for part, facts in result.record.facts.items():
            if isinstance(facts.get(fact), Mapping):
                name = result.name if part == result.system else part
                reported.setdefault(name, {})[result.task] = facts[fact]
    return reported


def reranking_notes(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    """Yield notes on reranked scores: ceiling, depth and safeguard."""
    reranked = [(result, result.record.reranking) for result in results]
    below = {"keep": "below them is the first stage's order", "drop": "the list ends there"}
    if any(reranking for _, reranking in reranked):
        yield "ceiling: the score of a perfect reranker of the same candidates."
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
                f"{safeguard.queries}; without it {metrics[0]} is {score_cell(without)}, not "
                f"{score_cell(score)}."
            )


@draw_registered.register
def draw_stored(stored: Stored, out: Paper) -> None:
    """Print one row per stored result, then the differences between results of the same name."""
    listed = _newest_results(stored.results)
    names = name_tasks(listed)
    columns = [
        Column("key", right=False, fixed=True, cell=lambda result: result.key),
        Column("task", right=False, cell=lambda result: SystemName(names[result.task])),
        Column("system", right=False, cell=lambda result: mark_system(result.name, [result])),
        Column("nDCG@10", cell=lambda result: score_cell(result.metrics.get("ndcg@10"))),
        Column("size", cell=lambda result: format_count(size(result), "B")),
        Column("age", cell=lambda result: format_age(result.created)),
    ]
    out.print(Grid.of(columns, listed))
    if len(listed) < len(stored.results):
        out.print(
            f"The newest {len(listed):,} of {len(stored.results):,} results. Choose others with "
            "--task or --system; --format csv and json list all."
        )
    for note in answer_notes(listed):
        out.print(note)
    tasks = {result.task for result in listed}
    for system in group_systems(sort_by_age(listed), tasks):
        for note in describe_versions(system):
            out.print(note)


def _newest_results(results: Sequence[Result]) -> list[Result]:
    """Return the newest results, as many as a table lists, in the order given."""
    if len(results) <= _MOST_LISTED:
        return list(results)
    newest = set(map(id, sort_by_age(results)[:_MOST_LISTED]))
    return [result for result in results if id(result) in newest]


def result_details(result: Result) -> Group:
    """Return the main facts of a stored result; JSON has the rest."""
    from r2med.results.protocols import works_beside

    record, task = result.record, result.record.task
    is_comparable = result.suite == "full" and has_published_data(result)
    beside = works_beside(result.system) if is_comparable else ()
    facts = [
        ("key", result.key),
        ("stored in", str(result.folder)),
        ("created", record.created),
        ("data", f"{task.documents:,} documents, {task.queries:,} queries, hash {task.hash[:12]}"),
        ("metrics × 100", ", ".join(f"{n} {100 * v:.2f}" for n, v in record.metrics.items())),
        ("seconds", ", ".join(f"{name} {value:.2f}" for name, value in record.seconds.items())),
        ("depth, tie order", f"{record.system.depth}, {record.system.ties}"),
        ("published as", record.system.published_as or "not published"),
        ("comparable with", "; ".join(beside) or "no published figure"),
        ("versions", ", ".join(f"{name} {number}" for name, number in record.versions.items())),
        *(("deviation", text) for text in record.system.deviations),
        *(("notice", text) for text in task.notices),
    ]
    return Group(
        Text(f"{result.name} · {name_tasks([result])[result.task]}", style="bold"),
        name_value_table(facts, indent=2),
    )
