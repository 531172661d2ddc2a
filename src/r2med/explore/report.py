"""One file that says what was measured, how sure it is and how it was made: `r2med report`.

The page needs nothing else: its style and figures are inside it, it runs no script, and it prints.
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
from r2med.explore.pages.leaderboard import View, draw_figure, headline, table_values
from r2med.explore.render import Link, plural, render, static_file
from r2med.measure.metrics import parse_metric
from r2med.measure.significance import SIGNIFICANT
from r2med.results.compare import Comparison, compare
from r2med.results.cost import cost_of
from r2med.results.leaderboard import Leaderboard, leaderboard
from r2med.results.lookup import distinct_results, find_named, stored_results
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER, LOCAL
from r2med.retrieve.conditions import Tell, log
from r2med.tasks.load import task_names
from r2med.tasks.registry import in_suite_order, registered_task, resolve


def report_page(
    *systems: str,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    tell: Tell = log,
) -> str:
    """The report of stored results as the text of one HTML file.

    Without `systems` all that have results in the folder `results`, without `task` all tasks; the
    first system is the one that the others are compared with.
    """
    name = str(parse_metric(metric))
    chosen = _chosen(systems, task, Path(results), tell)
    by_suite: dict[str, list[Result]] = {}
    for each in chosen:
        by_suite.setdefault(each.suite or LOCAL, []).append(each)
    boards = {
        suite: leaderboard(
            suite,
            task=None if suite == LOCAL else ",".join(dict.fromkeys(each.task for each in own)),
            metric=name,
            results=chosen,
            tell=lambda message: None,
        )
        for suite, own in by_suite.items()
    }
    link = _embedding(boards)
    where = " and ".join(board.suite.title for board in boards.values())
    versions = sorted({pair for each in chosen for pair in each.record.versions.items()})
    return render(
        "report.html",
        link,
        title=f"{plural(len(set(map(_called, chosen))), 'system')} on {where}",
        metric=name,
        sheets=[_sheet(board, by_suite[suite], link) for suite, board in boards.items()],
        readable=lambda value: json.dumps(value, indent=2, ensure_ascii=False, default=str),
        css=Markup(static_file("explore.css").decode()),
        created=max(each.record.created for each in chosen)[:10],
        versions=[f"{library} {version}" for library, version in versions],
        significant=SIGNIFICANT,
    )


def _chosen(systems: Sequence[str], task: str | None, folder: Path, tell: Tell) -> list[Result]:
    """Newest results by system and task, systems in the order in which they are named."""
    stored = stored_results(folder, tell)
    tasks = task_names(resolve(task)) if task else sorted({each.task for each in stored})
    named = [find_named(text, stored, folder) for text in systems]
    if systems:
        stored = stored_results([each for one in named for each in one.results], tell)
    apart = distinct_results(stored)
    chosen = [each for name in in_suite_order(tasks) for each in apart if each.task == name]
    if not chosen:
        where = f"{folder} holds no result{f' on {task}' if task else ''} to report."
        raise MissingError(f"{where}\nMake one first: r2med eval bm25 --task demo")
    order = {one.name: place for place, one in enumerate(named)}
    places = {each: order.get(each.name, order.get(each.system, len(order))) for each in chosen}
    return sorted(chosen, key=lambda each: (places[each], _called(each)))


def _called(result: Result) -> str:
    """A system's text, or what tells it apart from a newer one of the same text."""
    return result.alias or result.system


def _sheet(board: Leaderboard, results: Sequence[Result], link: Link) -> dict[str, Any]:
    """The part of a report about one suite, or about the user's own data."""
    view = View(board.suite.name, board.metric, origin="measured")
    by_system: dict[str, list[Result]] = {}
    for each in results:
        by_system.setdefault(_called(each), []).append(each)
    entries = map(registered_task, dict.fromkeys(each.task for each in results))
    return {
        "board": board,
        "headline": headline(board),
        "table": Markup(render("board.html", link, **table_values(board, view))),
        "comparison": _versus(by_system, board.metric),
        "runs": [(own[0].name, own, cost_of(own)) for own in by_system.values()],
        "tasks": [entry for entry in entries if entry],
    }


def _versus(by_system: Mapping[str, Sequence[Result]], metric: str) -> Comparison | None:
    """The systems that ran on the same data as the first one, each against it; None if none did.

    One system under several texts counts once.
    """
    data = {name: {each.data for each in own} for name, own in by_system.items()}
    shared = next(iter(data.values()))
    once: dict[frozenset[str], str] = {}
    for name, own in by_system.items():
        if data[name] >= shared:
            keys = frozenset(each.record.key for each in own if each.data in shared)
            once.setdefault(keys, name)
    [baseline, *others] = once.values()
    if not others:
        return None
    same = [r for own in by_system.values() for r in own if r.data in shared]
    return compare(*others, baseline, metric=metric, results=same, tell=lambda message: None)


def _embedding(boards: Mapping[str, Leaderboard]) -> Link:
    """Addresses inside the file: figures are drawn into it, and no other page exists."""

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
