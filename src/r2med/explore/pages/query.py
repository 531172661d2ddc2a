"""One query under some systems: what was asked, what each ranked, where positives stand, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from markupsafe import Markup

from r2med.errors import MissingError, nearest
from r2med.explore.library import Shelf, check_systems
from r2med.explore.render import Link, plural, points, render, sentence
from r2med.report.diagnosis import STOPS, VERBS, evidence
from r2med.report.table import task_label
from r2med.results.compare import QueryScores, query_scores
from r2med.results.diagnosis.causes import CAUSES, TOP, PositiveFinding
from r2med.results.diagnosis.diagnose import diagnose_ranking, limits_of
from r2med.results.diagnosis.findings import (
    Label,
    QueryFinding,
    TaskDiagnosis,
    label_of,
)
from r2med.results.diagnosis.lexicon import Piece
from r2med.results.lookup import Ranking
from r2med.results.movement import ORDERS, Order, in_order
from r2med.results.record import Result
from r2med.systems.registry import members_of
from r2med.systems.spec import parse

if TYPE_CHECKING:
    from r2med.expand.method import Expanded

#: Systems side by side, and how many are chosen when the address names none.
MOST_SYSTEMS, CHOSEN = 4, 2
DEPTHS = ("10", "20", "50", "100")
#: Characters of a document that a ranking shows at once, and on demand.
_EXCERPT, _LONG = 220, 2500
#: Ranks that a sentence names.
_RANKS = 3


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
    other_rank: int | None
    """Its rank in the other system; None where that does not list it."""
    unread: int
    """Words that the model certainly did not read."""

    @property
    def move(self) -> int | None:
        """How many places higher than in the other system."""
        return None if self.other_rank is None else self.other_rank - self.rank


@dataclass(frozen=True, eq=False)
class Column:
    """One system on the query."""

    system: str
    score: float
    finding: QueryFinding | None
    entries: tuple[Entry, ...]
    listed: int
    expanded: Expanded | None
    source: str
    """Where the generated text is from."""
    stages: tuple[tuple[str, float | None], ...]
    """Parts that could stand alone, with their scores where they have results of their own."""
    query_unread: int
    open: tuple[str, ...]
    """What the diagnosis could not look for."""

    @property
    def why(self) -> str:
        """Why the system failed: the usual cause, and the numbers of the best placed miss."""
        if self.finding is None or self.finding.cause is None:
            return ""
        first = next(each for each in self.finding.missed if each.cause == self.finding.cause)
        cause = CAUSES[self.finding.cause]
        name, numbers = first.document_id, sentence(evidence(self.finding, first))
        return f"{cause.title}. {name}: {cause.meaning}. {numbers}."

    @property
    def missed(self) -> list[tuple[PositiveFinding, str]]:
        """Positives below the top, each with its cause and numbers."""
        finding = self.finding
        if finding is None:
            return []
        return [
            (each, f"{CAUSES[str(each.cause)].title}: {evidence(finding, each)}")
            for each in finding.missed
        ]


@dataclass(frozen=True)
class Lists:
    """The larger part of the page, which takes longest to make."""

    answer: str
    html: Markup


@dataclass(eq=False)
class QueryData:
    """Everything that the page of a query says."""

    shelf: Shelf
    task: str
    query_id: str
    metric: str
    order: Order
    depth: int
    stored: Mapping[str, Result]
    chosen: Mapping[str, Result]
    """The results side by side, in the order of the address."""

    def __post_init__(self) -> None:
        self.data, self.missing = self.shelf.data_of(self.task, self.chosen)
        self.texts = self.data if not self.missing else None
        own = query_scores(list(self.chosen.values()), self.metric)
        scores = {each.query_id: each.scores for each in own}
        ids = [each.query_id for each in in_order(self._ordering(own), self.order)]
        if self.query_id not in ids:
            raise MissingError(
                f"{self.task} has no judged query {self.query_id!r}. {nearest(self.query_id, ids)}"
            )
        place = ids.index(self.query_id)
        self.place, self.total, self.scores = place + 1, len(ids), scores[self.query_id]
        self.previous = ids[place - 1] if place else None
        self.next = ids[place + 1] if place + 1 < len(ids) else None
        self.lists = {
            system: self.shelf.library.ranked(result).ranking_or_empty(self.query_id)
            for system, result in self.chosen.items()
        }
        self.ranks = {
            system: {name: rank for rank, (name, _) in enumerate(ranked, start=1)}
            for system, ranked in self.lists.items()
        }
        self.scene = self.shelf.library.scene(self.data) if self.data else None
        self.judged = self.scene.judged.get(self.query_id, {}) if self.scene else {}

    def _ordering(self, own: list[QueryScores]) -> list[QueryScores]:
        """The scores that queries are ordered by, as on the page of the task.

        What is hard or divides is so for all stored systems; one system alone has its own order.
        """
        shared = self.order == "division" or (self.order == "difficulty" and len(self.chosen) > 1)
        return self._all if shared else own

    @cached_property
    def _all(self) -> list[QueryScores]:
        return query_scores(list(self.stored.values()), self.metric)

    @property
    def origin(self) -> Hashable:
        """Whatever the lists are made from: they stay as they are for as long as this does."""
        used = {str(part) for system in self.chosen for part in members_of(parse(system))}
        rerankings = (each.record.reranking for each in self.chosen.values())
        used |= {each.first for each in rerankings if each}
        results = (
            (each.folder, self.shelf.stamps.get(each.folder))
            for each in self.shelf.results
            if each.task == self.task and each.system in used | self.chosen.keys()
        )
        names = tuple((system, self.shelf.names[system]) for system in self.chosen)
        data = (self.data.hash if self.data else None, self.missing)
        return self.query_id, self.metric, self.depth, names, tuple(results), data

    @property
    def suite(self) -> str | None:
        """The suite of the task."""
        return next(iter(self.stored.values())).suite

    @property
    def asked(self) -> tuple[str, str, str, str]:
        """Text, answer, body system and reasoning; empty where they are not known or not shown."""
        if self.texts is None:
            return "", "", "", ""
        queries = self.texts.queries
        row = queries.ids.index(self.query_id).as_py()
        columns = (queries.texts, queries.answers, queries.body_systems, queries.reasonings)
        text, answer, system, reasoning = (column[row].as_py() or "" for column in columns)
        return text.strip(), answer, system, reasoning

    @cached_property
    def others(self) -> list[tuple[str, float]]:
        """Every stored system with its score here."""
        scores = next((each.scores for each in self._all if each.query_id == self.query_id), ())
        return list(zip(self.stored, scores, strict=False))

    @cached_property
    def positives(self) -> list[tuple[str, list[int | None]]]:
        """Every positive with its rank in each system, the best placed first."""
        names = [name for name, grade in self.judged.items() if grade > 0]
        rows = [(name, [ranks.get(name) for ranks in self.ranks.values()]) for name in names]
        never = 1 << 30
        return sorted(rows, key=lambda row: min(rank or never for rank in row[1]))

    @cached_property
    def columns(self) -> list[Column]:
        """One column per system; each is held against the first, the first against the second."""
        systems = list(self.chosen)
        others = [next(iter(systems[1:]), None), *(systems[0] for _ in systems[1:])]
        columns = []
        for system, score, other in zip(systems, self.scores, others, strict=True):
            result, diagnosis = self.chosen[system], self._diagnosed(system)
            finding = diagnosis.queries[0] if diagnosis else None
            expanded, source = self._generated(result)
            limits = limits_of(result.record.system.identity)
            limit = limits.query or limits.pair
            columns.append(
                Column(
                    system=system,
                    score=score,
                    finding=finding,
                    entries=tuple(self._entries(system, other, limits.document)),
                    listed=len(self.lists[system]),
                    expanded=expanded,
                    source=source,
                    stages=tuple(self._stages(system)),
                    query_unread=max(0, finding.words - limit) if finding and limit else 0,
                    open=diagnosis.open if diagnosis else (),
                )
            )
        return columns

    @cached_property
    def documents(self) -> dict[str, Shown]:
        """The texts of every document on the page, their matched words marked in one pass."""
        if self.scene is None or self.texts is None:
            return {}
        names = {name for ranked in self.lists.values() for name, _ in ranked[: self.depth]}
        names |= {name for name, _ in self.positives}
        lexicon = self.scene.lexicon
        texts = {name: text for name in names if (text := lexicon.text(name)) is not None}
        query = self.scene.task.query(self.query_id)
        marked = lexicon.matched(query, [text[:_LONG] for text in texts.values()])
        return {
            name: _shown(pieces, max(0, len(text) - _LONG))
            for (name, text), pieces in zip(texts.items(), marked, strict=True)
        }

    def _entries(self, system: str, other: str | None, limit: int | None) -> Iterator[Entry]:
        elsewhere = self.ranks[other] if other else {}
        for rank, (name, score) in enumerate(self.lists[system][: self.depth], start=1):
            yield Entry(
                rank=rank,
                document_id=name,
                score=score,
                label=label_of(self.judged.get(name)) if self.scene else None,
                other_rank=elsewhere.get(name),
                unread=max(0, self._words(name) - limit) if limit else 0,
            )

    def _stages(self, system: str) -> Iterator[tuple[str, float | None]]:
        for part in map(str, members_of(parse(system))):
            score = None
            if part in self.stored:
                own = query_scores([self.stored[part]], self.metric)
                score = next((each.mean for each in own if each.query_id == self.query_id), None)
            yield part, score

    def _diagnosed(self, system: str) -> TaskDiagnosis | None:
        if self.data is None or not self.positives:
            return None
        result = self.chosen[system]
        return diagnose_ranking(
            Ranking(system, self.shelf.library.ranked(result), result),
            self.data,
            results=self.shelf.results,
            scene=self.scene,
            only=self.query_id,
        )

    def _generated(self, result: Result) -> tuple[Expanded | None, str]:
        if self.texts is None or "expander" not in str(result.record.system.identity):
            return None, ""
        from r2med.engine.explain import generated

        return generated(result, self.texts, self.query_id)

    def _words(self, name: str) -> int:
        row = self.scene.lexicon.row(name) if self.scene else None
        return 0 if row is None or self.scene is None else self.scene.lexicon.words(row)


def query_data(
    shelf: Shelf,
    name: str,
    query_id: str,
    *,
    systems: Sequence[str] = (),
    metric: str = "ndcg@10",
    order: Order = "difficulty",
    depth: int = TOP,
) -> QueryData:
    """What is known of a query; without `systems`, under the best two."""
    if name not in shelf.tasks:
        raise MissingError(
            f"No result of {name} is stored.\nRun a system: r2med eval bm25 --task {name}"
        )
    stored = shelf.of_task(name, metric)
    check_systems(tuple(systems), stored, MOST_SYSTEMS, "on this task")
    chosen = {system: stored[system] for system in systems or list(stored)[:CHOSEN]}
    return QueryData(shelf, name, query_id, metric, order, depth, stored, chosen)


def query_page(data: QueryData, lists: Lists, link: Link) -> str:
    """The page of a query around its lists."""
    return render(
        "query.html",
        link,
        page="tasks",
        title=f"Query {data.query_id}, {task_label(data.task)}",
        data=data,
        lists=lists,
        names=data.shelf.names,
        orders=ORDERS,
        depths=DEPTHS,
        most=MOST_SYSTEMS,
        systems=list(data.chosen),
    )


def query_lists(data: QueryData, link: Link) -> Lists:
    """What was asked, ranked and missed; made from `data.origin` alone."""
    text, asked_for, body_system, reasoning = data.asked
    html = render(
        "lists.html",
        link,
        data=data,
        text=text,
        asked_for=asked_for,
        body_system=body_system,
        reasoning=reasoning,
        names=data.shelf.names,
        verbs=VERBS,
        stops=STOPS,
        top=TOP,
        systems=list(data.chosen),
    )
    return Lists(answer(data), Markup(html))


def answer(data: QueryData) -> str:
    """How the query went and why, in a sentence or two with numbers."""
    names, [first, *others] = data.shelf.names, data.columns
    text = f"{names[first.system]} scores {points(first.score)}"
    text += "".join(f", {names[each.system]} {points(each.score)}" for each in others)
    finding = first.finding
    if finding is None:
        return f"{text}."
    count = len(finding.positives)
    retrieved = count - len(finding.missed)
    text += f". {names[first.system]}" if others else ": it"
    text += f" has {retrieved} of {plural(count, 'positive')} in its first {TOP}"
    if not finding.missed:
        return f"{text}. Nothing was missed."
    said = []
    for way, many in Counter(each.failure for each in finding.missed).items():
        ranks = [str(each.rank) for each in finding.missed if each.rank and each.failure == way]
        at = f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)})"
        is_ = "is" if many == 1 else "are"
        said.append(f"{many} {is_} {way}{at if 0 < len(ranks) <= _RANKS else ''}")
    usual = "usual cause" if len(finding.missed) > 1 else "cause"
    cause = f" The {usual}: {CAUSES[finding.cause].title}." if finding.cause else ""
    return f"{text}; {'; '.join(said)}.{cause}"


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
