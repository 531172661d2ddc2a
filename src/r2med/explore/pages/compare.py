"""The comparison of two systems query by query, or of more systems as a grid, with tests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from r2med.explore.library import Snapshot, check_systems, task_words
from r2med.explore.render import Axis, Bar, Link, format_signed, points, render
from r2med.measure.intervals import TIE
from r2med.measure.significance import TaskDifference
from r2med.measure.verdicts import Verdict, decide_row
from r2med.report.table import snippet, task_label
from r2med.results.compare import Comparison, QueryScores, compare
from r2med.results.published_data import find_other_data
from r2med.results.record import Result
from r2med.results.stored_pairs import find_stored_pairs

MOST_SYSTEMS = 8
#: Pixels of a plot of differences: of one task among others, and of one alone.
_SIZE, _ALONE = (360, 120), (960, 220)
#: The least difference that an axis reaches to.
_LEAST = 0.05
_LISTED, _EXCERPT = 40, 80
_TOP = 10


def compare_page(
    snapshot: Snapshot, link: Link, *, scope: str, systems: Sequence[str], metric: str
) -> str:
    """Return the comparison of systems on a task, or on all tasks of a suite that they share.

    With fewer than two systems, the page lists the systems to choose from.
    """
    is_suite = scope in snapshot.suites
    tasks = [name for name in snapshot.tasks if scope in (name, snapshot.suite_of(name))]
    by_task = {name: snapshot.of_task(name, any_version=not is_suite) for name in tasks}
    counts = Counter(system for results in by_task.values() for system in results)
    check_systems(systems, counts, MOST_SYSTEMS)
    stored = {snapshot.suite_of(name) for name in snapshot.tasks}
    where = snapshot.suites[scope].title if is_suite else task_label(scope)
    values = {
        "page": "compare",
        "where": where,
        "scope": scope,
        "whole": is_suite,
        "systems": systems,
        "names": snapshot.names,
        "metric": metric,
        "offered": sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])),
        "scopes": [
            *(
                (s.name, f"{s.title}, all tasks")
                for s in snapshot.suites.values()
                if s.name in stored
            ),
            *((name, task_words(name)) for name in snapshot.tasks),
        ],
        "most": MOST_SYSTEMS,
    }
    if len(systems) < 2:
        return render("compare.html", link, title=f"Compare, {where}", comparison=None, **values)
    chosen = [
        results[system] for results in by_task.values() for system in systems if system in results
    ]
    left_out: list[str] = []
    comparison = compare(*systems, metric=metric, results=chosen, tell=left_out.append)
    shared = {name: [by_task[name][system] for system in systems] for name in comparison.tasks}
    all_results = [result for task_results in shared.values() for result in task_results]
    contrasts = [
        row
        for name, task_results in shared.items()
        for row in _contrasts(snapshot, name, task_results, comparison.tasks[name])
    ]
    # The largest difference first; unjudged queries last, those that share least first.
    contrasts.sort(key=lambda row: (not row["scores"], -abs(row["difference"] or 0), row["common"]))
    names = [snapshot.names[system] for system in systems]
    title = f"{names[0]} against {names[1]}" if len(names) == 2 else f"{len(names)} systems"
    sentences: list[str] = []
    remarks: list[str] = []
    significant_rows: list[bool] = []
    if len(systems) > 2:
        sentences.append(describe_grid(comparison))
    else:
        verdict = decide_pair(snapshot, comparison, systems, scope, by_task)
        sentences.append(verdict.sentence)
        remarks.extend(verdict.remarks)
        significant_rows = _find_significant_rows(comparison.pairs[0].lines, verdict)
        if verdict.strength == "alone":  # the first remark limits the sentence
            sentences.append(remarks.pop(0))
    return render(
        "grid.html" if len(systems) > 2 else "compare.html",
        link,
        title=f"{title}, {where}",
        comparison=comparison,
        answer=" ".join(sentences),
        other_data=find_other_data(all_results),
        notices=[*snapshot.version_notices(all_results), *left_out],
        remarks=remarks,
        verdicts=_verdicts_by_cell(comparison),
        significant_rows=significant_rows,
        contrasts=contrasts[:_LISTED],
        queries=len(contrasts),
        **values,
        **(_plots(comparison) if len(systems) == 2 else {}),
    )


def decide_pair(
    snapshot: Snapshot,
    comparison: Comparison,
    systems: Sequence[str],
    scope: str,
    by_task: Mapping[str, Mapping[str, Result]],
) -> Verdict:
    """Return the verdict on two systems, corrected over all pairs that are stored for the scope.

    The leaderboard makes the same correction, so both pages agree.
    """
    [verdict] = comparison.verdicts
    choice = {} if scope in snapshot.suites else {"task": scope}
    suite = snapshot.suite_of(scope) if choice else scope
    if suite is None:
        return verdict
    board = snapshot.board(suite, metric=comparison.metric, **choice)
    results_a, results_b = (
        {task: by_task[task][system] for task in comparison.tasks} for system in systems
    )
    return verdict.correct_over(find_stored_pairs(board, results_a, results_b))


def _find_significant_rows(rows: Sequence[TaskDifference], verdict: Verdict) -> list[bool]:
    """Return whether the difference in each row of a pair's table is significant.

    The row of the mean, or of the only task, follows the verdict of the page; all other rows have
    separate tests.
    """
    return [
        verdict.is_significant
        if row.p_holm is None or len(rows) == 1
        else decide_row(row).is_significant
        for row in rows
    ]


def describe_grid(comparison: Comparison) -> str:
    """Describe which of several systems has the highest mean, and how many pairs differ."""
    systems, verdicts = comparison.systems, comparison.verdicts
    mean, best = max(zip(comparison.means, systems, strict=True), key=lambda pair: pair[0])
    significant = sum(verdict.is_significant for verdict in verdicts)
    return (
        f"{best} has the highest mean of the {len(systems)}: {points(mean)}. "
        f"After Holm's correction {significant} of {len(verdicts)} pairs differ significantly."
    )


def _verdicts_by_cell(comparison: Comparison) -> dict[tuple[int, int], tuple[float, Verdict]]:
    """For each row and column of the grid, return row minus column, and the verdict on the pair."""
    cells = {}
    for pair, verdict in zip(comparison.pairs, comparison.verdicts, strict=True):
        cells[pair.a, pair.b] = verdict.difference.difference, verdict
        cells[pair.b, pair.a] = -verdict.difference.difference, verdict
    return cells


def _plots(comparison: Comparison) -> dict[str, Any]:
    """Return the plots: per task a panel with one bar per query, and an axis for the intervals.

    Bars are sorted from the largest loss to the largest gain; all panels share one scale.
    """
    lines = comparison.pairs[0].lines
    ends = [(line.difference.interval.low, line.difference.interval.high) for line in lines]
    reach = max([_LEAST, *(max(-low, high) for low, high in ends)])
    gains = [query.gain for queries in comparison.tasks.values() for query in queries]
    high, low = max([*gains, _LEAST]), max([*(-gain for gain in gains), _LEAST])
    width, height = _ALONE if len(comparison.tasks) == 1 else _SIZE
    zero = round(height * high / (high + low), 1)
    panels = []
    for task, queries in comparison.tasks.items():
        step = width / len(queries)
        bars = []
        for index, query in enumerate(sorted(queries, key=lambda query: query.gain)):
            tall = max(1.5, abs(query.gain) * height / (high + low))
            bars.append(
                Bar(
                    x=round(step * index, 2),
                    y=round(zero - tall, 1) if query.gain > 0 else zero,
                    width=round(max(step - 1, 0.8 * step), 2),
                    height=round(tall, 1),
                    text=f"query {query.query_id}: {format_signed(query.gain)}",
                    side="even" if abs(query.gain) <= TIE else "won" if query.gain > 0 else "lost",
                    query_id=query.query_id,
                )
            )
        panels.append((task, bars, Counter(bar.side for bar in bars)))
    axis = Axis.around_zero(reach)
    return {
        "lines": lines,
        "axis": axis,
        "panels": panels,
        "size": (width, height),
        "zero": zero,
        "reach": (high, -low),
    }


def _contrasts(
    snapshot: Snapshot, name: str, results: Sequence[Result], scores: Sequence[QueryScores]
) -> list[dict[str, Any]]:
    """Return a row per query; rows of unjudged queries have no scores.

    `common` is the number of documents that all systems have among their first ten.
    """
    task, missing = snapshot.data_of(name, {result.system: result for result in results})
    texts = dict(task.queries.items()) if task and not missing else {}
    runs = [snapshot.library.ranked_run(result) for result in results]
    judged = {query.query_id: query for query in scores}
    rows = []
    for query_id in [*judged, *snapshot.unjudged_queries(results)]:
        tops = [set(run.ranked_documents(query_id)[:_TOP]) for run in runs]
        row = judged.get(query_id)
        rows.append(
            {
                "task": name,
                "query_id": query_id,
                "text": snippet(texts.get(query_id) or "", _EXCERPT),
                "scores": row.scores if row else (),
                "difference": (row.gain if len(results) == 2 else row.division) if row else None,
                "common": len(set.intersection(*tops)),
            }
        )
    return rows
