"""Two systems query by query, or more as a grid: who is better, by how much, and is that real?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from r2med.errors import MissingError
from r2med.explore.library import Shelf, check_systems, task_words
from r2med.explore.render import Axis, Bar, Link, plural, points, render, signed
from r2med.measure.significance import SIGNIFICANT, Difference, Pair, p_equation
from r2med.report.table import snippet, task_label
from r2med.results.compare import Comparison, compare
from r2med.results.movement import QueryScores, query_scores
from r2med.results.record import Result

MOST_SYSTEMS = 8
#: Pixels of a plot of differences: of one task among others, and of one alone.
_SIZE, _ALONE = (360, 120), (960, 220)
#: The least difference that an axis reaches to.
_LEAST = 0.05
_LISTED, _EXCERPT = 40, 80
_TOP = 10
_TIE = 1e-12


@dataclass(frozen=True)
class Panel:
    """The differences on one task, the most lost at the left and the most won at the right."""

    task: str
    bars: list[Bar]
    width: int
    height: int
    zero: float
    sides: Counter[str]
    """How many bars are won, lost and even."""


Line = tuple[str, str | None, Difference, float | None]
"""A row of the table of tasks: name, task, difference and Holm's p; the last are of all tasks."""


@dataclass(frozen=True)
class Contrast:
    """A query by how much two systems differ on it."""

    task: str
    query_id: str
    text: str
    scores: tuple[float, ...]
    difference: float | None
    """None where the query is not judged."""
    common: int
    """Documents that both have among their first ten."""


@dataclass(frozen=True, eq=False)
class CompareData:
    """Everything that a comparison says; without two systems, what can be chosen."""

    suite: str | None
    task: str | None
    metric: str
    systems: tuple[str, ...]
    offered: tuple[tuple[str, int], ...]
    """Systems that have results here, and on how many tasks."""
    scopes: tuple[tuple[str, str], ...]
    """What can be compared on: suites and tasks, each with its words."""
    names: Mapping[str, str]
    """What every system is called."""
    title: str = ""
    """What the suite is called."""
    comparison: Comparison | None = None
    panels: tuple[Panel, ...] = ()
    lines: tuple[Line, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    queries: int = 0
    grid: Mapping[tuple[int, int], tuple[float, float]] | None = None
    """Row minus column and its p-value, where there are more than two systems."""
    means: tuple[float, ...] = ()


def compare_data(
    shelf: Shelf, *, suite: str | None, task: str | None, systems: Sequence[str], metric: str
) -> CompareData:
    """Compare systems on a task, or on the tasks of a suite that all of them ran on."""
    scope = [task] if task else [name for name in shelf.tasks if shelf.suite_of(name) == suite]
    by_task = {name: shelf.of_task(name) for name in scope}
    counts = Counter(system for results in by_task.values() for system in results)
    data = CompareData(
        suite=None if task else suite,
        task=task,
        metric=metric,
        systems=tuple(systems),
        offered=tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        scopes=_scopes(shelf),
        names=shelf.names,
        title=next((each.title for each in shelf.suites if each.name == suite), ""),
    )
    check_systems(data.systems, counts, MOST_SYSTEMS)
    if len(systems) < 2:
        return data
    shared = {
        name: [results[system] for system in systems]
        for name, results in by_task.items()
        if all(system in results for system in systems)
    }
    if not shared:
        raise MissingError(
            f"{', '.join(systems)}: no task has results of all of them.\n"
            "Run them on the same tasks with r2med eval."
        )
    return _compared(shelf, data, shared)


def compare_page(data: CompareData, link: Link) -> str:
    """The page of a comparison."""
    where = task_label(data.task) if data.task else data.title
    names = " and ".join(data.systems[:2]) if data.comparison else "Compare"
    intervals = [difference.interval for _, _, difference, _ in data.lines]
    reach = max([_LEAST, *(max(-each.low, each.high) for each in intervals)])
    return render(
        "grid.html" if data.grid else "compare.html",
        link,
        page="compare",
        title=f"{names}, {where}",
        data=data,
        where=where,
        answer=answer(data),
        axis=Axis(-reach, reach, 240),
        most=MOST_SYSTEMS,
        significant=SIGNIFICANT,
    )


def answer(data: CompareData) -> str:
    """The verdict in a sentence, as careful as the numbers."""
    if data.comparison is None:
        return ""
    systems = [data.names[name] for name in data.systems]
    if data.grid:
        best = max(range(len(data.means)), key=lambda place: data.means[place])
        real = sum(pair.p_holm < SIGNIFICANT for pair in data.comparison.pairs)
        return (
            f"{systems[best]} has the highest mean of the {len(systems)}: "
            f"{points(data.means[best])}. After Holm's correction {real} of "
            f"{plural(len(data.comparison.pairs), 'pair')} {'differs' if real == 1 else 'differ'} "
            "beyond chance."
        )
    [pair] = data.comparison.pairs
    total = pair.by_task
    if abs(total.difference) <= _TIE:
        return f"{systems[0]} and {systems[1]} have the same mean, {points(total.mean_a)}."
    a_wins = total.difference > 0
    better, worse = systems if a_wins else systems[::-1]
    p = total.p_randomisation
    ahead_by = f"{points(abs(total.difference))} points"
    if p < SIGNIFICANT:
        text = f"{better} beats {worse} by {ahead_by} ({p_equation(p)})"
    else:
        text = f"{better} and {worse} cannot be told apart ({p_equation(p)})"
        text += f": {better} has {ahead_by} more"
    if len(pair.tasks) > 1:
        ahead = sum((each.difference.difference > _TIE) == a_wins for each in pair.tasks)
        text += f"; it is ahead on {ahead} of {len(pair.tasks)} tasks"
    else:
        won, lost = (total.won, total.lost) if a_wins else (total.lost, total.won)
        queries = plural(won, "query", "queries")
        text += f"; it wins {queries}, loses {lost} and ties {total.tied}"
    return f"{text}."


def _compared(
    shelf: Shelf, data: CompareData, shared: Mapping[str, Sequence[Result]]
) -> CompareData:
    results = [result for own in shared.values() for result in own]
    comparison = compare(
        *data.systems, metric=data.metric, results=results, tell=lambda message: None
    )
    scores = {name: query_scores(own, data.metric) for name, own in shared.items()}
    contrasts = [
        each for name, own in shared.items() for each in _contrasts(shelf, name, own, scores[name])
    ]
    # The largest difference first; unjudged queries last, those that share least first.
    contrasts.sort(key=lambda c: (c.difference is None, -abs(c.difference or 0.0), c.common))
    data = replace(
        data,
        comparison=comparison,
        contrasts=tuple(contrasts[:_LISTED]),
        queries=len(contrasts),
        means=(
            comparison.pairs[0].by_task.mean_a,
            *(pair.by_task.mean_b for pair in comparison.pairs if pair.a == 0),
        ),
    )
    if len(data.systems) > 2:
        grid = {}
        for pair in comparison.pairs:
            grid[pair.a, pair.b] = pair.by_task.difference, pair.p_holm
            grid[pair.b, pair.a] = -pair.by_task.difference, pair.p_holm
        return replace(data, grid=grid)
    return replace(data, panels=tuple(_panels(scores)), lines=tuple(_lines(comparison.pairs[0])))


def _lines(pair: Pair) -> Iterator[Line]:
    for each in pair.tasks:
        yield task_label(each.task), each.task, each.difference, each.p_holm
    if len(pair.tasks) > 1:
        yield "task mean", None, pair.by_task, None
        yield "all queries", None, pair.by_query, None


def _panels(scores: Mapping[str, Sequence[QueryScores]]) -> Iterator[Panel]:
    """One panel per task, all on one scale."""
    gains = [query.gain for queries in scores.values() for query in queries]
    high, low = max([*gains, _LEAST]), max([*(-gain for gain in gains), _LEAST])
    width, height = _ALONE if len(scores) == 1 else _SIZE
    zero = round(height * high / (high + low), 1)
    for task, queries in scores.items():
        step = width / max(len(queries), 1)
        bars = []
        for place, query in enumerate(sorted(queries, key=lambda query: query.gain)):
            tall = max(1.5, abs(query.gain) * height / (high + low))
            side = "even" if abs(query.gain) <= _TIE else "won" if query.gain > 0 else "lost"
            bars.append(
                Bar(
                    x=round(step * place, 2),
                    y=round(zero - tall, 1) if query.gain > 0 else zero,
                    width=round(max(step - 1, 0.8 * step), 2),
                    height=round(tall, 1),
                    text=f"query {query.query_id}: {signed(query.gain)}",
                    side=side,
                    query_id=query.query_id,
                )
            )
        yield Panel(task, bars, width, height, zero, Counter(bar.side for bar in bars))


def _contrasts(
    shelf: Shelf, name: str, results: Sequence[Result], scores: Sequence[QueryScores]
) -> list[Contrast]:
    """Judged queries with their scores, and unjudged ones by what their rankings share."""
    task, missing = shelf.data_of(name, {result.system: result for result in results})
    texts = dict(task.queries.items()) if task and not missing else {}
    runs = [shelf.library.ranked(result) for result in results]
    judged = {query.query_id: query for query in scores}
    others = [
        query
        for query in runs[0].query_ids.to_pylist()
        if query not in judged and all(run.query_ids.index(query).as_py() >= 0 for run in runs)
    ]
    rows = []
    for query_id in [*judged, *others]:
        tops = [set(run.listed(query_id)[:_TOP]) for run in runs]
        row = judged.get(query_id)
        rows.append(
            Contrast(
                task=name,
                query_id=query_id,
                text=snippet(texts.get(query_id) or "", _EXCERPT),
                scores=row.scores if row else (),
                difference=(row.gain if len(results) == 2 else row.division) if row else None,
                common=len(set.intersection(*tops)),
            )
        )
    return rows


def _scopes(shelf: Shelf) -> tuple[tuple[str, str], ...]:
    stored = {shelf.suite_of(name) for name in shelf.tasks}
    scopes_of_suites = [(each.name, f"{each.title}, all tasks") for each in shelf.suites]
    scopes = [scope for scope in scopes_of_suites if scope[0] in stored]
    return (*scopes, *((name, task_words(name)) for name in shelf.tasks))
