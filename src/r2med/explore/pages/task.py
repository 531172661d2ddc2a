"""A task: what it is like, which systems ran on it, and which of its queries are hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from r2med.explore.library import Damaged, Library, Shelf, entry_of, texts_of
from r2med.explore.render import Link, plural, points, render
from r2med.measure.intervals import Interval, mean_interval
from r2med.nano.profiles import data_profile
from r2med.report.cards.facts import Prose, prose_of
from r2med.report.profiles import data_rows
from r2med.report.table import snippet, task_label
from r2med.results.movement import QueryScores, in_order, query_scores
from r2med.results.record import Result
from r2med.tasks.registry import TaskEntry, suites
from r2med.tasks.task import Task

AXIS = 200
_BINS = 20
_LISTED = 12
_EXCERPT = 90
_BAR, _HEIGHT = 14, 64


@dataclass(frozen=True)
class Scored:
    """A stored system on a task."""

    system: str
    mean: float
    interval: Interval
    hit: float | None
    recall: float | None
    zero: int
    """Queries with a score of zero."""
    bins: tuple[Bar, ...]
    """How its scores are distributed, from 0 to 1."""
    created: str


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram, in pixels, and what it stands for."""

    x: int
    y: float
    height: float
    text: str


@dataclass(frozen=True)
class Histogram:
    """Bars with the names of their ends."""

    title: str
    bars: tuple[Bar, ...]
    low: str
    high: str
    median: str


@dataclass(frozen=True)
class QueryLine:
    """A query in a list."""

    query_id: str
    text: str
    scores: QueryScores


@dataclass(frozen=True, eq=False)
class TaskData:
    """Everything that the page of a task says."""

    name: str
    entry: TaskEntry | None
    suite: str | None
    prose: Prose
    metric: str
    systems: tuple[Scored, ...]
    queries: int
    rows: Sequence[tuple[str, str]]
    """The profile of the data; empty where the data is not here."""
    lengths: tuple[Histogram, ...]
    hardest: tuple[QueryLine, ...]
    divided: tuple[QueryLine, ...]
    missing: str
    """Why texts cannot be shown; empty where they can."""
    licence: str
    damaged: tuple[Damaged, ...]
    names: Mapping[str, str]
    """What every system is called."""
    focus: str | None = None
    """The system whose failures are looked for; None looks at all."""


def task_data(
    library: Library,
    shelf: Shelf,
    name: str,
    *,
    metric: str,
    system: str | None = None,
    with_texts: bool = True,
) -> TaskData:
    """Gather what is known of a task, with the queries that are hard for `system` or for all."""
    entry = entry_of(name)
    results = (
        {
            system: result
            for system, result in shelf.of_task(name).items()
            if metric in result.metrics and metric in result.scores
        }
        if name in shelf.tasks
        else {}
    )
    task, missing = texts_of(library, name, results)
    queries = query_scores(list(results.values()), metric)
    texts = dict(task.queries.items()) if task and with_texts else {}
    focus = system if system in results else None
    hard = query_scores([results[focus]], metric) if focus else queries
    divided = [each for each in in_order(queries, "division") if each.division > 0]
    return TaskData(
        name=name,
        entry=entry,
        suite=entry.suite if entry else None,
        prose=prose_of(entry),
        metric=metric,
        systems=_best_first([_scored(result, metric) for result in results.values()]),
        queries=len(queries) or (len(task.queries) if task else 0),
        rows=data_rows(data_profile(task)) if task else (),
        lengths=_lengths(task) if task else (),
        hardest=_lines(in_order(hard, "difficulty"), texts),
        divided=_lines(divided, texts) if len(results) > 1 else (),
        missing=missing,
        licence=(entry.licence or "unknown") if entry else "your own data",
        damaged=tuple(each for each in shelf.damaged if _is_of(each, name)),
        names=shelf.names,
        focus=focus,
    )


def task_page(data: TaskData, link: Link) -> str:
    """The page of a task."""
    return render(
        "task.html",
        link,
        page="tasks",
        title=f"{task_label(data.name)}, {data.metric}",
        data=data,
        heading=task_label(data.name),
        answer=answer(data),
        axis=AXIS,
        bar=_BAR,
        height=_HEIGHT,
        width=_BAR * _BINS,
        span=lambda value: round(AXIS * value, 1),
    )


def answer(data: TaskData) -> str:
    """What the task is like, in a sentence with a number."""
    if not data.systems:
        return (
            f"No result of {data.name} is stored yet. "
            f"{plural(data.queries, 'query', 'queries')} wait for a system."
            if data.queries
            else f"No result of {data.name} is stored yet, and its data is not here."
        )
    best = next((each for each in data.systems if each.system == data.focus), data.systems[0])
    verb = "scores" if data.focus and best is not data.systems[0] else "scores highest here,"
    text = (
        f"{data.names.get(best.system, best.system)} {verb} {points(best.mean)} over "
        f"{plural(data.queries, 'query', 'queries')} (95 % interval {points(best.interval.low)} to "
        f"{points(best.interval.high)})."
    )
    if data.focus:
        missed = f"{best.zero} of them get nothing" if best.zero else "None of them gets nothing"
        return f"{text} {missed}."
    lost = sum(line.scores.mean == 0 for line in data.hardest)
    if lost:
        more = " or more" if lost == len(data.hardest) else ""
        text += f" {lost}{more} of them are beyond every stored system."
    return text


def tasks_page(library: Library, shelf: Shelf, link: Link) -> str:
    """Every task with a result or a name, suite by suite."""
    stored = {name: shelf.of_task(name) for name in shelf.tasks}
    registered = {entry.name for suite in suites() for entry in suite.entries}
    return render(
        "tasks.html",
        link,
        page="tasks",
        title="Tasks",
        suites=suites(),
        stored=stored,
        own=[name for name in stored if name not in registered],
        best=_best(stored),
        answer=f"{plural(len(stored), 'task has', 'tasks have')} stored results, "
        f"{plural(len(shelf.results), 'result')} in all.",
    )


def _best(stored: Mapping[str, Mapping[str, Result]]) -> dict[str, tuple[str, float]]:
    return {
        name: max(
            ((each.system, each.metrics.get("ndcg@10", 0.0)) for each in results.values()),
            key=lambda pair: pair[1],
        )
        for name, results in stored.items()
    }


def _best_first(systems: list[Scored]) -> tuple[Scored, ...]:
    return tuple(sorted(systems, key=lambda each: (-each.mean, each.system)))


def _scored(result: Result, metric: str) -> Scored:
    values = result.scores[metric]
    counts, _ = np.histogram(values, bins=_BINS, range=(0.0, 1.0))
    return Scored(
        system=result.system,
        mean=result.metrics[metric],
        interval=mean_interval(values),
        hit=result.metrics.get("hit@10"),
        recall=result.metrics.get("recall@100"),
        zero=int((values == 0).sum()),
        bins=_bars(
            counts.tolist(),
            [
                f"{plural(count, 'query', 'queries')} from {5 * place} to {5 * place + 5}"
                for place, count in enumerate(counts.tolist())
            ],
            height=24,
        ),
        created=result.record.created[:10],
    )


def _lengths(task: Task) -> tuple[Histogram, ...]:
    return tuple(
        _histogram(title, texts, noun)
        for title, texts, noun in (
            ("Words per query", task.queries.texts, ("query", "queries")),
            ("Words per document", task.corpus.texts, ("document", "documents")),
        )
    )


def _histogram(title: str, texts: object, noun: tuple[str, str]) -> Histogram:
    """Counts of words in twenty steps; the longest hundredth falls into the last."""
    words = pc.count_substring_regex(texts, r"\S+")
    lengths = words.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(lengths):
        lengths = np.zeros(1, dtype=np.int64)
    low = int(lengths.min())
    top = max(low + _BINS, int(np.quantile(lengths, 0.99)))
    counts, edges = np.histogram(np.minimum(lengths, top), bins=_BINS, range=(low, top))
    bars = _bars(
        counts.tolist(),
        [
            f"{plural(count, *noun)} of {low:.0f} to {high:.0f} words"
            for count, low, high in zip(counts.tolist(), edges[:-1], edges[1:], strict=True)
        ],
        height=_HEIGHT,
    )
    longest = int(lengths.max())
    high = f"{top:,}" if longest <= top else f"{top:,} and more"
    return Histogram(title, bars, f"{low:,}", high, f"{np.median(lengths):,.0f}")


def _bars(counts: Sequence[int], texts: Sequence[str], *, height: int) -> tuple[Bar, ...]:
    most = max(max(counts), 1)
    bars = []
    for place, (count, text) in enumerate(zip(counts, texts, strict=True)):
        tall = max(1.0, round(height * count / most, 1)) if count else 0.0
        bars.append(Bar(_BAR * place, round(height - tall, 1), tall, text))
    return tuple(bars)


def _lines(queries: Sequence[QueryScores], texts: Mapping[str, str]) -> tuple[QueryLine, ...]:
    return tuple(
        QueryLine(each.query_id, snippet(texts.get(each.query_id) or "", _EXCERPT), each)
        for each in queries[:_LISTED]
    )


def _is_of(damaged: Damaged, task: str) -> bool:
    from r2med.home import slug

    return damaged.folder.parent.name == slug(task)
