"""The judgement report of one task: chosen judgements, calibrations and effects together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from r2med.errors import UsageError
from r2med.judge.added import ALL, REVIEW, choose_judgements
from r2med.judge.calibration import Calibration, calibrate, calibrate_set
from r2med.judge.effects import JudgeReport, report_effects
from r2med.judge.families import family_warnings
from r2med.judge.log import Warn
from r2med.judge.review import ReviewStore
from r2med.judge.store import JudgementSet, JudgementStore
from r2med.results.record import BENCHMARK, Result
from r2med.runs import Run
from r2med.tasks.task import Task


def report_task(
    task: Task,
    runs: Mapping[str, Run],
    choice: str,
    results: Path,
    *,
    metric: str = "ndcg@10",
    stored: Mapping[str, Result],
    warn: Warn,
) -> JudgeReport:
    """Report what `--judgements CHOICE` changes on a task.

    Args:
        task: The task.
        runs: Runs by system, with ties resolved.
        choice: `all`, `review` or the name of a set.
        results: The results folder.
        metric: A metric with a cutoff.
        stored: Results by system, to warn of judges of the same model family.
        warn: Callback for user-facing warnings.
    """
    if choice == BENCHMARK:
        raise UsageError(
            "--judgements benchmark adds nothing: it selects the task's own judgements. Use the "
            "name of a set, 'review' or 'all'."
        )
    chosen = choose_judgements(task, choice, results, warn=warn)
    sets = _sets(task, choice, results, warn)
    warnings = [
        text for judged in sets for text in family_warnings(judged.description.models, stored)
    ]
    return report_effects(
        task,
        runs,
        chosen,
        [_calibrate(judged, task, results, warn) for judged in sets],
        metric=metric,
        warnings=list(dict.fromkeys(warnings)),
    )


def calibrate_sets(task: Task, choice: str, results: Path, *, warn: Warn) -> list[Calibration]:
    """Calibrate the chosen judgement sets, against people if the benchmark judged none of a set.

    Args:
        task: The task.
        choice: `all`, `review` or the name of a set.
        results: The results folder.
        warn: Callback for user-facing warnings.
    """
    sets = _sets(task, choice, results, warn)
    return [_calibrate(judged, task, results, warn) for judged in sets]


def _sets(task: Task, choice: str, results: Path, warn: Warn) -> list[JudgementSet]:
    store = JudgementStore(results, warn=warn)
    if choice == ALL:
        return store.graded_sets(task)
    return [] if choice == REVIEW else [store.find(choice, task)]


def _calibrate(judged: JudgementSet, task: Task, results: Path, warn: Warn) -> Calibration:
    against_benchmark = calibrate_set(judged, task)
    store = ReviewStore(results, task.name, task.suite, warn=warn)
    if against_benchmark.is_usable or not store.exists:
        return against_benchmark
    rubric = store.queue().rubric
    labels = store.final_labels(rubric)
    called = {pair: rubric.is_relevant(label) for pair, label in labels.items()}
    relevance = {pair: relevant for pair, relevant in called.items() if relevant is not None}
    if not relevance:
        return against_benchmark
    return calibrate(
        judged.name, judged.grades(), relevance, judged.rubric, task, reference="people"
    )
