"""The page `Try it`: a typed query in one system stage by stage, or in two systems side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from r2med.explore.library import Snapshot, task_words
from r2med.explore.render import Link, plural, render
from r2med.report.table import snippet
from r2med.results.diagnosis.findings import label_of
from r2med.results.diagnosis.lexicon import Segment
from r2med.systems.registry import is_plain
from r2med.tasks.registry import all_entries

if TYPE_CHECKING:
    from r2med.evaluation.trial import Tried

LONGEST = 20_000
MOST_SYSTEMS = 2
_ALWAYS = ("bm25", "bm25-lucene")
_EXCERPT = 260
#: Typed queries to begin with, each with a task that has an answer to it.
_EXAMPLES = (
    ("belly pain, weak arms and dark red urine after starting the pill", "demo/medqa-diag"),
    ("why is the breath of a camel dry on a cold morning", "demo/biology"),
    ("numb feet after weeks of laughing gas at parties", "demo/medical-sciences"),
)


@dataclass(frozen=True)
class Request:
    """A query that a visitor typed, and the systems to run; every field is part of the address."""

    text: str = ""
    task: str = ""
    systems: Sequence[str] = ()


@dataclass(frozen=True)
class RankedDocument:
    """A retrieved document in a column of the page."""

    document_id: str
    score: float
    other_rank: int | None
    """The rank of the document in the compared column; None if it is missing there."""
    segments: Sequence[Segment]
    label: str = ""
    """The judgement of the document; empty if the typed text is not a query of the task."""


@dataclass(frozen=True)
class StageColumn:
    """A column of the page: the ranking of one stage, or of one of two systems."""

    title: str
    is_compared: bool
    """Whether ranks are compared with those of another column."""
    hits: Sequence[RankedDocument]


@dataclass(frozen=True)
class Example:
    """A suggested query that a visitor can run with one click."""

    text: str
    task: str
    systems: str
    """The names of the systems that the example compares."""
    address: str | None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a request: a trial per system, or the problem."""

    trials: Mapping[str, Tried] = field(default_factory=dict)
    problem: str = ""
    needs_form: bool = False
    """Whether the request would ask a language model, so that the visitor must send the form."""


def choices(snapshot: Snapshot, extra_systems: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the systems that may be tried, and the titles of the tasks whose data is here.

    Stored systems are offered only if they consist of registered stages: a results folder may come
    from someone else, and custom code runs only if the user named it when the server started.
    """
    stored = dict.fromkeys(result.system for result in snapshot.results)
    systems = dict.fromkeys([*extra_systems, _ALWAYS[0], *filter(is_plain, stored), *_ALWAYS])
    tasks = dict.fromkeys([*snapshot.tasks, *(entry.name for entry in all_entries())])
    return list(systems), {
        task: task_words(task) for task in filter(snapshot.library.has_data, tasks)
    }


def trial_page(
    snapshot: Snapshot,
    link: Link,
    extra_systems: Sequence[str] = (),
    request: Request | None = None,
    outcome: Outcome | None = None,
) -> str:
    """Return the form, and below it the rankings with matching words marked, or the problem."""
    request, outcome = request or Request(), outcome or Outcome()
    systems, tasks = choices(snapshot, extra_systems)
    answer, columns = "", list[StageColumn]()
    if outcome.trials:
        answer = _answer(snapshot, request, outcome.trials)
        columns = _columns(snapshot, request, outcome.trials)
    first, second = (*request.systems, "", "")[:2]
    costs = [
        (snapshot.names[system], cost)
        for system, tried in outcome.trials.items()
        for cost in tried.costs
    ]
    return render(
        "try.html",
        link,
        page="try",
        title=f"{snippet(request.text, 40)}, tried" if outcome.trials else "Try it",
        systems=systems,
        tasks=tasks,
        names=snapshot.names,
        first=first,
        second=second,
        request=request,
        outcome=outcome,
        problem=outcome.problem.splitlines(),
        longest=LONGEST,
        examples=_example_links(snapshot, link, tasks),
        known_query=_known_query(snapshot, request) if columns else None,
        answer=answer,
        columns=columns,
        costs=costs,
        searched=[
            (snapshot.names[system], tried.searched)
            for system, tried in outcome.trials.items()
            if tried.searched
        ],
    )


def _example_links(snapshot: Snapshot, link: Link, tasks: Mapping[str, str]) -> list[Example]:
    """Return suggested queries that compare bm25 with the best system that asks no model."""
    links = []
    for text, task in _EXAMPLES:
        if task not in tasks:
            continue
        stored = snapshot.of_task(task)
        rivals = [
            system
            for system, result in stored.items()
            if system != _ALWAYS[0]
            and is_plain(system)
            and all(stage.llm is None for stage in result.record.stages)
        ]
        systems = [_ALWAYS[0], *rivals[:1]]
        names = " beside ".join(snapshot.names[system] for system in systems)
        address = link("try", text=text, task=task, system=systems)
        links.append(Example(text, task, names, address))
    return links


def _known_query(snapshot: Snapshot, request: Request) -> str | None:
    """Return the id of the query whose text was typed; None if the task has no such query."""
    queries = snapshot.library.task(request.task).queries
    typed = " ".join(request.text.split())
    return next(
        (query_id for query_id, text in queries.items() if " ".join(text.split()) == typed), None
    )


def _answer(snapshot: Snapshot, request: Request, trials: Mapping[str, Tried]) -> str:
    """Describe which document each system ranks first, and how long the search took."""
    count = plural(len(snapshot.library.task(request.task).corpus.document_ids), "document")
    sentences = []
    for system, tried in trials.items():
        *_, (_, ranking) = tried.stages
        first = f"ranks {ranking[0][0]} first" if ranking else "finds nothing"
        seconds = sum(cost.seconds for cost in tried.costs)
        sentences.append(f"{snapshot.names[system]} {first} of {count}, in {_duration(seconds)}.")
    if len(trials) == MOST_SYSTEMS:
        first_list, second_list = (
            {name for name, _ in tried.stages[-1][1]} for tried in trials.values()
        )
        shared = len(first_list & second_list)
        sentences.append(f"They share {shared} of {len(first_list)} documents.")
    return " ".join(sentences)


def _duration(seconds: float) -> str:
    """Return a duration as text, in milliseconds if it would round to zero seconds."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(1000 * seconds))} ms"


def _columns(
    snapshot: Snapshot, request: Request, trials: Mapping[str, Tried]
) -> list[StageColumn]:
    """Return a column per system, or per stage, each compared with the stage before it."""
    scene = snapshot.library.scene(snapshot.library.task(request.task))
    lexicon = scene.lexicon
    query_id = _known_query(snapshot, request)
    judged = scene.judged.get(query_id, {}) if query_id else {}
    rankings: list[tuple[str, list[tuple[str, float]], str]]
    if len(trials) > 1:
        rankings = [
            (snapshot.names[system], tried.stages[-1][1], tried.searched)
            for system, tried in trials.items()
        ]
    else:
        [tried] = trials.values()
        rankings = [
            (snapshot.names[stage], ranking, tried.searched) for stage, ranking in tried.stages
        ]
    columns = []
    for index, (title, ranking, searched) in enumerate(rankings):
        compared = 1 - index if len(trials) > 1 else index - 1
        other_ranking = rankings[compared][1] if compared >= 0 else []
        ranks = {name: rank for rank, (name, _) in enumerate(other_ranking, start=1)}
        texts = [snippet(lexicon.text(name) or "", _EXCERPT) for name, _ in ranking]
        marked = lexicon.mark(texts, request.text, searched)
        hits = [
            RankedDocument(
                name,
                score,
                ranks.get(name),
                segments,
                label_of(judged.get(name)) if query_id else "",
            )
            for (name, score), segments in zip(ranking, marked, strict=True)
        ]
        columns.append(StageColumn(title, compared >= 0, hits))
    return columns
