"""The leaderboard: published, later and measured systems in one ranking, with their origin.

A row that lacks a task has no mean and no rank. A row on data other than the manifest's is marked
and has no tests. A gain compares figures of the same origin, or has a mark. Filters by kind,
method, language model, first stage or name choose the rows that are shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

import pyarrow as pa

from r2med.errors import UsageError, nearest
from r2med.execution.resources import Warn, log_warning
from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging
from r2med.measure.metrics import HEADLINE
from r2med.results.cost import Cost
from r2med.results.index import pause_garbage_collection
from r2med.results.overlap import StoredAudit, flags_of, stored_audits
from r2med.results.published import METRIC, is_micro, later_rows, model_named, works
from r2med.results.record import Result, added_judgements
from r2med.results.row_order import add_gains, assign_letters, rank_rows
from r2med.results.select import ResultSet
from r2med.results.standings import Frame, Standing
from r2med.results.store import DEFAULT_FOLDER, LOCAL
from r2med.systems.registry import KIND_TITLES, KINDS, parts_of, spell_registered
from r2med.systems.spec import parse
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import task_names
from r2med.tasks.registry import Suite, TaskEntry, find_suite, resolve

_NOT_PRINTED = (
    "Published figures are left out: they were measured with the benchmark's own judgements."
)
#: Titles of the groups of systems whose gains are summarised.
GAIN_TITLES: Mapping[str, str] = {
    "gar": KIND_TITLES["gar"],
    "classical": "classical rerankers",
    "reasoning": "reasoning rerankers",
    "prompted": "language models prompted to rerank",
    "reranker": "other rerankers",
}
#: Commas between systems; commas between settings are inside brackets.
_COMMAS = re.compile(r",(?![^\[]*\])")


@pause_garbage_collection()
def leaderboard(
    suite: str | None = None,
    *,
    task: str | None = None,
    family: str | None = None,
    kind: str | None = None,
    method: str | None = None,
    llm: str | None = None,
    first_stage: str | None = None,
    only: Sequence[str] = (),
    without_flagged: bool = False,
    metric: str = "ndcg@10",
    mean: str | None = None,
    top: int | None = None,
    ties: bool = False,
    all_versions: bool = False,
    detail: int | None = None,
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    audits: Sequence[StoredAudit] | None = None,
    root: str | Path | None = None,
    tell: Warn = log_warning,
) -> Leaderboard:
    """Rank the systems that were published for a suite and those measured in `results`.

    Args:
        suite: A suite, such as full, nano or demo; by default that of `task`, else full.
        task: Rank systems on these tasks only, separated by commas.
        family: Rank systems on the tasks of this family only.
        kind: Show only rows of this type: base, gar or reranker. Ranks are those among all rows.
        method: Show only rows with this expansion method.
        llm: Show only rows with this language model.
        first_stage: Show only rows with this first stage.
        only: Show only these systems.
        without_flagged: Leave out tasks that overlap with the declared training data of any row.
        metric: The metric, such as ndcg@10.
        mean: task or query; by default query for NanoR2MED and task for others.
        top: Show this many rows, and all measured rows.
        ties: Add the lowest and highest score over all orders of equal scores, if the task's data
            is available.
        all_versions: Show older versions of a system too.
        detail: Compute intervals, costs and tests for this many rows and the best measured ones
            only; all rows are shown.
        results: A results folder, or results.
        audits: Audits that flag rows; by default those stored in the folder `results`.
        root: A folder with data of tasks.
        tell: Callback for user-facing warnings.

    Returns:
        The leaderboard; it prints as a table and converts to Arrow, pandas, polars and JSON.

    Examples:
        >>> import r2med
        >>> board = r2med.leaderboard("full", top=5)
    """
    result_set = ResultSet.open(results, tell)
    board_suite, tasks = _tasks(suite, task, family, result_set.local_tasks)
    name = str(parse_metric(metric))
    averaging: Averaging = _one_of(mean, ("task", "query"), "--mean") or (
        "query" if board_suite.name == "nano" else "task"
    )
    if audits is None:
        audits = stored_audits(Path(results), tell) if isinstance(results, str | Path) else ()
    frame = Frame(board_suite, name, averaging, tasks, tuple(audits))
    of_suite = [
        result for result in result_set.results if (result.suite or LOCAL) == board_suite.name
    ]
    if without_flagged:
        frame = _without_flagged(frame, of_suite)
    added = added_judgements(result_set.results)
    rows: list[Standing] = []
    notes = [_NOT_PRINTED]
    if not added:
        rows, notes = frame.make_printed_rows()
    measured, passed_over = frame.make_measured_rows(of_suite, all_versions=all_versions)
    rows = rank_rows(add_gains([*rows, *measured], frame.metric))
    rows = frame.mark_missing_tasks(rows)
    words = {"--kind": kind, "--method": method, "--llm": llm, "--first-stage": first_stage}
    chosen = _chosen_rows(rows, words, only)
    whole_board = len(chosen) == len(rows) and top is None
    detail_ids = set(map(id, select_shown(chosen, top if detail is None else detail)))
    detailed = [
        frame.add_details(row, ties, root) if id(row) in detail_ids else row for row in chosen
    ]
    return Leaderboard(
        suite=board_suite,
        metric=name,
        averaging=averaging,
        tasks=frame.tasks,
        rows=tuple(assign_letters(detailed, name, averaging)),
        notes=(*notes, *passed_over, *(_not_ranked(frame) if whole_board else ())),
        top=top,
        hidden=len(rows) - len(chosen),
        detailed=bool(only),
        judgements=added,
    )


def select_shown(rows: Sequence[Standing], top: int | None) -> tuple[Standing, ...]:
    """The first `top` rows, then the best `top` of the measured rows below them."""
    if top is None:
        return tuple(rows)
    measured = [row for row in rows[top:] if row.origin == "measured"]
    return (*rows[:top], *measured[:top])


@dataclass(frozen=True)
class GainSummary:
    """The gains over the first stage, of all expansions or of one class of rerankers."""

    group: str
    systems: int
    better: int
    median: float


@dataclass(frozen=True)
class Leaderboard(Tabular):
    """A ranking of systems, with notes."""

    suite: Suite
    metric: str
    averaging: Averaging
    tasks: tuple[TaskEntry, ...]
    rows: tuple[Standing, ...]
    notes: tuple[str, ...] = ()
    top: int | None = None
    """Number of rows to show, and of measured rows to show below them; None shows all rows."""
    hidden: int = 0
    """Number of rows that the filters left out; ranks count these rows too."""
    detailed: bool = False
    """Whether to describe for each row how its sources and their protocols differ."""
    judgements: str = ""
    """The name of the added judgements; empty if scores are from the benchmark's judgements."""

    is_drawn = True

    @property
    def shown(self) -> tuple[Standing, ...]:
        """The rows in tables and data: the first `top` rows, and the best measured rows below."""
        return select_shown(self.rows, self.top)

    def add_details(self, rows: Iterable[Standing]) -> list[Standing]:
        """Add cost and interval to rows of this board that were ranked without them."""
        frame = Frame(self.suite, self.metric, self.averaging, self.tasks, ())
        return [
            frame.add_details(row, ties=False, root=None) if row.cost is None else row
            for row in rows
        ]

    @property
    def metrics_option(self) -> str:
        """The option of `r2med eval` that stores this metric; empty if it is always stored."""
        return "" if self.metric in HEADLINE else f" --metrics {quote(self.metric)}"

    @property
    def gains(self) -> tuple[GainSummary, ...]:
        """The gains of expansions and rerankers over their first stages, from all rows.

        Rows that are not shown are included.
        """
        by_group: dict[str, list[float]] = {group: [] for group in GAIN_TITLES}
        for row in self.rows:
            if row.gain is not None:
                by_group[row.group].append(row.gain)
        return tuple(
            GainSummary(group, len(gains), sum(gain > 0 for gain in gains), median(gains))
            for group, gains in by_group.items()
            if gains
        )

    @property
    def flagged(self) -> Mapping[str, tuple[str, ...]]:
        """The models in the shown rows that declare overlapping training data, by task."""
        models: dict[str, dict[str, None]] = {}
        for row in self.shown:
            for flag in row.flags:
                models.setdefault(flag.task, {})[f"{flag.model}: {flag.collection}"] = None
        return {task: tuple(names) for task, names in models.items()}

    @property
    def mean_title(self) -> str:
        """The name of the mean by which the rows are ranked, for titles."""
        total, some = len(self.suite.entries), [task.name for task in self.tasks]
        count = f"{total} tasks" if len(some) == total else f"{len(some)} of {total} tasks"
        count = some[0] if len(some) == 1 else count
        if self.averaging == "task":
            return f"task mean over {count} (each task counts once)"
        if is_micro(self.suite.name, self.metric):
            return (
                f"micro mean over {count} (positives found / positives: each positive counts once)"
            )
        return f"query-weighted mean over {count} (each query counts once)"

    @property
    def weighted_name(self) -> str:
        """The column name of the mean in which tasks are weighted by queries or positives."""
        micro = is_micro(self.suite.name, self.metric)
        return "micro_mean" if micro else "query_weighted_mean"

    def to_arrow(self) -> pa.Table:
        """One row per system: both means, family means and every task, as fractions (0 to 1)."""
        means = dict.fromkeys(("task_mean", self.weighted_name, "low", "high"), float)
        families = dict.fromkeys((task.family for task in self.tasks), float)
        tasks = dict.fromkeys((task.name for task in self.tasks), float)
        texts = dict.fromkeys(("works", "flags", "marks", "answers"), str)
        spread = {"lowest": float, "highest": float}
        columns = {
            "rank": int,
            **table_columns(Standing),
            **spread,
            **means,
            **table_columns(Cost),
            **texts,
        }
        rows = [self._flat(row) for row in self.shown]
        if self.judgements:
            columns["judgements"] = str
            rows = [{**row, "judgements": self.judgements} for row in rows]
        return make_table(columns | families | tasks, rows)

    def to_json(self) -> dict[str, Any]:
        """Every row with full precision; values are fractions (0 to 1)."""
        return {
            "suite": self.suite.name,
            "metric": self.metric,
            **({"judgements": self.judgements} if self.judgements else {}),
            "ranked_by": self.mean_title,
            "tasks": [
                {"name": task.name, "family": task.family, "scenario": task.scenario}
                for task in self.tasks
            ],
            "flagged": {task: list(models) for task, models in self.flagged.items()},
            "rows": [self._row(row) for row in self.shown],
            "gains": [asdict(gains) for gains in self.gains],
            "notes": list(self.notes),
        }

    def _row(self, row: Standing) -> dict[str, Any]:
        """A row as JSON."""
        data = asdict(replace(row, other_figures=(), results={}, corrected_p={}))
        del data["results"], data["other_figures"], data["corrected_p"]
        means = row.aggregates
        data["others"] = [self._row(figure) for figure in row.other_figures]
        data |= {"task_mean": means.task_mean, self.weighted_name: means.weighted_mean}
        data |= {"families": data.pop("aggregates")["families"], "queries": means.queries}
        data["tie_bounds"] = data.pop("ties")
        if row.cost:
            data["cost"]["seconds_per_query"] = row.cost.seconds_per_query
        return data

    def _flat(self, row: Standing) -> dict[str, Any]:
        """Return a row for a table; nested parts become separate columns."""
        data = self._row(row)
        for part in ("families", "values", "cost", "interval"):
            data |= data[part] or {}
        return {
            **data,
            "queries": row.aggregates.queries,
            "works": "; ".join(source.id for source in row.sources),
            "flags": "; ".join(map(str, row.flags)),
            "lowest": row.spread.low if row.spread else None,
            "highest": row.spread.high if row.spread else None,
            "marks": "; ".join(row.marks),
            "answers": str(row.answers or ""),
        }


def _tasks(
    suite: str | None,
    task: str | None,
    family: str | None,
    local_tasks: Mapping[str, Path],
) -> tuple[Suite, tuple[TaskEntry, ...]]:
    """Return the suite and the selected tasks of it; local tasks form a separate suite."""
    chosen_tasks = resolve(task, local_tasks) if task is not None else []
    suites = dict.fromkeys(
        chosen_task.suite if isinstance(chosen_task, TaskEntry) else LOCAL
        for chosen_task in chosen_tasks
    )
    if len(suites) > 1 or (suites and suite and suite.lower() not in suites):
        suite_names = dict.fromkeys([*suites, *([suite] if suite else [])])
        raise UsageError(
            f"--task {task}: tasks of {' and '.join(suite_names)}; "
            "a leaderboard ranks one suite at a time."
        )
    name = next(iter(suites), suite or "full")
    if name == LOCAL:
        board_suite = own_suite(
            task_names(chosen_tasks, local_tasks) if chosen_tasks else local_tasks
        )
    else:
        board_suite = find_suite(name)
    tasks = tuple(
        chosen_task
        for chosen_task in board_suite.entries
        if not chosen_tasks or chosen_task in chosen_tasks or name == LOCAL
    )
    families = dict.fromkeys(entry.family for entry in tasks)
    _one_of(family, [*families], "--family")
    return board_suite, tuple(entry for entry in tasks if family in (None, entry.family))


def own_suite(names: Iterable[str]) -> Suite:
    """Return folders with local data as one suite."""
    family = "own data"
    entries = (TaskEntry(name, LOCAL, name, (), family, family, "", "", "") for name in names)
    return Suite(LOCAL, "Your data", tuple(entries))


def _without_flagged(frame: Frame, results: Sequence[Result]) -> Frame:
    """Return the frame without the tasks that overlap with declared training data.

    The declarations of all printed and measured systems count.
    """
    names = {task.name for task in frame.tasks}
    systems = {row.system for row in frame.make_printed_rows()[0]}
    systems |= {result.system for result in results if result.task in names}
    flags = [flag for system in systems for flag in flags_of(system, frame.tasks, frame.audits)]
    flagged = {flag.task for flag in flags}
    left = tuple(task for task in frame.tasks if task.name not in flagged)
    if not left:
        raise UsageError("Every task overlaps with declared training data, so none is left.")
    return replace(frame, tasks=left)


def _not_ranked(frame: Frame) -> Iterator[str]:
    """Notes on reported figures that are not in any row."""
    if frame.suite.name != "full" or frame.metric != METRIC:
        return
    for work in works().values():
        if work.averages:
            means = ", ".join(f"{system} {mean}" for system, mean in work.averages.items())
            yield f"Averages only, so not ranked: {means} ({work.name}, {work.revision})."
    for spelling in later_rows()[1]:
        yield f"Of no known model, so not ranked: {spelling}."


def _chosen_rows(
    rows: Sequence[Standing], words: Mapping[str, str | None], only: Sequence[str]
) -> list[Standing]:
    """Return rows that pass every filter; the error for an unknown value lists the known ones."""
    remaining = list(rows)
    for option, choice in words.items():
        if choice is not None:
            choices = {word for row in rows for word in _words(row, option)}
            _one_of(choice, KINDS if option == "--kind" else sorted(choices), option)
            remaining = [row for row in remaining if choice in _words(row, option)]
    if only:
        names = [name.strip() for text in only for name in _COMMAS.split(text) if name.strip()]
        wanted_systems = {_find_system(name, rows) for name in names}
        remaining = [row for row in remaining if row.system in wanted_systems]
    if rows and not remaining:
        filters_by_option = {**words, "--only": ",".join(only) or None}
        filters = ", ".join(
            f"{option} {value}" for option, value in filters_by_option.items() if value
        )
        raise UsageError(f"none of the {len(rows)} rows meets all filters ({filters}).")
    return remaining


def _words(row: Standing, option: str) -> set[str]:
    """The values of a filter that keep a row."""
    if option == "--kind":
        return {row.kind}
    if option == "--first-stage":
        below = row.first_stage
        return {below, *(unit.name for unit, _ in parts_of(below))} if below else set()
    stages = {unit: entry.stage for unit, entry in parts_of(row.system) if entry}
    if option == "--method":
        return {unit.name for unit, stage in stages.items() if stage == "expander"}
    asking = ("expander", "reranker")
    return {unit.argument for unit, stage in stages.items() if unit.argument and stage in asking}


def _find_system(text: str, rows: Sequence[Standing]) -> str:
    """Find a system by its label, its spec, or a name that a publication uses for the model."""
    systems = {row.system: row.system for row in rows} | {row.name: row.system for row in rows}
    spellings = [text, model_named(text) or text]
    with suppress(UsageError):
        spellings.append(str(spell_registered(parse(text))))
    for spelling in spellings:
        if spelling in systems:
            return systems[spelling]
    holding = [name for name in systems if text.lower() in name.lower()]
    raise UsageError(f"--only {text}: no row of that name. {nearest(text, holding or systems)}")


def _one_of(word: str | None, allowed: Sequence[Any], option: str) -> Any:
    """Return the word if it is allowed; the error for another word suggests a similar one."""
    if word is not None and word not in allowed:
        suggestion = nearest(word, allowed) if allowed else "No row has any."
        raise UsageError(f"{option} {word!r} is not known. {suggestion}")
    return word
