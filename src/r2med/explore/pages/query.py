"""One query under some systems: what was asked, what each ranked, where positives stand, why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from r2med.errors import MissingError, nearest
from r2med.explore.library import Snapshot, check_systems
from r2med.explore.render import Link, plural, points, render
from r2med.report.diagnosis import STOPS, VERBS, evidence
from r2med.report.table import task_label
from r2med.results.compare import QueryScores, query_scores
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.diagnose import diagnose_ranking, limits_of
from r2med.results.diagnosis.findings import QueryFinding, label_of
from r2med.results.lookup import Ranking
from r2med.systems.registry import members_of
from r2med.systems.spec import parse

#: Systems side by side, and how many are chosen when the address names none.
MOST_SYSTEMS, CHOSEN = 4, 2
DEPTHS = ("10", "20", "50", "100")
#: By name the orders of queries: what comes first, and by which key; of equals, the task's order.
ORDERS: Mapping[str, tuple[str, Callable[[QueryScores], float]]] = {
    "difficulty": ("hardest first", lambda query: query.mean),
    "division": ("most divided first", lambda query: -query.division),
    "gain": ("largest gain of the first system over the second", lambda query: -query.gain),
    "loss": ("largest loss of the first system to the second", lambda query: query.gain),
    "task": ("as the task lists them", lambda query: 0.0),
}
#: Characters of a document that a ranking shows at once, and on demand.
_EXCERPT, _LONG = 220, 2500
#: Ranks that a sentence names.
_RANKS = 3


@dataclass(eq=False)
class QueryData:
    """Everything that the page of a query says; without `systems`, under the best two."""

    snapshot: Snapshot
    task: str
    query_id: str
    systems: Sequence[str] = ()
    metric: str = "ndcg@10"
    order: str = "difficulty"
    depth: int = TOP

    def __post_init__(self) -> None:
        if self.task not in self.snapshot.tasks:
            raise MissingError(
                f"No result of {self.task} is stored.\n"
                f"Run a system: r2med eval bm25 --task {self.task}"
            )
        self.stored = self.snapshot.of_task(self.task, self.metric)
        check_systems(tuple(self.systems), self.stored, MOST_SYSTEMS, "on this task")
        self.systems = self.systems or list(self.stored)[:CHOSEN]
        self.chosen = {system: self.stored[system] for system in self.systems}
        self.data, self.missing = self.snapshot.data_of(self.task, self.chosen)
        self.texts = self.data if not self.missing else None
        own, everyone = (
            query_scores(list(each.values()), self.metric) for each in (self.chosen, self.stored)
        )
        # What is hard or divides is so for all stored systems; one alone has its own order.
        shared = self.order == "division" or (self.order == "difficulty" and len(self.chosen) > 1)
        sort_key = ORDERS[self.order][1]
        ids = [each.query_id for each in sorted(everyone if shared else own, key=sort_key)]
        if self.query_id not in ids:
            raise MissingError(
                f"{self.task} has no judged query {self.query_id!r}. {nearest(self.query_id, ids)}"
            )
        place = ids.index(self.query_id)
        self.scores = next(each.scores for each in own if each.query_id == self.query_id)
        others = next((each.scores for each in everyone if each.query_id == self.query_id), ())
        self.others = dict(zip(self.stored, others, strict=False))
        """Every stored system with its score here."""
        self.place, self.total = place + 1, len(ids)
        self.previous = ids[place - 1] if place else None
        self.next = ids[place + 1] if place + 1 < len(ids) else None
        runs = {system: self.snapshot.library.ranked(each) for system, each in self.chosen.items()}
        self.lists = {system: run.ranking(self.query_id) for system, run in runs.items()}
        self.ranks = {system: run.ranks_of(self.query_id) for system, run in runs.items()}
        self.scene = self.snapshot.library.scene(self.data) if self.data else None
        self.judged = self.scene.judged.get(self.query_id, {}) if self.scene else {}

    @property
    def origin(self) -> Hashable:
        """Whatever the lists are made from: they stay as they are for as long as this does."""
        used = {str(part) for system in self.chosen for part in members_of(parse(system))}
        rerankings = (each.record.reranking for each in self.chosen.values())
        used |= {each.first for each in rerankings if each} | self.chosen.keys()
        results = (
            (each.folder, each.record.created)
            for each in self.snapshot.results
            if each.task == self.task and each.system in used
        )
        names = tuple((system, self.snapshot.names[system]) for system in self.chosen)
        data = self.data.hash if self.data else None
        return self.query_id, self.metric, self.depth, names, tuple(results), data, self.missing

    @cached_property
    def positives(self) -> list[tuple[str, list[int | None]]]:
        """Every positive with its rank in each system, the best placed first."""
        names = [name for name, grade in self.judged.items() if grade > 0]
        rows = [(name, [ranks.get(name) for ranks in self.ranks.values()]) for name in names]
        never = 1 << 30
        return sorted(rows, key=lambda row: min(rank or never for rank in row[1]))

    @cached_property
    def columns(self) -> list[dict[str, Any]]:
        """One column per system; each is held against the first, the first against the second."""
        columns = []
        for place, (system, result) in enumerate(self.chosen.items()):
            diagnosis, expansion = None, None
            if self.data is not None and self.positives:
                diagnosis = diagnose_ranking(
                    Ranking(system, self.snapshot.library.ranked(result), result),
                    self.data,
                    results=self.snapshot.results,
                    scene=self.scene,
                    only=self.query_id,
                )
            if self.texts is not None and "expander" in str(result.record.system.identity):
                from r2med.engine.explain import generated

                expansion = generated(result, self.texts, self.query_id)
            other = self.systems[0 if place else 1] if len(self.systems) > 1 else None
            parts = map(str, members_of(parse(system)))
            columns.append(
                {
                    "system": system,
                    "score": self.scores[place],
                    "finding": diagnosis.queries[0] if diagnosis else None,
                    # What the diagnosis could not look for.
                    "open": diagnosis.open if diagnosis else (),
                    # The ranks of documents in the system that it is held against.
                    "others": self.ranks[other] if other else {},
                    "expansion": expansion,
                    # Parts that could stand alone, with their scores where they have results.
                    "stages": [(part, self.others.get(part)) for part in parts],
                    "limits": limits_of(result.record.system.identity),
                }
            )
        return columns

    @cached_property
    def documents(self) -> dict[str, tuple[Sequence[str], Sequence[str], int]]:
        """The texts of every document on the page, their matched words marked in one pass.

        Each is in pieces, as `Lexicon.matched` gives them: the head, the rest that is folded away,
        and how many characters only the page of the document shows.
        """
        if self.scene is None or self.texts is None:
            return {}
        names = {name for ranked in self.lists.values() for name, _ in ranked[: self.depth]}
        names |= {name for name, _ in self.positives}
        lexicon = self.scene.lexicon
        texts = {name: text for name in names if (text := lexicon.text(name)) is not None}
        query = self.scene.task.query(self.query_id)
        marked = lexicon.matched(query, [text[:_LONG] for text in texts.values()])
        return {
            name: (*_folded(pieces), max(0, len(text) - _LONG))
            for (name, text), pieces in zip(texts.items(), marked, strict=True)
        }

    def unread(self, name: str, limit: int | None) -> int:
        """Words of a document that a model with this limit certainly did not read."""
        text = self.scene.lexicon.text(name) if self.scene and limit else None
        return max(0, len(text.split()) - (limit or 0)) if text else 0


def query_page(data: QueryData, link: Link) -> str:
    """What was asked, ranked and missed, and why; the lists, which take longest, are kept."""
    kept = data.snapshot.library.lists
    summary, lists = kept.get((link, data.origin), lambda: (answer(data), _lists(data, link)))
    return render(
        "query.html",
        link,
        page="tasks",
        title=f"Query {data.query_id}, {task_label(data.task)}",
        data=data,
        suite=next(iter(data.stored.values())).suite,
        answer=summary,
        lists=lists,
        names=data.snapshot.names,
        orders=ORDERS,
        depths=DEPTHS,
        most=MOST_SYSTEMS,
        systems=data.systems,
    )


def _lists(data: QueryData, link: Link) -> Markup:
    """The larger part of the page, made from `data.origin` alone."""
    asked = dict.fromkeys(("texts", "answers", "body_systems", "reasonings"), "")
    if data.texts is not None:
        queries = data.texts.queries
        row = queries.ids.index(data.query_id).as_py()
        asked = {name: getattr(queries, name)[row].as_py() or "" for name in asked}
    html = render(
        "lists.html",
        link,
        data=data,
        asked=asked,
        names=data.snapshot.names,
        causes=CAUSES,
        evidence=evidence,
        label_of=label_of,
        verbs=VERBS,
        stops=STOPS,
        top=TOP,
        systems=data.systems,
    )
    return Markup(html)


def answer(data: QueryData) -> str:
    """How the query went and why, in a sentence or two with numbers."""
    [first, *others] = [data.snapshot.names[system] for system in data.systems]
    text = f"{first} scores {points(data.scores[0])}"
    for name, score in zip(others, data.scores[1:], strict=True):
        text += f", {name} {points(score)}"
    finding: QueryFinding | None = data.columns[0]["finding"]
    if finding is None:
        return f"{text}."
    count = len(finding.positives)
    retrieved = count - len(finding.missed)
    text += f". {first}" if others else ": it"
    text += f" has {retrieved} of {plural(count, 'positive')} in its first {TOP}"
    if not finding.missed:
        return f"{text}. Nothing was missed."
    failures = []
    for way, many in Counter(each.failure for each in finding.missed).items():
        ranks = [str(each.rank) for each in finding.missed if each.rank and each.failure == way]
        at = f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)})"
        is_ = "is" if many == 1 else "are"
        failures.append(f"{many} {is_} {way}{at if 0 < len(ranks) <= _RANKS else ''}")
    usual = "usual cause" if len(finding.missed) > 1 else "cause"
    cause = f" The {usual}: {CAUSES[finding.cause].title}." if finding.cause else ""
    return f"{text}; {'; '.join(failures)}.{cause}"


def _folded(pieces: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """The head ends at the first space after so many characters."""
    length = 0
    for place, piece in enumerate(pieces):
        if length + len(piece) >= _EXCERPT and place % 2 == 0:
            space = piece.find(" ", max(0, _EXCERPT - length))
            if space >= 0:
                return [*pieces[:place], piece[:space]], [piece[space:], *pieces[place + 1 :]]
        length += len(piece)
    return pieces, []
