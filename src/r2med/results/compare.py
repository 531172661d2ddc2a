"""Compare stored systems and run files on the same queries, with significance tests.

Systems are compared on the same data of a task and the same judged queries; otherwise it is an
error that names the command to run. All differences are A minus B.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import combinations, islice
from pathlib import Path
from shlex import join, quote
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.errors import UsageError
from r2med.execution.resources import Warn, log_warning
from r2med.measure import parse_metric
from r2med.measure.intervals import Column
from r2med.measure.metrics import JUDGED, Metric, condense
from r2med.measure.significance import Difference, Pair, compare_systems
from r2med.measure.verdicts import JudgedCoverage, StoredPairs, Verdict, all_pairs, decide
from r2med.results.answers import describe_answers
from r2med.results.published_data import describe_task_data, find_other_data
from r2med.results.record import RUN_FILE, Result, added_judgements
from r2med.results.select import ResultSet, RunFileResult, Selection
from r2med.results.stage_record import AnswerCounts
from r2med.results.store import DEFAULT_FOLDER, LOCAL
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import load_tasks, task_names
from r2med.tasks.registry import group_by_suite, resolve

#: Systems of a large folder whose pairs are tested, as on the leaderboard page.
_MOST_TESTED = 50


def compare(
    *systems: str | Path | Result,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    root: str | Path | None = None,
    resamples: int | None = None,
    tell: Warn = log_warning,
) -> Comparison:
    """Compare systems query by query, per task and pooled, every pair of them.

    Args:
        systems: Results, run files, folders of stored results, or specs, labels and keys of
            systems with results in `results`.
        task: The tasks to compare on; by default all that the systems share. A run file needs one.
        metric: The metric to compare.
        results: A results folder, or a list of results.
        root: Folder of the tasks' data, for run files.
        resamples: Resamples of the significance tests.
        tell: Callback for user-facing warnings.

    Returns:
        The comparison; it prints as a table and converts to Arrow, pandas, polars and JSON.

    Raises:
        MissingError: A system has no stored result on a task that was asked for.
        DataError: The systems ran on different data or queries.
    """
    selection = select_systems(
        *systems, task=task, metric=metric, results=results, root=root, tell=tell
    )
    comparison = compare_selection(selection, metric, resamples)
    return replace(comparison, stored=_find_stored_pairs(selection, comparison, results))


def _ignore(message: str) -> None:
    """Drop a warning that the comparison itself has given already."""


def _find_stored_pairs(
    selection: Selection, comparison: Comparison, results: str | Path | Sequence[Result]
) -> StoredPairs | None:
    """Return the test of two stored systems among all stored pairs; None for other systems."""
    from r2med.results.leaderboard import leaderboard
    from r2med.results.stored_pairs import find_stored_pairs

    if len(selection.systems) != 2:
        return None
    results_a, results_b = (
        {task: system.results[task] for task in comparison.tasks} for system in selection.systems
    )
    stored_a = {task: result for task, result in results_a.items() if isinstance(result, Result)}
    stored_b = {task: result for task, result in results_b.items() if isinstance(result, Result)}
    if len(stored_a) < len(results_a) or len(stored_b) < len(results_b):
        return None
    same_tasks = [
        result
        for result in ResultSet.open(results, _ignore).results
        if result.suite == comparison.suite and result.task in comparison.tasks
    ]
    # A local task can have the name of a registered one, so it is not chosen by its name.
    is_local = comparison.suite is None
    board = leaderboard(
        LOCAL if is_local else comparison.suite,
        task=None if is_local else ",".join(comparison.tasks),
        metric=comparison.metric,
        detail=_MOST_TESTED,
        results=same_tasks,
        audits=(),
        tell=_ignore,
    )
    return find_stored_pairs(board, stored_a, stored_b)


def select_systems(
    *systems: str | Path | Result,
    task: str | None,
    metric: str,
    results: str | Path | Sequence[Result],
    root: str | Path | None,
    tell: Warn,
    least: int = 2,
) -> Selection:
    """Select the results of systems to compare, and report which tasks and versions are not used.

    The arguments are those of `compare`; `least` is the number of systems that are needed.
    """
    if len(systems) < least:
        raise UsageError("two systems or more are needed, e.g. r2med compare bm25 bm25-lucene.")
    result_set = ResultSet.open(results, tell)
    local_tasks = result_set.local_tasks

    def open_run_file(path: Path) -> RunFileResult:
        loaded = (
            list(islice(load_tasks(task, root=root, local_tasks=local_tasks), 2)) if task else []
        )
        if len(loaded) != 1:
            raise UsageError(
                f"{path} is a run file, which does not say its task: give exactly one with --task."
            )
        condensed = condense(parse_metric(metric))
        metrics: list[str | Metric] = [metric, JUDGED, *([condensed] if condensed else [])]
        return RunFileResult(path, loaded[0], tuple(metrics), tell)

    names = task_names(resolve(task, local_tasks), local_tasks) if task else ()
    selection = result_set.select(systems, tasks=names, open_run_file=open_run_file)
    for notice in selection.notices:
        tell(notice)
    if selection.left_out:
        tell(describe_left_out(selection))
    return selection


def describe_left_out(selection: Selection) -> str:
    """A sentence that lists the tasks that are not compared, with the reasons."""
    by_reason: dict[str, list[str]] = {}
    for task, reason in selection.left_out.items():
        by_reason.setdefault(reason, []).append(task)
    reasons = [f"{', '.join(tasks)} ({reason})" for reason, tasks in by_reason.items()]
    total = len(selection.tasks) + len(selection.left_out)
    return f"{len(selection.tasks)} of {total} tasks are compared. Left out: {'; '.join(reasons)}."


def compare_selection(
    selection: Selection, metric: str, resamples: int | None = None
) -> Comparison:
    """Compare selected systems, which must be of one suite and have the metric."""
    name = str(parse_metric(metric))
    by_task = {task: selection.results(task) for task in selection.tasks}
    _refuse_same_results(selection)
    suites = {result.suite for results in by_task.values() for result in results}
    if len(suites) > 1:
        titles = " and ".join(sorted(suite or "local tasks" for suite in suites))
        raise UsageError(
            f"the systems have results of {titles} in common, which are never pooled. "
            "Choose with --task, e.g. --task demo."
        )
    _require_metric(selection, name)
    condensed = condense(parse_metric(name))
    return Comparison(
        tuple(system.name for system in selection.systems),
        name,
        suites.pop(),
        {task: query_scores(results, name) for task, results in by_task.items()},
        resamples,
        judged={task: _shares_judged(results) for task, results in by_task.items()},
        condensed=_scores_by_task(by_task, str(condensed)) if condensed else {},
        skipped={task: _skipped_queries(results[0]) for task, results in by_task.items()},
        answers=tuple(_count_answers(system.results.values()) for system in selection.systems),
        other_data=_find_other_data(by_task),
        left_out=selection.left_out,
        judgements=_check_judgements(by_task.values()),
    )


def _find_other_data(
    by_task: Mapping[str, Sequence[Result | RunFileResult]],
) -> dict[str, str]:
    """Return how the data of each task differs from the published data; equal data is left out."""
    stored = [trials[0] for trials in by_task.values() if isinstance(trials[0], Result)]
    loaded = {
        task: difference
        for task, (first, *_) in by_task.items()
        if isinstance(first, RunFileResult)
        and (difference := describe_task_data(first.loaded_task))
    }
    return find_other_data(stored) | loaded


def _count_answers(trials: Iterable[Result | RunFileResult]) -> AnswerCounts | None:
    return AnswerCounts.sum_over(
        trial.summary.answers for trial in trials if isinstance(trial, Result)
    )


def _check_judgements(results_by_task: Iterable[Sequence[Result | RunFileResult]]) -> str:
    """Return the name of the added judgements, which must be the same for all scores.

    Empty if all scores are from the benchmark's judgements.
    """
    trials = [trial for trials in results_by_task for trial in trials]
    results = [trial for trial in trials if isinstance(trial, Result)]
    added = added_judgements(results)
    if added and (len(results) < len(trials) or len({r.judgements for r in results}) > 1):
        raise UsageError(
            f"some scores have added judgements ({added}) and some do not. Run files are scored "
            "with the benchmark's own: store one first with r2med eval run:FILE."
        )
    return added


def _refuse_same_results(selection: Selection) -> None:
    for first, second in combinations(selection.systems, 2):
        runs = [_run_identity(result) for result in first.results.values()]
        if runs == [_run_identity(result) for result in second.results.values()]:
            raise UsageError(
                f"compare: the same result is given twice: {first.typed_name} and "
                f"{second.typed_name} are "
                f"{runs[0][0]}."
            )


def _require_metric(selection: Selection, metric: str) -> None:
    lacking = [
        system.version.spec if system.version else system.name
        for system in selection.systems
        if any(metric not in result.scores for result in system.results.values())
    ]
    if lacking:
        raise UsageError(
            f"{metric} is not stored for {' and '.join(lacking)}.\n"
            f"Add it: r2med eval {join(lacking)} --task "
            f"{quote(','.join(group_by_suite(selection.tasks)))} --metrics {quote(metric)}"
        )


@dataclass(frozen=True)
class QueryScores:
    """The scores of one query, one per system."""

    query_id: str
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the systems; low if the query is difficult for all of them."""
        return fmean(self.scores)

    @property
    def division(self) -> float:
        """The best score minus the worst."""
        return max(self.scores) - min(self.scores)

    @property
    def gain(self) -> float:
        """The first system's score minus the second's; 0 if there is only one."""
        return self.scores[0] - self.scores[1] if len(self.scores) > 1 else 0.0


def query_scores(results: Sequence[Result | RunFileResult], metric: str) -> list[QueryScores]:
    """Return the judged queries that all results scored, in the order of the first result.

    The results must be of the same task and the same data.
    """
    tables = [result.scores.by_query(metric) for result in results]
    return [
        QueryScores(query, tuple(table[query] for table in tables))
        for query in (tables[0] if tables else {})
        if all(query in table for table in tables)
    ]


@dataclass(frozen=True, eq=False)
class Comparison(Tabular):
    """A comparison of systems on the same queries; `pairs` have indices of `systems`."""

    is_drawn = True

    systems: tuple[str, ...]
    metric: str
    suite: str | None
    """The suite of all tasks; None for local tasks."""
    tasks: Mapping[str, Sequence[QueryScores]]
    resamples: int | None = None
    judged: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    """The mean Judged@10 of each system, by task; None if it was not measured."""
    condensed: Mapping[str, Sequence[QueryScores]] = field(default_factory=dict)
    """The scores on condensed lists, by task; empty if a result does not have them."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Number of queries without judgements, by task."""
    judgements: str = ""
    """The name of the added judgements; empty if scores are from the benchmark's judgements."""
    answers: tuple[AnswerCounts | None, ...] = ()
    """For each system, the counts of language model answers that could not be used; None if it has
    none."""
    other_data: Mapping[str, str] = field(default_factory=dict)
    """How the data of each task differs from the published data; only tasks where it differs."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Reasons why tasks are left out, by task; they have results of only some of the systems."""
    stored: StoredPairs | None = None
    """The test of the two systems among all stored pairs; None for other comparisons."""

    @property
    def answer_notes(self) -> tuple[str, ...]:
        """A sentence for each system that has language model answers with problems."""
        notes = map(describe_answers, self.systems, self.answers)
        return tuple(note for note in notes if note)

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        """Every pair of systems, tested."""
        return self._test(self.tasks)

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdict on every pair, in the order of `pairs`, corrected over all of them."""
        family = all_pairs(len(self.systems))
        condensed = self._test(self.condensed) if self.condensed else ()
        return tuple(
            decide(
                self.systems[pair.a],
                self.systems[pair.b],
                pair.by_task,
                tasks=pair.tasks,
                p_corrected=pair.p_holm,
                family=family,
                heterogeneity=pair.heterogeneity,
                coverage=self._coverage(pair, condensed[index] if condensed else None),
                skipped=sum(self.skipped.values()),
                columns=self.differences(pair),
            ).correct_over(self.stored)
            for index, pair in enumerate(self.pairs)
        )

    def differences(self, pair: Pair) -> list[Column]:
        """Return the differences of a pair on all queries, one column per task."""
        return [
            np.array([query.scores[pair.a] - query.scores[pair.b] for query in queries])
            for queries in self.tasks.values()
        ]

    def _test(self, tasks: Mapping[str, Sequence[QueryScores]]) -> tuple[Pair, ...]:
        scores = {
            task: np.array([query.scores for query in queries]) for task, queries in tasks.items()
        }
        return tuple(compare_systems(scores, resamples=self.resamples))

    def _coverage(self, pair: Pair, condensed: Pair | None) -> JudgedCoverage | None:
        judged = self.judged_means
        judged_a, judged_b = judged[pair.a], judged[pair.b]
        if judged_a is None or judged_b is None:
            return None
        return JudgedCoverage(judged_a, judged_b, condensed.by_task if condensed else None)

    @property
    def means(self) -> list[float]:
        """The task mean of each system (every task counts once)."""
        means_b = [pair.by_task.mean_b for pair in self.pairs if pair.a == 0]
        return [self.pairs[0].by_task.mean_a, *means_b]

    @property
    def judged_means(self) -> list[float | None]:
        """The mean Judged@10 of every system over the tasks; None where it was not measured."""
        means: list[float | None] = []
        for index in range(len(self.systems)):
            shares = [task[index] for task in self.judged.values()]
            measured = [share for share in shares if share is not None]
            means.append(fmean(measured) if measured and len(measured) == len(shares) else None)
        return means

    @property
    def matrix(self) -> dict[tuple[int, int], tuple[float, float]]:
        """Differences and p-values of all ordered pairs of systems, by their indices.

        A difference is the first system minus the second; p-values are corrected over all pairs.
        """
        return {
            cell: (sign * pair.by_task.difference, pair.p_holm)
            for pair in self.pairs
            for cell, sign in (((pair.a, pair.b), 1), ((pair.b, pair.a), -1))
        }

    def to_arrow(self) -> pa.Table:
        """One row per pair and task; if there are several tasks, also a row per pair and mean.

        The `p_holm` of a task is corrected over the tasks of the pair, that of the task mean over
        the pairs.
        """
        names = dict.fromkeys(("a", "b", "over"), str)
        if self.judgements:
            names["judgements"] = str
        if self.answer_notes:
            names |= {"answers_a": str, "answers_b": str}
        if self.other_data:
            names["data_note"] = str
        columns = (
            names | table_columns(Difference) | dict.fromkeys(("low", "high", "p_holm"), float)
        )
        rows = []
        for pair in self.pairs:
            for line in pair.lines:
                difference = line.difference
                row = {"a": self.systems[pair.a], "b": self.systems[pair.b], "over": line.task}
                p_holm = pair.p_holm if difference is pair.by_task else line.p_holm
                row["judgements"] = self.judgements
                if self.other_data:
                    row["data_note"] = self._data_note(line.task)
                if self.answer_notes:
                    row["answers_a"] = str(self.answers[pair.a] or "")
                    row["answers_b"] = str(self.answers[pair.b] or "")
                rows.append(
                    {**row, **vars(difference), **vars(difference.interval), "p_holm": p_holm}
                )
        return make_table(columns, rows)

    def _data_note(self, scope: str) -> str:
        """Return how the data of a task, or of the tasks of a mean, differs from the published."""
        if scope in self.tasks:
            return self.other_data.get(scope, "")
        return "; ".join(self.other_data.values())

    def to_json(self) -> dict[str, Any]:
        """All fields; scores and differences are fractions (0 to 1)."""
        return {
            "metric": self.metric,
            **({"data_notes": dict(self.other_data)} if self.other_data else {}),
            **({"judgements": self.judgements} if self.judgements else {}),
            "systems": list(self.systems),
            "left_out": dict(self.left_out),
            **(
                {"answers": [answers and asdict(answers) for answers in self.answers]}
                if any(self.answers)
                else {}
            ),
            "pairs": [
                {
                    "a": self.systems[pair.a],
                    "b": self.systems[pair.b],
                    "p_holm": pair.p_holm,
                    "verdict": verdict.to_json(),
                    "tasks": [
                        {"task": task.task, **asdict(task.difference), "p_holm": task.p_holm}
                        for task in pair.tasks
                    ],
                    "pooled": {
                        "task_mean": asdict(pair.by_task),
                        "query_weighted": asdict(pair.by_query),
                    },
                }
                for pair, verdict in zip(self.pairs, self.verdicts, strict=True)
            ],
        }


def _skipped_queries(trial: Result | RunFileResult) -> int:
    """Number of queries of the task without judgements."""
    return (
        len(trial.loaded_task.queries) - len(trial.scores)
        if isinstance(trial, RunFileResult)
        else trial.record.task.skipped_queries
    )


def _shares_judged(trials: Sequence[Result | RunFileResult]) -> tuple[float | None, ...]:
    """The mean Judged@10 of every trial; None where it was not measured."""
    return tuple(
        float(trial.scores[JUDGED].mean()) if JUDGED in trial.scores and len(trial.scores) else None
        for trial in trials
    )


def _scores_by_task(
    by_task: Mapping[str, Sequence[Result | RunFileResult]], metric: str
) -> dict[str, list[QueryScores]]:
    """The scores of all queries, by task; empty if a result does not have the metric."""
    if any(metric not in trial.scores for trials in by_task.values() for trial in trials):
        return {}
    return {task: query_scores(trials, metric) for task, trials in by_task.items()}


def _run_identity(result: Result | RunFileResult) -> tuple[str, str]:
    """An identity that is equal for two names of the same run.

    It includes the run's checksum, because a custom class may change without changing the key.
    """
    if isinstance(result, Result):
        return result.key, result.record.files[RUN_FILE]
    return result.name, ""
