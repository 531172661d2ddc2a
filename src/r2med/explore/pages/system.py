"""One system: where its figures come from, what really ran, and what it took."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from r2med.errors import MissingError
from r2med.explore.library import Shelf
from r2med.explore.render import Link, plural, points, render
from r2med.measure.intervals import Interval, mean_interval
from r2med.results.leaderboard import Leaderboard
from r2med.results.lookup import leaves
from r2med.results.protocols import ProtocolComparison, compare_figures
from r2med.results.record import Result
from r2med.results.standings import Standing
from r2med.systems.registry import KIND_TITLES

#: Settings that are shown; a longer value is cut.
_SETTINGS, _VALUE = 200, 300


@dataclass(frozen=True)
class TaskResult:
    """A stored result on one task."""

    task: str
    mean: float
    interval: Interval
    queries: int
    created: str
    seconds: float
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """The first text as a model saw it, and how many were cut."""

    part: str
    side: str
    texts: int
    cut: float | None
    first: str


@dataclass(frozen=True, eq=False)
class SystemData:
    """Everything that the page of a system says; what was printed and what was measured apart."""

    system: str
    board: Leaderboard
    rows: tuple[Standing, ...]
    """Its rows in the leaderboard: printed, measured, or both."""
    results: tuple[TaskResult, ...]
    settings: tuple[tuple[str, str], ...]
    protocol: tuple[tuple[str, str], ...]
    seen: tuple[Seen, ...]
    costs: tuple[Mapping[str, Any], ...]
    versions: Mapping[str, str]
    differing: ProtocolComparison | None


def system_data(shelf: Shelf, board: Leaderboard, system: str) -> SystemData:
    """Gather what is known of a system in a suite."""
    rows = tuple(row for row in board.rows if row.system == system)
    stored = {
        name: results[system]
        for name in (task.name for task in board.suite.entries)
        if system in (results := shelf.of_task(name) if name in shelf.tasks else {})
    }
    if not rows and not stored:
        raise MissingError(f"No figure of {system[:100]!r} is known in the {board.suite.title}.")
    first = next(iter(stored.values()), None)
    record = first.record if first else None
    printed = next((row for row in rows if row.others), None)
    return SystemData(
        system=system,
        board=board,
        rows=rows,
        results=tuple(_result(result, board.metric) for result in stored.values()),
        settings=tuple(_settings(record.system.identity)) if record else (),
        protocol=tuple(_protocol(first)) if first else (),
        seen=tuple(_seen(first)) if first else (),
        costs=record.stages if record else (),
        versions=record.versions if record else {},
        differing=compare_figures(printed.system) if printed else None,
    )


def system_page(data: SystemData, link: Link) -> str:
    """The page of a system."""
    return render(
        "system.html",
        link,
        page="leaderboard",
        title=f"{data.system}, {data.board.suite.title}",
        data=data,
        answer=answer(data),
        kinds=KIND_TITLES,
    )


def answer(data: SystemData) -> str:
    """Its mean and rank, and whether it was measured here."""
    if not data.rows:
        return f"{plural(len(data.results), 'task')} measured here; no mean without the others."
    said = []
    for row in data.rows:
        names = " and ".join(source.name for source in row.sources) or row.source
        whose = "measured here" if row.origin == "measured" else f"printed by {names}"
        if row.mean is None:
            said.append(f"{len(row.values)} of {len(data.board.tasks)} tasks, {whose}")
        else:
            said.append(f"{points(row.mean)}, rank {row.rank}, {whose}")
    return f"{data.board.metric}: {'; '.join(said)}."


def _result(result: Result, metric: str) -> TaskResult:
    column = result.scores[metric] if metric in result.scores else result.scores["ndcg@10"]
    return TaskResult(
        task=result.task,
        mean=float(column.mean()) if len(column) else 0.0,
        interval=mean_interval(column),
        queries=result.record.task.judged_queries,
        created=result.record.created[:16].replace("T", " "),
        seconds=sum(result.seconds.values()),
        notices=(*result.record.task.notices, *result.record.task.differences),
    )


def _settings(identity: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for place, (name, value) in enumerate(leaves(identity)):
        if place >= _SETTINGS:
            return
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield name, text if len(text) <= _VALUE else f"{text[:_VALUE]} …"


def _protocol(result: Result) -> Iterator[tuple[str, str]]:
    system = result.record.system
    yield "documents per query", str(system.depth)
    yield "order of ties", system.ties
    yield "published as", system.published_as or "not a published system"
    if system.deviations:
        yield "known deviations", "; ".join(system.deviations)
    if reranking := result.record.reranking:
        yield "reranks", f"{reranking.depth} documents of {reranking.first}, tail: {reranking.tail}"


def _seen(result: Result) -> Iterator[Seen]:
    for part, facts in result.record.facts.items():
        for side in ("documents", "queries", "generated"):
            each = facts.get(side)
            if isinstance(each, Mapping) and "first" in each:
                cut = each.get("truncated")
                yield Seen(
                    part,
                    side,
                    int(each.get("texts", 0)),
                    float(cut) if isinstance(cut, int | float) else None,
                    str(each["first"]),
                )
