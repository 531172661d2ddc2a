"""One file that says what was measured, how sure it is and how it was made: `r2med report`.

The page needs nothing else: its style and figures are inside it, it runs no script, and it prints.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from r2med.atomic import atomic_file
from r2med.errors import MissingError
from r2med.explore.pages.leaderboard import View, headline, table_of
from r2med.explore.plots import FIGURES
from r2med.explore.render import Link, plural, render
from r2med.measure.metrics import parse_metric
from r2med.measure.significance import SIGNIFICANT, Difference, compare_systems
from r2med.report.plots.theme import check_libraries, find_theme, svg_of
from r2med.results.cost import Cost, cost_of
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.lookup import find_named, newest_by_system, stored_results
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.tasks.load import task_names
from r2med.tasks.registry import TaskEntry, all_entries, find_task, resolve

#: The figures of a suite, and what each shows; the table of scores is a heat map already.
_FIGURES = {"cost.svg": "Quality against seconds per query"}


@dataclass(frozen=True, eq=False)
class Sheet:
    """The part of a report about one suite, or about the user's own data."""

    title: str
    suite: str | None
    headline: str
    table: Markup
    comparison: Versus | None
    runs: tuple[SystemRuns, ...]
    tasks: tuple[TaskEntry, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Versus:
    """Every system against one of them, over the tasks that all of them ran on."""

    baseline: str
    tasks: tuple[str, ...]
    rows: tuple[tuple[str, Difference, float], ...]
    """System, its difference to the baseline, and p after Holm's correction over all pairs."""


@dataclass(frozen=True, eq=False)
class SystemRuns:
    """How one system was run: everything that decides its rankings, and each of its results."""

    system: str
    results: tuple[Result, ...]
    cost: Cost

    @property
    def settings(self) -> str:
        """Its identity as readable JSON."""
        return _readable(self.results[0].record.system.identity)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What really ran on each task, as JSON."""
        return [(each.task, _readable(each.record.facts)) for each in self.results]


def write_report(
    path: str | Path,
    *systems: str,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    tell: Tell = log,
) -> Path:
    """Write the report of stored results as one HTML file and return its path.

    Without `systems` all that have results in the folder `results`, without `task` all tasks; the
    first system is the one that the others are compared with.
    """
    page = report_page(*systems, task=task, metric=metric, results=results, tell=tell)
    with atomic_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")
    return Path(path)


def report_page(
    *systems: str,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    tell: Tell = log,
) -> str:
    """The text of a report."""
    name = str(parse_metric(metric))
    chosen = _chosen(systems, task, Path(results), tell)
    order = list(dict.fromkeys(each.system for each in chosen))
    boards = _boards(chosen, name)
    link = _embedding(boards)
    suites = dict.fromkeys(each.suite for each in chosen)
    sheets = [
        _sheet(suite, [each for each in chosen if each.suite == suite], boards, name, link)
        for suite in suites
    ]
    return render(
        "report.html",
        link,
        title=_title(order, sheets),
        metric=name,
        sheets=sheets,
        figures=_FIGURES if _can_draw() else {},
        css=Markup((files("r2med.explore") / "static" / "explore.css").read_text("utf-8")),
        created=max(each.record.created for each in chosen)[:10],
        versions=_versions(chosen),
        significant=SIGNIFICANT,
    )


def _chosen(systems: Sequence[str], task: str | None, folder: Path, tell: Tell) -> list[Result]:
    """The newest result of every system and task, systems in the order in which they are named."""
    stored = stored_results(folder, tell)
    places = {entry.name: place for place, entry in enumerate(all_entries())}
    tasks = task_names(resolve(task)) if task else sorted({each.task for each in stored})
    tasks.sort(key=lambda name: places.get(name, len(places)))
    named = [find_named(text, stored, folder) for text in systems]
    kept = [each for one in named for each in one.results] if systems else stored
    chosen = [
        result
        for name in tasks
        for result in newest_by_system([each for each in kept if each.task == name], tell).values()
    ]
    if not chosen:
        where = f" on {task}" if task else ""
        raise MissingError(
            f"{folder} holds no result{where} to report.\n"
            "Make one first: r2med eval bm25 --task demo"
        )
    order = {one.name: place for place, one in enumerate(named)}
    return sorted(chosen, key=lambda each: (order.get(each.system, len(order)), each.system))


def _boards(chosen: Sequence[Result], metric: str) -> dict[str, Leaderboard]:
    suites = dict.fromkeys(each.suite for each in chosen if each.suite)
    return {
        suite: leaderboard(
            suite,
            task=",".join(dict.fromkeys(each.task for each in chosen if each.suite == suite)),
            metric=metric,
            results=list(chosen),
            tell=lambda message: None,
        )
        for suite in suites
    }


def _sheet(
    suite: str | None,
    results: Sequence[Result],
    boards: Mapping[str, Leaderboard],
    metric: str,
    link: Link,
) -> Sheet:
    board = boards[suite] if suite else None
    tasks = list(dict.fromkeys(each.task for each in results))
    if board is None:
        table = render("own_scores.html", link, **_own_scores(results, tasks, metric))
    else:
        view = View(board.suite.name, metric, origin="measured")
        table = render("board.html", link, **table_of(board, view))
    return Sheet(
        title=board.suite.title if board else "Your data",
        suite=suite,
        headline=headline(board) if board else "",
        table=Markup(table),
        comparison=_versus(results, metric),
        runs=tuple(_runs(results)),
        tasks=tuple(find_task(name) for name in tasks) if suite else (),
        notes=tuple(board.notes) if board else (),
    )


def _own_scores(results: Sequence[Result], tasks: Sequence[str], metric: str) -> dict[str, Any]:
    """Systems by tasks, for data that no suite has."""
    by_system: dict[str, dict[str, float]] = {}
    for each in results:
        by_system.setdefault(each.system, {})[each.task] = each.metrics[metric]
    return {"tasks": tasks, "scores": by_system, "metric": metric}


def _versus(results: Sequence[Result], metric: str) -> Versus | None:
    """The systems that ran on the same data as the first one, each against it."""
    by_system: dict[str, dict[tuple[str, str], Result]] = {}
    for each in results:
        data = (each.task, each.record.task.hash)
        by_system.setdefault(each.system, {})[data] = each
    baseline, shared = next(iter(by_system.items()))
    [_, *others] = [name for name, own in by_system.items() if own.keys() >= shared.keys()]
    if not others:
        return None
    columns = {
        task: np.column_stack(
            [
                by_system[name][task, data].scores.at(first.scores.query_ids)[metric]
                for name in (*others, baseline)
            ]
        )
        for (task, data), first in shared.items()
    }
    rows = [
        (others[pair.a], pair.by_task, pair.p_holm)
        for pair in compare_systems(columns)
        if pair.b == len(others)
    ]
    return Versus(baseline, tuple(columns), tuple(rows))


def _runs(results: Sequence[Result]) -> list[SystemRuns]:
    by_system: dict[str, list[Result]] = {}
    for each in results:
        by_system.setdefault(each.system, []).append(each)
    return [SystemRuns(name, tuple(own), cost_of(own)) for name, own in by_system.items()]


def _title(systems: Sequence[str], sheets: Sequence[Sheet]) -> str:
    where = " and ".join(sheet.title for sheet in sheets)
    return f"{plural(len(systems), 'system')} on {where}"


def _versions(results: Sequence[Result]) -> list[str]:
    """Every version of a library that the results were made with."""
    found: dict[str, set[str]] = {}
    for each in results:
        for name, version in each.record.versions.items():
            found.setdefault(name, set()).add(version)
    return [f"{name} {', '.join(sorted(versions))}" for name, versions in found.items()]


def _embedding(boards: Mapping[str, Leaderboard]) -> Link:
    """Addresses inside the file: figures are drawn into it, and no other page exists."""

    @cache
    def drawn(name: str, suite: str, theme: str) -> str | None:
        look = find_theme("dark" if theme == "dark" else "light")
        try:
            svg = svg_of(FIGURES[name.removesuffix(".svg")](boards[suite], look), look)
        except MissingError:
            return None
        return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()

    def link(page: str, **parts: str | Sequence[str] | None) -> str | None:
        if page != "plot":
            return None
        return drawn(str(parts["name"]), str(parts["suite"]), str(parts["theme"]))

    return link


def _can_draw() -> bool:
    try:
        check_libraries()
    except MissingError:
        return False
    return True


def _readable(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
