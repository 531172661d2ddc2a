"""A task: what it is like, which systems ran on it, and which of its queries are hard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.explore.library import Snapshot
from r2med.explore.render import Axis, Bar, Link, plural, points, render
from r2med.home import slug
from r2med.measure.intervals import mean_interval
from r2med.report.cards.facts import prose_of
from r2med.report.table import snippet, task_label
from r2med.results.compare import QueryScores, query_scores
from r2med.results.record import Result
from r2med.tasks.registry import registered_task, suites
from r2med.tasks.task import Task

_BINS = 20
_LISTED = 12
_EXCERPT = 90
_BAR, _HEIGHT = 14, 64


Counted = tuple[Sequence[tuple[str, str]], Sequence[Mapping[str, Any]]]
"""What texts and judgements of a task decide, a second of work for a full one: the rows of its
profile, and histograms of lengths."""


def task_page(
    snapshot: Snapshot, link: Link, name: str, *, metric: str, system: str | None = None
) -> str:
    """The page of a task, with the queries that are hard for `system` or for all."""
    entry, results = registered_task(name), snapshot.of_task(name, metric)
    task, missing = snapshot.data_of(name, results)
    queries = query_scores(list(results.values()), metric)
    texts = dict(task.queries.items()) if task and not missing else {}
    focus = system if system in results else None
    hard = query_scores([results[focus]], metric) if focus else queries
    hardest = sorted(hard, key=lambda query: query.mean)[:_LISTED]
    divided = sorted(queries, key=lambda query: -query.division)[:_LISTED]
    divided = [query for query in divided if query.division > 0]
    systems = sorted(results.values(), key=lambda each: (-each.metrics[metric], each.system))
    values = {each.system: each.scores[metric] for each in systems}
    nouns, span = ("query", "queries"), "from {:.0f} to {:.0f}"
    count = len(queries) or (len(task.queries) if task else 0)
    kept = snapshot.library.counted
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
        answer=_answer(name, metric, snapshot.names, systems, hard, count, focus),
        systems=systems,
        intervals={each: mean_interval(own) for each, own in values.items()},
        bins={
            each: _histogram(own, (0.0, 1.0), 24, nouns, span, 100) for each, own in values.items()
        },
        zeros={each: int((own == 0).sum()) for each, own in values.items()},
        queries=count,
        profile=profile,
        lengths=lengths,
        hardest=hardest,
        divided=divided,
        texts={
            each.query_id: snippet(texts.get(each.query_id) or "", _EXCERPT)
            for each in (*hardest, *divided)
        },
        scores={each.query_id: each.scores for each in queries},
        missing=missing,
        damaged={f: why for f, why in snapshot.damaged.items() if f.parent.name == slug(name)},
        names=snapshot.names,
        focus=focus,
        axis=Axis(0.0, 1.0, 220),
        height=_HEIGHT,
        width=_BAR * _BINS,
    )


def tasks_page(snapshot: Snapshot, link: Link) -> str:
    """Every task with a result or a name, the suites with results first."""
    stored = {name: snapshot.of_task(name) for name in snapshot.tasks}
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
        names=snapshot.names,
        answer=f"{plural(len(stored), 'task has', 'tasks have')} stored results, "
        f"{plural(len(snapshot.results), 'result')} in all.",
    )


def _answer(
    name: str,
    metric: str,
    names: Mapping[str, str],
    systems: Sequence[Result],
    hard: Sequence[QueryScores],
    count: int,
    focus: str | None,
) -> str:
    """What the task is like, for one system or for all, in a sentence with a number."""
    if not systems:
        rest = f". {plural(count, 'query waits', 'queries wait')} for a system."
        return f"No result of {name} is stored yet" + (rest if count else ", nor is its data here.")
    best = next((each for each in systems if each.system == focus), systems[0])
    interval = mean_interval(best.scores[metric])
    text = f"{names[best.system]} scores{' highest here,' if best is systems[0] else ''} "
    text += f"{points(best.metrics[metric])} over {plural(count, 'query', 'queries')} (95 % "
    text += f"interval {points(interval.low)} to {points(interval.high)})."
    lost = sum(max(each.scores) == 0 for each in hard)
    if not lost:
        return text
    zero = f"{plural(lost, 'query scores', 'queries score')} zero"
    return f"{text} {zero}{'' if focus else ' under every stored system'}."


def _counted(task: Task) -> Counted:
    """The longest hundredth of the texts falls into the last step of a histogram."""
    from r2med.nano.profiles import data_profile
    from r2med.report.profiles import data_rows

    histograms = []
    for texts, noun in (
        (task.queries.texts, ("query", "queries")),
        (task.corpus.texts, ("document", "documents")),
    ):
        counts = pc.count_substring_regex(texts, r"\S+").fill_null(0)
        lengths = counts.to_numpy(zero_copy_only=False) if len(counts) else np.zeros(1, np.int64)
        low = int(lengths.min())
        top = max(low + _BINS, int(np.quantile(lengths, 0.99)))
        ends, span = (low, top), "of {:.0f} to {:.0f} words"
        histograms.append(
            {
                "title": f"Words per {noun[0]}",
                "bars": _histogram(np.minimum(lengths, top), ends, _HEIGHT, noun, span),
                "low": f"{low:,}",
                "high": f"{top:,}" if int(lengths.max()) <= top else f"{top:,} and more",
                "median": f"{np.median(lengths):,.0f}",
            }
        )
    return data_rows(data_profile(task)), histograms


def _histogram(
    values: NDArray[Any],
    ends: tuple[float, float],
    height: int,
    noun: tuple[str, str],
    span: str,
    scale: int = 1,
) -> list[Bar]:
    """Values in twenty steps; what is there at all is at least one pixel high."""
    counts, edges = np.histogram(values, bins=_BINS, range=ends)
    bars = []
    for place, (count, sides) in enumerate(zip(counts.tolist(), pairwise(edges), strict=True)):
        tall = max(1.0, round(height * count / counts.max(), 1)) if count else 0.0
        text = f"{plural(count, *noun)} {span.format(*(scale * edge for edge in sides))}"
        bars.append(Bar(_BAR * place, round(height - tall, 1), _BAR - 2, tall, text))
    return bars
