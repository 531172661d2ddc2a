"""One query under some systems: what was asked, what each ranked, where positives stand, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.errors import MissingError, UsageError, nearest
from r2med.explore.library import Library, Shelf, texts_of
from r2med.explore.render import Link, plural, points, render
from r2med.report.diagnosis import STOPS, VERBS, evidence
from r2med.report.table import task_label
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.diagnose import diagnose_ranking, limits_of
from r2med.results.diagnosis.findings import (
    Label,
    PositiveFinding,
    QueryFinding,
    TaskDiagnosis,
    label_of,
)
from r2med.results.diagnosis.lexicon import Piece
from r2med.results.lookup import Ranking
from r2med.results.movement import ORDERS, Order, QueryScores, in_order, query_scores
from r2med.results.record import Result
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.method import Expanded

#: Systems side by side, and how many are chosen when the address names none.
MOST_SYSTEMS, CHOSEN = 4, 2
DEPTHS = ("10", "20", "50", "100")
#: Characters of a document that a ranking shows at once, and on demand.
_EXCERPT, _LONG = 220, 2500


@dataclass(frozen=True)
class Shown:
    """A text with its matched words: the head, and the rest that is folded away."""

    head: tuple[Piece, ...]
    rest: tuple[Piece, ...]
    cut: int
    """Characters that only the page of the document shows."""


@dataclass(frozen=True)
class Entry:
    """One document of a ranking."""

    rank: int
    document_id: str
    score: float
    label: Label | None
    """None where the judgements are not here."""
    text: Shown | None
    move: int | None
    """How many places higher than in the other system; None where that does not list it."""
    other_rank: int | None
    unread: int
    """Words that the model certainly did not read."""


@dataclass(frozen=True)
class Missed:
    """A positive below the top, and why."""

    finding: PositiveFinding
    title: str
    why: str
    text: Shown | None


@dataclass(frozen=True)
class Stage:
    """A part of a system that has a result of its own: its score on this query."""

    system: str
    score: float | None


@dataclass(frozen=True, eq=False)
class Column:
    """One system on the query."""

    system: str
    score: float
    finding: QueryFinding | None
    why: str
    entries: tuple[Entry, ...]
    missed: tuple[Missed, ...]
    listed: int
    expanded: Expanded | None
    source: str
    stages: tuple[Stage, ...]
    query_unread: int
    open: tuple[str, ...]


@dataclass(frozen=True)
class PositiveRow:
    """A positive and its rank in every system shown."""

    document_id: str
    ranks: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class QueryData:
    """Everything that the page of a query says."""

    task: str
    suite: str | None
    query_id: str
    metric: str
    text: str
    answer: str
    body_system: str
    reasoning: str
    columns: tuple[Column, ...]
    positives: tuple[PositiveRow, ...]
    others: tuple[tuple[str, float, bool], ...]
    """Every stored system: its score here, and whether it is shown."""
    order: Order
    place: int
    total: int
    previous: str | None
    next: str | None
    depth: int
    missing: str
    names: Mapping[str, str]
    """What every system is called."""


def query_data(
    library: Library,
    shelf: Shelf,
    name: str,
    query_id: str,
    *,
    systems: Sequence[str] = (),
    metric: str = "ndcg@10",
    order: Order = "difficulty",
    depth: int = TOP,
    with_texts: bool = True,
) -> QueryData:
    """Gather what is known of a query; without `systems`, under the best two."""
    stored = shelf.of_task(name) if name in shelf.tasks else {}
    if not stored:
        raise MissingError(
            f"No result of {name} is stored.\nRun a system: r2med eval bm25 --task {name}"
        )
    stored = {each: result for each, result in stored.items() if metric in result.scores}
    chosen = chosen_results(stored, systems)
    task, missing = texts_of(library, name, chosen)
    queries = in_order(query_scores(list(chosen.values()), metric), order)
    ids = [each.query_id for each in queries]
    if query_id not in ids:
        raise MissingError(f"{name} has no judged query {query_id!r}. {nearest(query_id, ids)}")
    place = ids.index(query_id)
    scene = _Scene(library, shelf, task, chosen, query_id, depth, with_texts)
    text, answer, system, reasoning = _annotations(task if with_texts else None, query_id)
    here = query_scores(list(stored.values()), metric)
    row = next((each for each in here if each.query_id == query_id), None)
    return QueryData(
        task=name,
        suite=next(iter(stored.values())).suite,
        query_id=query_id,
        metric=metric,
        text=text,
        answer=answer,
        body_system=system,
        reasoning=reasoning,
        columns=tuple(scene.columns(queries[place])),
        positives=scene.positives(),
        others=_others(stored, chosen, row),
        order=order,
        place=place + 1,
        total=len(ids),
        previous=ids[place - 1] if place else None,
        next=ids[place + 1] if place + 1 < len(ids) else None,
        depth=depth,
        missing=missing,
        names=shelf.names,
    )


def query_page(data: QueryData, link: Link) -> str:
    """The page of a query."""
    return render(
        "query.html",
        link,
        page="tasks",
        title=f"Query {data.query_id}, {task_label(data.task)}",
        data=data,
        answer=answer(data),
        orders=ORDERS,
        depths=DEPTHS,
        causes=CAUSES,
        verbs=VERBS,
        stops=STOPS,
        top=TOP,
        most=MOST_SYSTEMS,
        systems=[column.system for column in data.columns],
    )


def answer(data: QueryData) -> str:
    """How the query went and why, in a sentence or two with numbers."""
    first = data.columns[0]
    name = data.names.get(first.system, first.system)
    text = f"{name} scores {points(first.score)}"
    if len(data.columns) > 1:
        second = data.columns[1]
        text += f", {data.names.get(second.system, second.system)} {points(second.score)}"
    finding = first.finding
    if finding is None:
        return f"{text}."
    count = len(finding.positives)
    found = count - len(finding.missed)
    text += f": {name} has {found} of {plural(count, 'positive')} in its first {TOP}."
    return f"{text} {_losses(finding)}".strip()


def _losses(finding: QueryFinding) -> str:
    """How many were lost in which way."""
    ways: dict[str, int] = {}
    for missed in finding.missed:
        ways[str(missed.failure)] = ways.get(str(missed.failure), 0) + 1
    said = [f"{count} {'is' if count == 1 else 'are'} {way}" for way, count in ways.items()]
    return f"{'; '.join(said)}." if said else "Nothing was missed."


def chosen_results(stored: Mapping[str, Result], systems: Sequence[str]) -> dict[str, Result]:
    """The results to show, in the order of the address."""
    if len(systems) > MOST_SYSTEMS:
        raise UsageError(f"{len(systems)} systems are chosen, expected at most {MOST_SYSTEMS}.")
    for system in systems:
        if system not in stored:
            raise MissingError(
                f"No result of {system[:100]!r} on this task is stored. {nearest(system, stored)}"
            )
    return {system: stored[system] for system in systems or list(stored)[:CHOSEN]}


@dataclass(eq=False)
class _Scene:
    """A query and the results to hold side by side."""

    library: Library
    shelf: Shelf
    task: Task | None
    results: Mapping[str, Result]
    query_id: str
    depth: int
    with_texts: bool

    def __post_init__(self) -> None:
        self._lists = {
            system: self.library.ranked(result).ranking_or_empty(self.query_id)
            for system, result in self.results.items()
        }
        self._ranks = {
            system: {name: rank for rank, (name, _) in enumerate(ranked, start=1)}
            for system, ranked in self._lists.items()
        }
        task = self.task
        self._judged = self.library.scene(task).judged.get(self.query_id, {}) if task else {}
        self._findings = {system: self._diagnosed(system) for system in self.results}
        self._texts = self._shown()

    def columns(self, scores: QueryScores) -> list[Column]:
        """One column per system; each is held against the first, the first against the second."""
        systems = list(self.results)
        found = []
        for place, (system, score) in enumerate(zip(systems, scores.scores, strict=True)):
            other = systems[0] if place else next(iter(systems[1:]), None)
            found.append(self._column(system, score, other))
        return found

    def positives(self) -> tuple[PositiveRow, ...]:
        """Every positive, the best placed first."""
        names = [name for name, grade in self._judged.items() if grade > 0]
        rows = [
            PositiveRow(name, tuple(ranks.get(name) for ranks in self._ranks.values()))
            for name in names
        ]
        never = 1 << 30
        return tuple(sorted(rows, key=lambda row: min(rank or never for rank in row.ranks)))

    def _column(self, system: str, score: float, other: str | None) -> Column:
        result, found = self.results[system], self._findings[system]
        finding = found.queries[0] if found else None
        expanded, source = self._generated(result)
        return Column(
            system=system,
            score=score,
            finding=finding,
            why=_why(finding),
            entries=tuple(self._entries(system, other)),
            missed=tuple(self._missed(finding)),
            listed=len(self._lists[system]),
            expanded=expanded,
            source=source,
            stages=tuple(self._stages(system)),
            query_unread=self._query_unread(result, finding),
            open=found.open if found else (),
        )

    def _entries(self, system: str, other: str | None) -> list[Entry]:
        limit = limits_of(self.results[system].record.system.identity).document
        elsewhere = self._ranks[other] if other else {}
        entries = []
        for rank, (name, score) in enumerate(self._lists[system][: self.depth], start=1):
            there = elsewhere.get(name)
            entries.append(
                Entry(
                    rank=rank,
                    document_id=name,
                    score=score,
                    label=label_of(self._judged.get(name)) if self.task else None,
                    text=self._texts.get(name),
                    move=there - rank if there is not None else None,
                    other_rank=there,
                    unread=max(0, self._words(name) - limit) if limit else 0,
                )
            )
        return entries

    def _missed(self, finding: QueryFinding | None) -> list[Missed]:
        return [
            Missed(
                each,
                CAUSES[str(each.cause)].title,
                evidence(finding, each),
                self._texts.get(each.document_id),
            )
            for each in (finding.missed if finding else ())
            if finding is not None
        ]

    def _stages(self, system: str) -> list[Stage]:
        found = []
        for text in self.shelf.members(system):
            result = self.shelf.of_task(self.results[system].task).get(text)
            score = None
            if result is not None:
                ids = result.scores.query_ids.to_pylist()
                if self.query_id in ids:
                    score = float(result.scores["ndcg@10"][ids.index(self.query_id)])
            found.append(Stage(text, score))
        return found

    def _diagnosed(self, system: str) -> TaskDiagnosis | None:
        if self.task is None or not any(grade > 0 for grade in self._judged.values()):
            return None
        result = self.results[system]
        ranking = Ranking(system, self.library.ranked(result), result)
        return diagnose_ranking(
            ranking,
            self.task,
            results=self.shelf.results,
            scene=self.library.scene(self.task),
            only=self.query_id,
        )

    def _generated(self, result: Result) -> tuple[Expanded | None, str]:
        if (
            not self.with_texts
            or self.task is None
            or "expander" not in str(result.record.system.identity)
        ):
            return None, ""
        from r2med.engine.explain import generated

        return generated(result, self.task, self.query_id)

    def _query_unread(self, result: Result, finding: QueryFinding | None) -> int:
        limits = limits_of(result.record.system.identity)
        limit = limits.query or limits.pair
        return max(0, finding.words - limit) if finding and limit else 0

    def _words(self, name: str) -> int:
        if self.task is None:
            return 0
        lexicon = self.library.scene(self.task).lexicon
        row = lexicon.row(name)
        return 0 if row is None else lexicon.words(row)

    def _shown(self) -> dict[str, Shown]:
        """The texts of every document on the page, their matched words marked in one pass."""
        if self.task is None or not self.with_texts:
            return {}
        names = {name for ranked in self._lists.values() for name, _ in ranked[: self.depth]}
        names |= {name for name, grade in self._judged.items() if grade > 0}
        lexicon = self.library.scene(self.task).lexicon
        texts = {name: text for name in names if (text := lexicon.text(name)) is not None}
        cut = [text[:_LONG] for text in texts.values()]
        marked = self.library.scene(self.task).matched(self.query_id, cut)
        return {
            name: _shown(pieces, max(0, len(text) - _LONG))
            for (name, text), pieces in zip(texts.items(), marked, strict=True)
        }


def _shown(pieces: Sequence[Piece], cut: int) -> Shown:
    """The head ends at the first space after so many characters."""
    head: list[Piece] = []
    length = 0
    for place, piece in enumerate(pieces):
        if length + len(piece.text) >= _EXCERPT and not piece.hit:
            space = piece.text.find(" ", max(0, _EXCERPT - length))
            if space >= 0:
                rest = (Piece(piece.text[space:]), *pieces[place + 1 :])
                return Shown((*head, Piece(piece.text[:space])), rest, cut)
        head.append(piece)
        length += len(piece.text)
    return Shown(tuple(head), (), cut)


def _why(finding: QueryFinding | None) -> str:
    """Why a system failed on a query: the usual cause, and the numbers of the best placed miss."""
    if finding is None or finding.cause is None:
        return ""
    first = next(each for each in finding.missed if each.cause == finding.cause)
    cause = CAUSES[finding.cause]
    return f"{cause.title} — {cause.meaning}. {first.document_id}: {evidence(finding, first)}."


def _annotations(task: Task | None, query_id: str) -> tuple[str, str, str, str]:
    """Text, answer, body system and reasoning; empty where they are not known."""
    if task is None:
        return "", "", "", ""
    queries = task.queries
    row = queries.ids.index(query_id).as_py()
    columns = (queries.texts, queries.answers, queries.body_systems, queries.reasonings)
    text, found, system, reasoning = (column[row].as_py() or "" for column in columns)
    return text.strip(), found, system, reasoning


def _others(
    stored: Mapping[str, Result], chosen: Mapping[str, Result], row: QueryScores | None
) -> tuple[tuple[str, float, bool], ...]:
    scores = row.scores if row else (0.0,) * len(stored)
    return tuple(
        (system, score, system in chosen) for system, score in zip(stored, scores, strict=True)
    )
