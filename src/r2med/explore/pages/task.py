"""A task: what it is like, which systems ran on it, and which of its queries are hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc

from r2med.explore.library import Shelf
from r2med.explore.render import Axis, Bar, Link, bars, plural, points, render
from r2med.home import slug
from r2med.measure.intervals import Interval, mean_interval
from r2med.report.cards.facts import prose_of
from r2med.report.table import snippet, task_label
from r2med.results.compare import QueryScores, query_scores
from r2med.results.movement import in_order
from r2med.results.record import Result
from r2med.tasks.registry import registered_task, suites
from r2med.tasks.task import Task

_BINS = 20
_LISTED = 12
_EXCERPT = 90
_BAR, _HEIGHT = 14, 64


@dataclass(frozen=True)
class Scored:
    """A stored system on a task."""

    result: Result
    mean: float
    interval: Interval
    zero: int
    """Queries with a score of zero."""
    bins: list[Bar]
    """How its scores are distributed, from 0 to 1."""


Counted = tuple[Sequence[tuple[str, str]], Sequence[Mapping[str, Any]]]
"""What texts and judgements of a task decide, a second of work for a full one: the rows of its
profile, and histograms of lengths."""
QueryLine = tuple[str, str, float, float, float]
"""A query in a list: id, text, its score or its mean, the best and the worst of all systems."""


def task_page(
    shelf: Shelf, link: Link, name: str, *, metric: str, system: str | None = None
) -> str:
    """The page of a task, with the queries that are hard for `system` or for all."""
    entry, results = registered_task(name), shelf.of_task(name, metric)
    task, missing = shelf.data_of(name, results)
    queries = query_scores(list(results.values()), metric)
    texts = dict(task.queries.items()) if task and not missing else {}
    focus = system if system in results else None
    hard = query_scores([results[focus]], metric) if focus else queries
    divided = [each for each in in_order(queries, "division") if each.division > 0]
    systems = [_scored(result, metric) for result in results.values()]
    systems.sort(key=lambda each: (-each.mean, each.result.system))
    count = len(queries) or (len(task.queries) if task else 0)
    kept = shelf.library.counted
    profile, lengths = kept.get(task.hash, lambda: _counted(task)) if task else ((), ())
    return render(
        "task.html",
        link,
        page="tasks",
        title=f"{task_label(name)}, {metric}",
        name=name,
        entry=entry,
        prose=prose_of(entry),
        metric=metric,
        answer=_answer(name, shelf.names, systems, queries, count, focus),
        systems=systems,
        queries=count,
        profile=profile,
        lengths=lengths,
        hardest=_lines(in_order(hard, "difficulty"), queries, texts),
        divided=_lines(divided, queries, texts),
        missing=missing,
        damaged={f: why for f, why in shelf.damaged.items() if f.parent.name == slug(name)},
        names=shelf.names,
        focus=focus,
        axis=Axis(0.0, 1.0, 220),
        height=_HEIGHT,
        width=_BAR * _BINS,
    )


def tasks_page(shelf: Shelf, link: Link) -> str:
    """Every task with a result or a name, the suites with results first."""
    stored = {name: shelf.of_task(name) for name in shelf.tasks}
    own = [name for name in stored if registered_task(name) is None]
    has = {suite.name: any(entry.name in stored for entry in suite.entries) for suite in suites()}
    return render(
        "tasks.html",
        link,
        page="tasks",
        title="Tasks",
        suites=sorted(suites(), key=lambda suite: not has[suite.name]),
        stored=stored,
        own=own,
        best={name: next(iter(results.values())) for name, results in stored.items()},
        names=shelf.names,
        answer=f"{plural(len(stored), 'task has', 'tasks have')} stored results, "
        f"{plural(len(shelf.results), 'result')} in all.",
    )


def _answer(
    name: str,
    names: Mapping[str, str],
    systems: Sequence[Scored],
    queries: Sequence[QueryScores],
    count: int,
    focus: str | None,
) -> str:
    """What the task is like, in a sentence with a number."""
    if not systems:
        rest = f". {plural(count, 'query waits', 'queries wait')} for a system."
        return f"No result of {name} is stored yet" + (rest if count else ", nor is its data here.")
    best = next((each for each in systems if each.result.system == focus), systems[0])
    verb = "scores" if focus and best is not systems[0] else "scores highest here,"
    text = (
        f"{names[best.result.system]} {verb} {points(best.mean)} over "
        f"{plural(count, 'query', 'queries')} (95 % interval {points(best.interval.low)} to "
        f"{points(best.interval.high)})."
    )
    if focus:
        zero = plural(best.zero, "query scores", "queries score")
        return f"{text} {zero if best.zero else 'No query scores'} zero."
    lost = sum(max(each.scores) == 0 for each in queries)
    failed = plural(lost, "query defeats", "queries defeat")
    return f"{text} {failed} every stored system." if lost else text


def _scored(result: Result, metric: str) -> Scored:
    values = result.scores[metric]
    counts = np.histogram(values, bins=_BINS, range=(0.0, 1.0))[0].tolist()
    words = [
        f"{plural(count, 'query', 'queries')} from {5 * place} to {5 * place + 5}"
        for place, count in enumerate(counts)
    ]
    return Scored(
        result,
        result.metrics[metric],
        mean_interval(values),
        int((values == 0).sum()),
        bars(counts, words, step=_BAR, height=24),
    )


def _counted(task: Task) -> Counted:
    from r2med.nano.profiles import data_profile
    from r2med.report.profiles import data_rows

    lengths = [
        _histogram("Words per query", task.queries.texts, ("query", "queries")),
        _histogram("Words per document", task.corpus.texts, ("document", "documents")),
    ]
    return data_rows(data_profile(task)), lengths


def _histogram(title: str, texts: object, noun: tuple[str, str]) -> Mapping[str, Any]:
    """Counts of words in twenty steps; the longest hundredth falls into the last."""
    words = pc.count_substring_regex(texts, r"\S+")
    lengths = words.fill_null(0).to_numpy(zero_copy_only=False)
    if not len(lengths):
        lengths = np.zeros(1, dtype=np.int64)
    low = int(lengths.min())
    top = max(low + _BINS, int(np.quantile(lengths, 0.99)))
    counts, edges = np.histogram(np.minimum(lengths, top), bins=_BINS, range=(low, top))
    said = [
        f"{plural(count, *noun)} of {start:.0f} to {end:.0f} words"
        for count, start, end in zip(counts.tolist(), edges[:-1], edges[1:], strict=True)
    ]
    return {
        "title": title,
        "bars": bars(counts.tolist(), said, step=_BAR, height=_HEIGHT),
        "low": f"{low:,}",
        "high": f"{top:,}" if int(lengths.max()) <= top else f"{top:,} and more",
        "median": f"{np.median(lengths):,.0f}",
    }


def _lines(
    queries: Sequence[QueryScores], all_systems: Sequence[QueryScores], texts: Mapping[str, str]
) -> list[QueryLine]:
    """The first queries of an order; best and worst are of all stored systems."""
    scores = {each.query_id: each.scores for each in all_systems}
    lines = []
    for each in queries[:_LISTED]:
        text, own = texts.get(each.query_id) or "", scores.get(each.query_id, each.scores)
        lines.append((each.query_id, snippet(text, _EXCERPT), each.mean, max(own), min(own)))
    return lines
