"""The pages of tasks: all tasks as cards; one task with its data, systems, queries and misses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.explore.library import DETAILED_ROWS, Snapshot
from r2med.explore.render import Axis, Bar, Link, plural, points, render
from r2med.measure.intervals import mean_interval
from r2med.paths import slug
from r2med.report.cards.facts import prose_of
from r2med.report.table import snippet, task_label
from r2med.results.answers import answer_notes, mark_answers
from r2med.results.compare import QueryScores, query_scores
from r2med.results.diagnosis.causes import CAUSES
from r2med.results.diagnosis.findings import TaskDiagnosis
from r2med.results.published_data import find_other_data
from r2med.results.record import Result
from r2med.results.store import LOCAL
from r2med.tasks.registry import registered_task, suites
from r2med.tasks.task import Task

METRIC = "ndcg@10"
BASELINE = "bm25"
_BINS = 20
_EXCERPT = 140
_BAR, _HEIGHT = 14, 64
#: Systems in the figure of a card.
_CARD_DOTS = 200


Counted = tuple[Sequence[tuple[str, str]], Sequence[Mapping[str, Any]]]
"""The rows of a task's profile, and histograms of the lengths of its texts. For a full task,
counting takes a second."""


#: By name the orders of the table of queries, each with its title.
QUERY_SORTS = {
    "hardest": "hardest first",
    "easiest": "easiest first",
    "division": "most disagreement first",
    "task": "in the order of the task",
}


@dataclass(frozen=True)
class QueryRow:
    """A query in the table of a task."""

    query_id: str
    text: str
    score: float
    """The score of the chosen system; if none is chosen, the mean over the systems shown."""
    dots: Sequence[tuple[str, float]]
    """The systems on the page with their scores on the query, the best system first."""
    cause: str | None
    """Why the chosen or the best system misses positives; None if it misses none."""


@dataclass(frozen=True)
class MissedPositives:
    """Why a system misses positives of a task, by cause."""

    name: str
    positives: int
    causes: Mapping[str, int]

    @property
    def missed(self) -> int:
        """The number of positives that are not among the first ten documents."""
        return sum(self.causes.values())

    @property
    def sentence(self) -> str:
        """A sentence with the number of missed positives and the causes."""
        if not self.missed:
            return f"{self.name} misses none of {plural(self.positives, 'positive')}."
        counts = ", ".join(f"{CAUSES[name].title} {count}" for name, count in self.causes.items())
        return (
            f"{self.name} misses {self.missed} of {plural(self.positives, 'positive')}: {counts}."
        )

    @property
    def bars(self) -> list[tuple[str, str, int, float, float]]:
        """For each cause, the title and count, and the left edge and width of its bar (%)."""
        bars, left = [], 0.0
        for name, count in self.causes.items():
            width = 100 * count / self.missed
            bars.append((name, CAUSES[name].title, count, round(left, 2), round(width, 2)))
            left += width
        return bars


def task_page(
    snapshot: Snapshot,
    link: Link,
    name: str,
    *,
    metric: str,
    system: str | None = None,
    sort: str = "hardest",
    cause: str | None = None,
    find: str | None = None,
) -> str:
    """Return the page of a task with all its queries, by `system` or by all stored systems.

    `cause` shows only the queries that miss a positive for this cause; `find` shows only those that
    contain these words.
    """
    entry, results = registered_task(name), snapshot.of_task(name, metric)
    task, missing = snapshot.data_of(name, results)
    ranked = sorted(results.values(), key=lambda result: (-result.metrics[metric], result.system))
    focus = system if system in results else None
    systems = _choose_systems(ranked, focus)
    by_system = {result.system: result.scores[metric] for result in systems}
    queries = query_scores(systems, metric)
    diagnosis = _diagnosis(snapshot, task, results, focus or next(iter(by_system), None))
    rows = _query_rows(snapshot, systems, queries, focus, diagnosis, task if not missing else None)
    chosen_rows = _choose_rows(rows, sort, cause, find)
    count = len(queries) or (len(task.queries) if task else 0)
    counted = snapshot.library.counted
    profile, lengths = counted.get(task.hash, lambda: _count(task)) if task else ((), ())
    nouns, span = ("query", "queries"), "from {:.0f} to {:.0f}"
    missed = None
    if diagnosis is not None:
        diagnosed = snapshot.names[diagnosis.system]
        missed = MissedPositives(diagnosed, diagnosis.positives, diagnosis.causes)
    return render(
        "task.html",
        link,
        page="tasks",
        title=f"{task_label(name)}, {metric}",
        name=name,
        entry=entry,
        other_data=find_other_data(snapshot.of_task(name).values()),
        notices=snapshot.version_notices(results.values()),
        prose=prose_of(entry),
        metric=metric,
        answer=_answer(name, metric, snapshot.names, systems, rows, count, focus, len(ranked)),
        systems=systems,
        stored=len(ranked),
        intervals={name: mean_interval(scores) for name, scores in by_system.items()},
        bins={
            name: _histogram(scores, (0.0, 1.0), 24, nouns, span, 100)
            for name, scores in by_system.items()
        },
        zeros={name: int((scores == 0).sum()) for name, scores in by_system.items()},
        queries=count,
        rows=chosen_rows,
        total=len(rows),
        missed=missed,
        mark_answers=mark_answers,
        answer_notes=list(answer_notes(systems)),
        unjudged=_unjudged_rows(snapshot, systems, task if not missing else None),
        causes=CAUSES,
        cause=cause,
        sort=sort,
        sorts=QUERY_SORTS,
        find=find or "",
        profile=profile,
        lengths=lengths,
        missing=missing,
        damaged={f: why for f, why in snapshot.damaged.items() if f.parent.name == slug(name)},
        names=snapshot.names,
        focus=focus,
        axis=Axis.around([result.metrics[metric] for result in systems], by_system.values()),
        height=_HEIGHT,
        width=_BAR * _BINS,
    )


def _choose_systems(ranked: Sequence[Result], focus: str | None) -> list[Result]:
    """Choose the results of the best systems that a page has room for, and of `focus`."""
    return [
        result
        for rank, result in enumerate(ranked)
        if rank < DETAILED_ROWS or result.system == focus
    ]


def _diagnosis(
    snapshot: Snapshot, task: Task | None, results: Mapping[str, Result], system: str | None
) -> TaskDiagnosis | None:
    """Diagnose one system; None without a system or without judgements here."""
    if task is None or system is None or not len(task.judgements):
        return None
    return snapshot.library.diagnosis(results[system], task, snapshot.results)


def _query_rows(
    snapshot: Snapshot,
    systems: Sequence[Result],
    queries: Sequence[QueryScores],
    focus: str | None,
    diagnosis: TaskDiagnosis | None,
    task: Task | None,
) -> list[QueryRow]:
    texts = dict(task.queries.items()) if task else {}
    findings = diagnosis.queries if diagnosis else ()
    causes = {finding.query_id: finding.cause for finding in findings}
    names = [snapshot.names[result.system] for result in systems]
    index = next((i for i, result in enumerate(systems) if result.system == focus), None)
    return [
        QueryRow(
            query.query_id,
            snippet(texts.get(query.query_id) or "", _EXCERPT),
            query.mean if index is None else query.scores[index],
            list(zip(names, query.scores, strict=True)),
            causes.get(query.query_id),
        )
        for query in queries
    ]


def _unjudged_rows(
    snapshot: Snapshot, systems: Sequence[Result], task: Task | None
) -> list[tuple[str, str]]:
    """Return the ids of unjudged queries with the beginning of their texts."""
    texts = dict(task.queries.items()) if task else {}
    return [
        (query_id, snippet(texts.get(query_id) or "", _EXCERPT))
        for query_id in snapshot.unjudged_queries(systems)
    ]


def _choose_rows(
    rows: Sequence[QueryRow], sort: str, cause: str | None, find: str | None
) -> list[QueryRow]:
    words = (find or "").lower().split()
    chosen = [
        row
        for row in rows
        if (cause is None or row.cause == cause)
        and all(word in f"{row.query_id} {row.text}".lower() for word in words)
    ]
    if sort == "division":

        def division(row: QueryRow) -> float:
            scores = [score for _, score in row.dots]
            return min(scores) - max(scores)

        return sorted(chosen, key=division)
    if sort == "task":
        return chosen
    return sorted(chosen, key=lambda row: row.score, reverse=sort == "easiest")


@dataclass(frozen=True)
class TaskCard:
    """A task on the page of tasks."""

    name: str
    label: str
    description: str
    counts: str
    best: str
    """The name of the best system; of the best published one if no result is stored."""
    score: float | None
    is_published: bool
    address: str | None
    systems: int
    """How many systems have a score."""
    dots: Sequence[tuple[str, float]]
    """The best systems with their scores, best first; published figures if no result is stored."""
    baseline: float | None
    """The score of bm25, to mark it among the dots; None if bm25 is the best or has no score."""


def tasks_page(snapshot: Snapshot, link: Link) -> str:
    """Return the page of all tasks as cards; suites with results come first."""
    stored = {name: snapshot.of_task(name, METRIC) for name in snapshot.tasks}
    local = [name for name in stored if registered_task(name) is None]
    groups: list[tuple[str, str, list[TaskCard]]] = []
    for suite in suites():
        board = snapshot.board(suite.name, metric=METRIC) if suite.entries else None
        published = [row for row in board.rows if row.origin != "measured"] if board else []
        cards = []
        for entry in suite.entries:
            results = stored.get(entry.name, {})
            dots = _stored_dots(snapshot, results) or [
                (row.name, row.values[entry.name]) for row in published if entry.name in row.values
            ]
            kinds = " · ".join(dict.fromkeys([entry.family, entry.scenario]))
            counts = [_describe_size(results, entry.counts), kinds]
            # The second sentence repeats the label of the suite.
            description = entry.description.partition(". ")[0].rstrip(".") + "."
            cards.append(
                _task_card(link, entry.name, entry.source, description, counts, dots, bool(results))
            )
        groups.append((suite.name, suite.title, cards))
    groups.sort(key=lambda group: not any(card.dots and not card.is_published for card in group[2]))
    if local:
        cards = [
            _task_card(
                link,
                name,
                name,
                "Your own data.",
                [_describe_size(stored[name], {})],
                _stored_dots(snapshot, stored[name]),
                True,
            )
            for name in local
        ]
        groups.insert(0, (LOCAL, "Your data", cards))
    return render(
        "tasks.html",
        link,
        page="tasks",
        title="Tasks",
        groups=groups,
        baseline=BASELINE,
        answer=_describe_tasks(groups),
    )


def _stored_dots(snapshot: Snapshot, results: Mapping[str, Result]) -> list[tuple[str, float]]:
    return [(snapshot.names[system], r.metrics[METRIC]) for system, r in results.items()]


def _describe_size(results: Mapping[str, Result], counts: Mapping[str, int]) -> str:
    """Return the number of queries and documents as text; empty if unknown."""
    newest = next(iter(results.values()), None)
    if newest is not None:
        queries, documents = newest.record.task.judged_queries, newest.record.task.documents
    elif "queries" in counts and "documents" in counts:
        queries, documents = counts["queries"], counts["documents"]
    else:
        return ""
    return f"{plural(queries, 'query', 'queries')}, {plural(documents, 'document')}"


def _task_card(
    link: Link,
    name: str,
    label: str,
    description: str,
    counts: Sequence[str],
    dots: Sequence[tuple[str, float]],
    is_stored: bool,
) -> TaskCard:
    ranked = sorted(dots, key=lambda dot: -dot[1])
    best, score = ranked[0] if ranked else ("", None)
    return TaskCard(
        name,
        label,
        description,
        " · ".join(filter(None, counts)),
        best,
        score,
        bool(ranked) and not is_stored,
        link("task", task=name),
        len(ranked),
        ranked[:_CARD_DOTS],
        dict(ranked[1:]).get(BASELINE),
    )


def _describe_tasks(groups: Sequence[tuple[str, str, Sequence[TaskCard]]]) -> str:
    """Describe how many tasks have results here, and which of them is hardest."""
    measured = [
        card for *_, cards in groups for card in cards if card.dots and not card.is_published
    ]
    if not measured:
        return "No task has stored results yet; cards show the best published figures."
    hardest = min(measured, key=lambda card: card.score or 0.0)
    return (
        f"{plural(len(measured), 'task has', 'tasks have')} results here. Hardest so far: "
        f"{hardest.label}, where {hardest.best} reaches {points(hardest.score)}."
    )


def _answer(
    name: str,
    metric: str,
    names: Mapping[str, str],
    systems: Sequence[Result],
    rows: Sequence[QueryRow],
    count: int,
    focus: str | None,
    stored: int,
) -> str:
    """Describe the task for one system or for all, in a sentence with a number."""
    if not systems:
        waiting = f". {plural(count, 'query waits', 'queries wait')} for a system."
        missing = ", and its data is not here."
        return f"No result of {name} is stored yet" + (waiting if count else missing)
    best = next((result for result in systems if result.system == focus), systems[0])
    interval = mean_interval(best.scores[metric])
    text = f"{names[best.system]} scores{' highest here,' if best is systems[0] else ''} "
    text += f"{points(best.metrics[metric])} over {plural(count, 'query', 'queries')} (95 % "
    text += f"interval {points(interval.low)} to {points(interval.high)})."
    if focus:
        lost = sum(row.score == 0 for row in rows)
    else:
        lost = sum(max(score for _, score in row.dots) == 0 for row in rows)
    if not lost:
        return text
    zero = f"{plural(lost, 'query scores', 'queries score')} zero"
    if focus:
        return f"{text} {zero}."
    described = (
        "every stored system" if len(systems) == stored else f"the best {len(systems)} systems"
    )
    return f"{text} {zero} under {described}."


def _count(task: Task) -> Counted:
    """Return the profile of a task and histograms of the lengths of its texts.

    The last bar of a histogram contains all texts longer than 99 % of the others.
    """
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
    """Return the bars of a histogram with twenty steps; a bar above zero has at least one pixel."""
    counts, edges = np.histogram(values, bins=_BINS, range=ends)
    bars = []
    for index, (count, sides) in enumerate(zip(counts.tolist(), pairwise(edges), strict=True)):
        tall = max(1.0, round(height * count / counts.max(), 1)) if count else 0.0
        text = f"{plural(count, *noun)} {span.format(*(scale * edge for edge in sides))}"
        bars.append(Bar(_BAR * index, round(height - tall, 1), _BAR - 2, tall, text))
    return bars
