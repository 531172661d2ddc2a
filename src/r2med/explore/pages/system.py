"""One system: where its figures come from, how protocols differ, what really ran, what it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.pages.leaderboard import with_interval
from r2med.explore.render import Link, plural, render
from r2med.measure.intervals import mean_interval
from r2med.report.table import listed
from r2med.results.leaderboard import Leaderboard
from r2med.results.lookup import leaves
from r2med.results.protocols import compare_figures
from r2med.results.standings import Standing

#: Settings that are shown; a longer value is cut.
_SETTINGS, _VALUE = 200, 300


def system_page(snapshot: Snapshot, link: Link, system: str, *, suite: str, metric: str) -> str:
    """The page of a system in a suite; what was printed and what was measured apart."""
    board = snapshot.board(suite, metric=metric)
    rows = [row for row in board.rows if row.system == system]
    results = [
        own[system]
        for task in board.suite.entries
        if system in (own := snapshot.of_task(task.name))
    ]
    if not rows and not results:
        raise MissingError(f"No figure of {system[:100]!r} is known in the {board.suite.title}.")
    first = results[0] if results else None
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
            (each, mean_interval(each.scores[metric]) if metric in each.scores else None)
            for each in results
        ],
        differing=compare_figures(system) if any(row.others for row in rows) else None,
        settings=list(_settings(first.record.system.identity)) if first else [],
        first=first,
    )


def _answer(name: str, rows: list[Standing], board: Leaderboard, results: int) -> str:
    """Its mean and rank, and whether it was measured here."""
    if not rows:
        return f"{plural(results, 'task')} measured here; no mean without the others."
    ranked = sum(row.mean is not None for row in board.rows)
    figures = []
    for row in rows:
        names = listed(source.name for source in row.sources) if row.sources else row.source
        whose = "measured here" if row.origin == "measured" else f"printed by {names}"
        figures.append(
            f"has {len(row.values)} of {len(board.tasks)} tasks, {whose}"
            if row.mean is None
            else f"is rank {row.rank} of {ranked} with {with_interval(row)}, {whose}"
        )
    return f"{name} {'; it '.join(figures)}."


def _settings(identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in islice(leaves(identity), _SETTINGS):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text if len(text) <= _VALUE else f"{text[:_VALUE]} …"
