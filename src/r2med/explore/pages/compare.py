"""Two systems query by query, or more as a grid: who is better, by how much, and is that real?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from r2med.errors import MissingError, UsageError, nearest
from r2med.explore.library import Library, Shelf, entry_of, texts_of
from r2med.explore.render import Link, plural, points, render, signed
from r2med.measure.significance import SIGNIFICANT, Difference, Pair
from r2med.report.table import p_value, snippet, task_label
from r2med.results.compare import Comparison, compare
from r2med.results.movement import QueryScores, query_scores
from r2med.results.record import Result
from r2med.tasks.registry import suites

MOST_SYSTEMS = 8
#: The axis of a difference from -1 to 1, in pixels.
AXIS = 240
_HEIGHT, _ALONE = 120, 220
_LISTED, _EXCERPT = 40, 80
_TOP = 10
_TIE = 1e-12


@dataclass(frozen=True)
class Bar:
    """One query in the plot of differences."""

    query_id: str
    x: float
    y: float
    width: float
    height: float
    side: str
    text: str


@dataclass(frozen=True)
class Panel:
    """The differences on one task, the most lost at the left and the most won at the right."""

    task: str
    bars: tuple[Bar, ...]
    width: int
    height: int
    zero: float
    high: str
    """The largest difference that each side wins by."""
    low: str
    won: int
    tied: int
    lost: int


@dataclass(frozen=True)
class Line:
    """A row of the table of tasks: a difference and its interval on the axis."""

    name: str
    task: str | None
    found: Difference
    p_holm: float | None
    at: float
    low: float
    high: float


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


@dataclass(frozen=True)
class Cell:
    """Row minus column in a grid of systems."""

    difference: float
    p: float
    a: str
    b: str


@dataclass(frozen=True, eq=False)
class CompareData:
    """Everything that a comparison says; without two systems, what can be chosen."""

    suite: str | None
    task: str | None
    metric: str
    systems: tuple[str, ...]
    offered: tuple[tuple[str, int], ...]
    """Systems that have results here, and on how many tasks."""
    scopes: tuple[tuple[str, str, bool], ...]
    """What can be compared on: value, words, and whether it is a suite."""
    names: Mapping[str, str]
    """What every system is called."""
    comparison: Comparison | None = None
    panels: tuple[Panel, ...] = ()
    lines: tuple[Line, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    queries: int = 0
    grid: Mapping[tuple[int, int], Cell] | None = None
    means: tuple[float, ...] = ()


def compare_data(
    library: Library,
    shelf: Shelf,
    *,
    suite: str | None,
    task: str | None,
    systems: Sequence[str],
    metric: str,
    with_texts: bool = True,
) -> CompareData:
    """Compare systems on a task, or on the tasks of a suite that all of them ran on."""
    scope = [task] if task else [name for name in shelf.tasks if _suite(name) == suite]
    by_task = {name: shelf.of_task(name) for name in scope if name in shelf.tasks}
    counts: dict[str, int] = {}
    for results in by_task.values():
        for system in results:
            counts[system] = counts.get(system, 0) + 1
    data = CompareData(
        suite=None if task else suite,
        task=task,
        metric=metric,
        systems=tuple(systems),
        offered=tuple(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))),
        scopes=_scopes(shelf),
        names=shelf.names,
    )
    if len(systems) > MOST_SYSTEMS:
        raise UsageError(f"{len(systems)} systems are chosen, expected at most {MOST_SYSTEMS}.")
    for system in systems:
        if system not in counts:
            raise MissingError(
                f"No result of {system[:100]!r} is stored here. {nearest(system, counts)}"
            )
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
    return _compared(library, data, shared, with_texts)


def compare_page(data: CompareData, link: Link) -> str:
    """The page of a comparison."""
    where = task_label(data.task) if data.task else _suite_title(data.suite)
    names = " and ".join(data.systems[:2]) if data.comparison else "Compare"
    template = "grid.html" if data.grid else "compare.html"
    return render(
        template,
        link,
        page="compare",
        title=f"{names}, {where}",
        data=data,
        where=where,
        answer=answer(data),
        axis=AXIS,
        most=MOST_SYSTEMS,
        significant=SIGNIFICANT,
        parts_={"suite": data.suite, "task": data.task, "metric": data.metric},
    )


def answer(data: CompareData) -> str:
    """The verdict in a sentence, as careful as the numbers."""
    if data.comparison is None:
        return ""
    systems = [data.names.get(name, name) for name in data.systems]
    if data.grid:
        best = max(range(len(data.means)), key=lambda place: data.means[place])
        real = sum(pair.p_holm < SIGNIFICANT for pair in data.comparison.pairs)
        return (
            f"{systems[best]} has the highest mean of {len(data.systems)}, "
            f"{points(data.means[best])}. {real} of {plural(len(data.comparison.pairs), 'pair')} "
            "differ beyond chance (Holm's correction over all pairs)."
        )
    [pair] = data.comparison.pairs
    found = pair.by_task
    if abs(found.difference) <= _TIE:
        return f"{systems[0]} and {systems[1]} have the same mean, {points(found.mean_a)}."
    a_wins = found.difference > 0
    better, worse = systems if a_wins else systems[::-1]
    text = f"{better} beats {worse} by {points(abs(found.difference))} points"
    if len(pair.tasks) > 1:
        ahead = sum((each.difference.difference > _TIE) == a_wins for each in pair.tasks)
        text += f" and on {ahead} of {len(pair.tasks)} tasks"
    else:
        won, lost = (found.won, found.lost) if a_wins else (found.lost, found.won)
        text += f": it wins {won} queries, loses {lost} and ties {found.tied}"
    p = found.p_randomisation
    relation = "< .001" if p < 0.001 else f"= {p_value(p)}"
    if p < SIGNIFICANT:
        return f"{text}; the difference on the mean is real (p {relation})."
    return f"{text}; the difference on the mean could be chance (p {relation})."


def _compared(
    library: Library, data: CompareData, shared: Mapping[str, Sequence[Result]], with_texts: bool
) -> CompareData:
    results = [result for own in shared.values() for result in own]
    found = compare(*data.systems, metric=data.metric, results=results, tell=lambda message: None)
    grid = _grid(found) if len(data.systems) > 2 else None
    scores = {name: query_scores(own, data.metric) for name, own in shared.items()}
    contrasts = [
        each
        for name, own in shared.items()
        for each in _contrasts(library, name, own, scores[name], with_texts)
    ]
    contrasts.sort(key=_by_contrast)
    means = [found.pairs[0].by_task.mean_a] + [
        pair.by_task.mean_b for pair in found.pairs if pair.a == 0
    ]
    return CompareData(
        suite=data.suite,
        task=data.task,
        metric=data.metric,
        systems=data.systems,
        offered=data.offered,
        scopes=data.scopes,
        names=data.names,
        comparison=found,
        panels=()
        if grid
        else tuple(_panel(name, own, alone=len(scores) == 1) for name, own in scores.items()),
        lines=() if grid else tuple(_lines(found.pairs[0])),
        contrasts=tuple(contrasts[:_LISTED]),
        queries=len(contrasts),
        grid=grid,
        means=tuple(means),
    )


def _grid(found: Comparison) -> dict[tuple[int, int], Cell]:
    cells = {}
    for pair in found.pairs:
        a, b = found.systems[pair.a], found.systems[pair.b]
        difference = pair.by_task.difference
        cells[pair.a, pair.b] = Cell(difference, pair.p_holm, a, b)
        cells[pair.b, pair.a] = Cell(-difference, pair.p_holm, b, a)
    return cells


def _lines(pair: Pair) -> list[Line]:
    rows = [(task_label(each.task), each.task, each.difference, each.p_holm) for each in pair.tasks]
    ends = [max(abs(found.interval.low), abs(found.interval.high)) for _, _, found, _ in rows]
    reach = max(*ends, 0.05)

    def at(value: float) -> float:
        return round(AXIS / 2 * (1 + value / reach), 1)

    lines = [
        Line(
            name,
            task,
            found,
            p_holm if len(rows) > 1 else None,
            at(found.difference),
            at(found.interval.low),
            at(found.interval.high),
        )
        for name, task, found, p_holm in rows
    ]
    if len(rows) > 1:
        for name, found in (("task mean", pair.by_task), ("all queries", pair.by_query)):
            low, high = at(found.interval.low), at(found.interval.high)
            lines.append(Line(name, None, found, None, at(found.difference), low, high))
    return lines


def _panel(task: str, scores: Sequence[QueryScores], *, alone: bool) -> Panel:
    queries = sorted(scores, key=lambda query: query.gain)
    height = _ALONE if alone else _HEIGHT
    width = 960 if alone else 360
    gains = [query.gain for query in queries]
    high, low = max(max(gains, default=0), 0.05), max(-min(gains, default=0), 0.05)
    zero = round(height * high / (high + low), 1)
    step = width / max(len(queries), 1)
    bars = []
    for place, query in enumerate(queries):
        tall = max(1.5, abs(query.gain) * height / (high + low))
        side = "even" if abs(query.gain) <= _TIE else "won" if query.gain > 0 else "lost"
        bars.append(
            Bar(
                query.query_id,
                round(step * place, 2),
                round(zero - tall, 1) if query.gain > 0 else zero,
                round(max(step - 1, 0.8 * step), 2),
                round(tall, 1),
                side,
                f"query {query.query_id}: {signed(query.gain)}",
            )
        )
    won, lost = (sum(sign * gain > _TIE for gain in gains) for sign in (1, -1))
    ends = signed(max(gains, default=0.0), 0), signed(min(gains, default=0.0), 0)
    tied = len(gains) - won - lost
    return Panel(task, tuple(bars), width, height, zero, *ends, won, tied, lost)


def _contrasts(
    library: Library,
    name: str,
    results: Sequence[Result],
    scores: Sequence[QueryScores],
    with_texts: bool,
) -> list[Contrast]:
    """Judged queries with their scores, and unjudged ones by what their rankings share."""
    task, _ = texts_of(library, name, {result.system: result for result in results})
    texts = dict(task.queries.items()) if task and with_texts else {}
    runs = [library.ranked(result) for result in results]
    judged = {query.query_id: query for query in scores}
    others = [
        query
        for query in runs[0].query_ids.to_pylist()
        if query not in judged and all(run.query_ids.index(query).as_py() >= 0 for run in runs)
    ]
    found = []
    for query_id in [*judged, *others]:
        tops = [set(run.listed(query_id)[:_TOP]) for run in runs]
        row = judged.get(query_id)
        found.append(
            Contrast(
                task=name,
                query_id=query_id,
                text=snippet(texts.get(query_id) or "", _EXCERPT),
                scores=row.scores if row else (),
                difference=(row.gain if len(results) == 2 else row.division) if row else None,
                common=len(set.intersection(*tops)),
            )
        )
    return found


def _by_contrast(each: Contrast) -> tuple[bool, float, int]:
    """The largest difference first; unjudged queries last, those that share least first."""
    return each.difference is None, -abs(each.difference or 0.0), each.common


def _scopes(shelf: Shelf) -> tuple[tuple[str, str, bool], ...]:
    stored = {_suite(name) for name in shelf.tasks}
    found = [(each.name, f"{each.title}, all tasks", True) for each in suites()]
    scopes = [scope for scope in found if scope[0] in stored]
    return (*scopes, *((name, task_label_of(name), False) for name in shelf.tasks))


def task_label_of(name: str) -> str:
    """A task's name with its suite, where labels alone would read the same."""
    entry = entry_of(name)
    return f"{entry.source} ({entry.suite})" if entry else name


def _suite(name: str) -> str | None:
    entry = entry_of(name)
    return entry.suite if entry else None


def _suite_title(name: str | None) -> str:
    return next((each.title for each in suites() if each.name == name), "your data")
