"""Writes one HTML file with all scores, intervals, tests and settings: `r2med report`.

The file needs no other file: it contains its style and figures, runs no script, and can be printed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from markupsafe import Markup

from r2med.errors import MissingError
from r2med.execution.resources import Warn, log_warning
from r2med.explore.pages.leaderboard import View, draw_figure, headline, table_values
from r2med.explore.render import Link, plural, render, static_file
from r2med.explore.sharing import hide_folders, name_local_task, shareable
from r2med.measure.metrics import parse_metric
from r2med.measure.verdicts import Verdict
from r2med.results.compare import Comparison, compare_selection
from r2med.results.cost import cost_of
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.record import Result
from r2med.results.select import ResultSet, select_versions
from r2med.results.store import DEFAULT_FOLDER, LOCAL
from r2med.results.versions import group_systems, group_versions
from r2med.tasks.load import task_names
from r2med.tasks.registry import in_suite_order, registered_task, resolve


def report_page(
    *systems: str,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    texts: bool = False,
    tell: Warn = log_warning,
) -> str:
    """Return the report of stored results as one HTML page.

    Without `systems`, it contains all systems with results in the folder `results`; without `task`,
    all tasks. The other systems are compared with the first one. The report contains no folder of
    this machine. It quotes the first query and document that each model saw only with `texts`.
    """
    name = str(parse_metric(metric))
    selected = _select_results(systems, task, Path(results), tell)
    chosen = hide_folders(map(name_local_task, selected))
    by_suite: dict[str, list[Result]] = {}
    for result in chosen:
        by_suite.setdefault(result.suite or LOCAL, []).append(result)
    boards = {
        suite: leaderboard(
            suite,
            task=None
            if suite == LOCAL
            else ",".join(dict.fromkeys(result.task for result in suite_results)),
            metric=name,
            results=chosen,
            all_versions=True,
            tell=lambda message: None,
        )
        for suite, suite_results in by_suite.items()
    }
    link = _embedding(boards)
    where = " and ".join(board.suite.title for board in boards.values())
    versions = sorted({pair for result in chosen for pair in result.record.versions.items()})
    return render(
        "report.html",
        link,
        title=f"{plural(len({result.system_key for result in chosen}), 'system')} on {where}",
        metric=name,
        sheets=[_sheet(board, by_suite[suite], link) for suite, board in boards.items()],
        readable=lambda value: json.dumps(
            shareable(value, texts=texts), indent=2, ensure_ascii=False, default=str
        ),
        settings=lambda value: json.dumps(
            shareable(value, texts=True), indent=2, ensure_ascii=False, default=str
        ),
        texts=texts,
        css=Markup(static_file("explore.css").decode()),
        created=max(result.record.created for result in chosen)[:10],
        versions=[f"{library} {version}" for library, version in versions],
    )


def _select_results(
    systems: Sequence[str], task: str | None, folder: Path, tell: Warn
) -> list[Result]:
    """Return the results to report, in the order in which `systems` names them.

    All stored versions of a system are reported, each as a separate row.
    """
    result_set = ResultSet.open(folder, tell)
    tasks = task_names(resolve(task)) if task else sorted({r.task for r in result_set.results})
    requested = [result_set.require_versions(text) for text in systems]
    order = {version.key: index for index, group in enumerate(requested) for version in group}
    on_tasks = [
        result
        for result in result_set.results
        if result.task in tasks and (not systems or result.system_key in order)
    ]
    chosen: list[Result] = []
    for suite in dict.fromkeys(result.suite for result in on_tasks):
        of_suite = [result for result in on_tasks if result.suite == suite]
        suite_tasks = in_suite_order(sorted({result.task for result in of_suite}))
        for system in group_systems(of_suite, suite_tasks):
            for version in system.versions:
                results = (version.result(name) for name in suite_tasks)
                chosen += filter(None, results)
    if not chosen:
        where = f"{folder} holds no result{f' on {task}' if task else ''} to report."
        raise MissingError(f"{where}\nMake one first: r2med eval bm25 --task demo")
    return sorted(chosen, key=lambda result: (order.get(result.system_key, 0), result.system))


def _sheet(board: Leaderboard, results: Sequence[Result], link: Link) -> dict[str, Any]:
    """Return the template values for the part of a report about one suite or the local tasks."""
    view = View(board.suite.name, board.metric, origin="measured")
    by_system: dict[str, list[Result]] = {}
    for result in results:
        by_system.setdefault(result.system_key, []).append(result)
    comparison = _versus(by_system, board.metric)
    entries = map(registered_task, dict.fromkeys(result.task for result in results))
    return {
        "board": board,
        "headline": headline(board),
        "table": Markup(render("board.html", link, **table_values(board, view))),
        "comparison": comparison,
        "verdicts": _verdicts_on_last(comparison) if comparison else [],
        "runs": [
            (system_results[0].name, system_results, cost_of(system_results))
            for system_results in by_system.values()
        ],
        "tasks": [entry for entry in entries if entry],
    }


def _verdicts_on_last(comparison: Comparison) -> list[Verdict]:
    """Return the verdicts on every system compared with the last one, which is the baseline."""
    last = len(comparison.systems) - 1
    pairs = zip(comparison.pairs, comparison.verdicts, strict=True)
    return [verdict for pair, verdict in pairs if pair.b == last]


def _versus(by_system: Mapping[str, Sequence[Result]], metric: str) -> Comparison | None:
    """Compare the first system with all others that ran on the same data; None if none did."""
    data = {key: {result.data for result in results} for key, results in by_system.items()}
    shared = next(iter(data.values()))
    [baseline, *compared] = [key for key in by_system if data[key] >= shared]
    if not compared:
        return None
    versions = [
        version
        for key in (*compared, baseline)
        for version in group_versions([r for r in by_system[key] if r.data in shared])
    ]
    return compare_selection(select_versions(versions), metric)


def _embedding(boards: Mapping[str, Leaderboard]) -> Link:
    """Return links for a single file: figures become data URLs, and all other pages None."""

    @cache
    def drawn(name: str, suite: str, theme: str) -> str | None:
        try:
            svg = draw_figure(boards[suite], name, theme)
        except MissingError:  # nothing to draw, or nothing to draw it with
            return None
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

    def link(page: str, **parts: str | Sequence[str] | None) -> str | None:
        if page != "plot":
            return None
        return drawn(str(parts["name"]), str(parts["suite"]), str(parts["theme"]))

    return link
