"""Measure stored results with added judgements, in memory; stored scores do not change."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from r2med.errors import DataError, MissingError
from r2med.judge.added import ALL, REVIEW, ChosenJudgements, choose_judgements
from r2med.judge.log import Warn
from r2med.judge.reporting import calibrate_sets
from r2med.judge.store import JudgementStore
from r2med.measure.metrics import parse_metric
from r2med.measure.scores import Scores, ceiling, measure
from r2med.results.record import BENCHMARK, SCORES_FILE, Record, Result
from r2med.results.select import ResultSet
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task


def rescore_results(
    results: Sequence[Result],
    choice: str,
    folder: Path,
    *,
    root: Path | None = None,
    warn: Warn,
) -> list[Result]:
    """Return results with their scores measured again with the judgements of a choice.

    Results on tasks that have no such judgements, or whose data has changed, are left out with a
    warning, so that no mean mixes judgements.

    Args:
        results: Stored results.
        choice: `benchmark`, `all`, `review` or the name of a judgement set.
        folder: The results folder, which also has the judgements.
        root: Folder of task data, as in `load_tasks`.
        warn: Callback for user-facing warnings.

    Raises:
        MissingError: No task of the results has such judgements.
        DataError: A judge was not calibrated.
    """
    if choice == BENCHMARK:
        return list(results)
    names = dict.fromkeys(result.task for result in results)
    local_tasks = ResultSet.open(results).local_tasks
    chosen: dict[str, tuple[Task, ChosenJudgements]] = {}
    missing: list[str] = []
    for name in names:
        [task] = load_tasks(name, root=root, local_tasks=local_tasks)
        if not _has_judgements(task, choice, folder, warn):
            missing.append(name)
            continue
        _check_calibration(task, choice, folder, warn)
        chosen[name] = (task, choose_judgements(task, choice, folder, warn=warn))
    if not chosen:
        raise MissingError(
            f"--judgements {choice}: no task here has such judgements in {folder}.\n"
            "`r2med judge list` lists the sets."
        )
    if missing:
        warn(f"--judgements {choice}: left out, without such judgements: {', '.join(missing)}.")
    return list(_rescore_all(results, chosen, warn))


def rescore_result(result: Result, task: Task, chosen: ChosenJudgements) -> Result:
    """Return a result measured with chosen judgements, on the queries that the benchmark judged.

    On a task without judgements, all queries with added judgements count.
    """
    ties = result.record.system.ties
    metrics = [parse_metric(name) for name in result.scores.columns]
    scores = measure(result.run, chosen.judgements, metrics, ties=ties)
    if len(task.judgements):
        scores = scores.at(task.judgements.query_ids.unique())
    record = _with_scores(result.record, result, scores, chosen)
    content = io.BytesIO()
    pq.write_table(scores.to_arrow(), content)
    rescored = Result.from_record(
        result.folder,
        record,
        reused=result.reused,
        tables={**result.tables, SCORES_FILE: content.getvalue()},
    )
    names = " + ".join((BENCHMARK, *chosen.sources))
    return replace(rescored, judgements=names)


def _rescore_all(
    results: Iterable[Result], chosen: Mapping[str, tuple[Task, ChosenJudgements]], warn: Warn
) -> Iterable[Result]:
    for result in results:
        if result.task not in chosen:
            continue
        task, judgements = chosen[result.task]
        if result.data != task.hash:
            warn(f"{result.name} on {result.task}: its data has changed, so it is left out.")
            continue
        yield rescore_result(result, task, judgements)


def _with_scores(
    record: Record, result: Result, scores: Scores, chosen: ChosenJudgements
) -> Record:
    """Return the record with figures from `scores`, and without those that need a new run."""
    reranking = record.reranking
    if reranking is not None:
        ties = record.system.ties
        metrics = [parse_metric(name) for name in reranking.ceiling]
        best = ceiling(result.run, chosen.judgements, metrics, depth=reranking.depth, ties=ties)
        reranking = replace(reranking, ceiling=best.at(scores.query_ids).means())
    recalls = [name for name in record.micro if f"recall@{name.rpartition('@')[2]}" in scores]
    micro = {name: scores.micro_recall(int(name.rpartition("@")[2])) for name in recalls}
    return replace(
        record,
        task=replace(record.task, judged_queries=len(scores)),
        metrics=scores.means(),
        micro=micro,
        reranking=reranking,
        safeguard=None,
    )


def _check_calibration(task: Task, choice: str, folder: Path, warn: Warn) -> None:
    for calibration in calibrate_sets(task, choice, folder, warn=warn):
        if not calibration.is_usable:
            raise DataError(
                f"judgement set {calibration.judge!r} on {task.name} was not calibrated, so scores "
                "with it are not shown.\nJudge a calibration sample (r2med judge SYSTEM... "
                f"--calibration 100), or review it: r2med review --task {task.name}"
            )


def _has_judgements(task: Task, choice: str, folder: Path, warn: Warn) -> bool:
    if choice in (ALL, REVIEW):
        try:
            choose_judgements(task, choice, folder, warn=warn)
        except MissingError:
            return False
        return True
    return any(judged.name == choice for judged in JudgementStore(folder, warn=warn).sets(task))
