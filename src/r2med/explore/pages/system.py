"""The page of a system: its scores and their origin, protocols, misses, settings and costs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.pages.leaderboard import with_interval
from r2med.explore.pages.overlap import chart_systems
from r2med.explore.pages.task import MissedPositives
from r2med.explore.render import Axis, Link, plural, render
from r2med.measure.intervals import mean_interval
from r2med.number_format import join_words
from r2med.results.answers import answer_notes
from r2med.results.diagnosis.causes import CAUSES
from r2med.results.diagnosis.findings import TaskDiagnosis
from r2med.results.identities import flatten
from r2med.results.leaderboard import Leaderboard
from r2med.results.protocols import compare_figures
from r2med.results.standings import Standing

#: Settings that are shown; a longer value is cut.
_SETTINGS, _VALUE = 200, 300
#: Documents of a task whose missed positives are counted on this page.
_LARGEST_TASK = 5_000
#: Tasks with the most missed positives that are named.
_WORST = 3


def system_page(snapshot: Snapshot, link: Link, system: str, *, suite: str, metric: str) -> str:
    """Return the page of a system in a suite; published and measured figures are separate."""
    board = snapshot.board(suite, metric=metric)
    rows = board.add_details(row for row in board.rows if row.system == system)
    results = [
        stored[system]
        for task in board.suite.entries
        if system in (stored := snapshot.of_task(task.name, any_version=False))
    ]
    if not rows and not results:
        raise MissingError(f"No figure of {system[:100]!r} is known in the {board.suite.title}.")
    first = results[0] if results else None
    scored = [result for result in results if metric in result.scores]
    rivals = chart_systems(board, system)
    rival = rivals[1] if rivals and rivals[0] == system else None
    rival_results = {
        result.task: stored[rival]
        for result in results
        if rival in (stored := snapshot.of_task(result.task, metric))
    }
    rival_scores = {task: result.metrics[metric] for task, result in rival_results.items()}
    misses = _diagnose_tasks(snapshot, system, [result.task for result in results])
    return render(
        "system.html",
        link,
        page="leaderboard",
        title=f"{snapshot.names[system]}, {board.suite.title}",
        name=snapshot.names[system],
        system=system,
        board=board,
        rows=rows,
        answer=_answer(snapshot.names[system], rows, board, len(results)),
        results=[
            (result, mean_interval(result.scores[metric]) if metric in result.scores else None)
            for result in results
        ],
        differing=compare_figures(system) if any(row.other_figures for row in rows) else None,
        settings=list(_settings(first.record.system.identity)) if first else [],
        first=first,
        missed=_count_missed(snapshot.names[system], misses.values()),
        worst=_worst_tasks(misses),
        rival=snapshot.names[rival] if rival else "",
        rival_system=rival,
        rival_scores=rival_scores,
        printed=any(row.origin != "measured" or row.other_figures for row in rows),
        axis=Axis.around(
            [*(result.metrics[metric] for result in scored), *rival_scores.values()],
            [result.scores[metric] for result in scored],
        ),
        answer_notes=list(answer_notes(results)),
        notices=snapshot.version_notices(results),
        draws_overlap=chart_systems(board, system) is not None
        and any(snapshot.library.has_data(result.task) for result in results),
    )


def _diagnose_tasks(
    snapshot: Snapshot, system: str, tasks: Sequence[str]
) -> dict[str, TaskDiagnosis]:
    """Diagnose a system on the small tasks whose data is here.

    Large tasks are left out because each takes seconds; the pages of these tasks show the
    diagnosis.
    """
    diagnoses = {}
    for name in tasks:
        results = snapshot.of_task(name)
        if results[system].record.task.documents > _LARGEST_TASK:
            continue
        task, _ = snapshot.data_of(name, results)
        if task is not None and len(task.judgements):
            diagnoses[name] = snapshot.library.diagnosis(results[system], task, snapshot.results)
    return diagnoses


def _count_missed(name: str, diagnoses: Collection[TaskDiagnosis]) -> MissedPositives | None:
    """Count missed positives by cause over all diagnosed tasks; None if they have no positives."""
    positives = sum(diagnosis.positives for diagnosis in diagnoses)
    if not positives:
        return None
    causes = Counter[str]()
    for diagnosis in diagnoses:
        causes.update(diagnosis.causes)
    ordered = {cause: causes[cause] for cause in CAUSES if causes[cause]}
    return MissedPositives(name, positives, ordered)


def _worst_tasks(diagnoses: Mapping[str, TaskDiagnosis]) -> list[tuple[str, str]]:
    """Return the tasks with the largest share of missed positives, each with its counts."""
    missed = {task: sum(diagnosis.causes.values()) for task, diagnosis in diagnoses.items()}
    shares = {task: missed[task] / diagnoses[task].positives for task in missed if missed[task]}
    worst = sorted(shares, key=shares.__getitem__, reverse=True)[:_WORST]
    return [
        (task, f"{missed[task]} of {plural(diagnoses[task].positives, 'positive')} missed")
        for task in worst
    ]


def _answer(name: str, rows: list[Standing], board: Leaderboard, results: int) -> str:
    """Return the sentence that gives a system's means and ranks, and who measured each."""
    if not rows:
        return f"{plural(results, 'task')} measured here; no mean without the others."
    ranked = sum(row.mean is not None for row in board.rows)
    figures = []
    for row in rows:
        names = join_words(source.name for source in row.sources) if row.sources else row.source
        whose = "measured here" if row.origin == "measured" else f"printed by {names}"
        figures.append(
            f"has {len(row.values)} of {len(board.tasks)} tasks, {whose}"
            if row.mean is None
            else f"is rank {row.rank} of {ranked} with {with_interval(row)}, {whose}"
        )
    return f"{name} {'; it '.join(figures)}."


def _settings(identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in islice(flatten(identity), _SETTINGS):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text if len(text) <= _VALUE else f"{text[:_VALUE]} …"
