"""The page of a query: its text, the ranking of each system, the ranks of positives, and causes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from r2med.errors import MissingError, nearest
from r2med.explore.library import DETAILED_ROWS, Snapshot, check_systems
from r2med.explore.render import Link, plural, points, render
from r2med.report.query_page import STOPS, VERBS, evidence
from r2med.report.table import snippet, task_label
from r2med.rerank.traces import RerankAnswer, read_rerank_answers
from r2med.results.answers import answer_notes
from r2med.results.compare import QueryScores, query_scores
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.diagnose import Scene, diagnose_ranking
from r2med.results.diagnosis.findings import QueryFinding, TaskDiagnosis, label_of
from r2med.results.diagnosis.lexicon import Segment
from r2med.results.published_data import find_other_data
from r2med.results.record import RUN_FILE, Result
from r2med.results.select import Ranking
from r2med.results.stage_record import TextLimits
from r2med.systems.registry import members_of
from r2med.systems.spec import parse
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.answers import Expansion

#: Systems side by side, and how many are chosen when the address names none.
MOST_SYSTEMS, CHOSEN = 4, 2
DEPTHS = ("10", "20", "50", "100")
#: By name the orders of queries: what comes first, and by which key; of equals, the task's order.
ORDERS: Mapping[str, tuple[str, Callable[[QueryScores], float]]] = {
    "difficulty": ("hardest first", lambda query: query.mean),
    "division": ("most disagreement first", lambda query: -query.division),
    "gain": ("where the first system wins most", lambda query: -query.gain),
    "loss": ("where the second system wins most", lambda query: query.gain),
    "task": ("in the order of the task", lambda query: 0.0),
}
#: Characters of a document that a ranking shows at once, and on demand.
_EXCERPT, _LONG = 220, 2500
#: The same on demand in a bundle, which has a page for every query.
_LONG_IN_BUNDLE = 450
#: Missed positives of a column that are shown at once.
_MISSED = 10
#: Ranks that a sentence names.
_RANKS = 3
#: Characters of a positive in the table of ranks.
_FIRST_WORDS = 60


class Excerpt(NamedTuple):
    """The text of a document on the page of a query, with matching words marked."""

    head: Sequence[Segment]
    folded: Sequence[Segment]
    """The part of the text that a reader can unfold."""
    cut: int
    """The number of characters that are left out here; the page of the document shows them."""


@dataclass(frozen=True, eq=False)
class QueryColumn:
    """One system on the page of a query."""

    system: str
    score: float | None
    finding: QueryFinding | None
    open: Sequence[str]
    """Causes that the diagnosis could not check."""
    other_ranks: Mapping[str, int]
    """The ranks of documents under the system that this column is compared with."""
    expansion: Expansion | None
    searched: Mapping[str, float]
    """For each positive, the share of the expanded query's terms that it contains."""
    stages: Sequence[tuple[str, float | None]]
    """The stages that are systems themselves, with their scores; None without a result."""
    rerank_answers: Sequence[RerankAnswer]
    limits: TextLimits
    is_lexical: bool
    """Whether only bm25 retrieves, so that an expanded query is matched by its words alone."""


@dataclass(frozen=True, eq=False)
class QueryData:
    """The content of the page of a query; `read` makes it."""

    snapshot: Snapshot
    task: str
    query_id: str
    systems: Sequence[str]
    metric: str
    order: str
    depth: int
    stored: Mapping[str, Result]
    """All stored results on the task, by system."""
    chosen: Mapping[str, Result]
    """The results of `systems`."""
    data: Task | None
    missing: str
    """Why texts are not shown; empty if they are."""
    is_judged: bool
    scores: Sequence[float | None]
    """The scores of `systems`; None for a query that is not scored."""
    compared: Mapping[str, Result]
    """The results whose scores the page lists: see `_choose_compared`."""
    compared_scores: Mapping[str, float | None]
    """The score of every compared system on this query; None if it has no score."""
    position: int
    total: int
    previous: str | None
    next: str | None
    lists: Mapping[str, Sequence[tuple[str, float]]]
    """For each system, its ranked documents with their scores."""
    ranks: Mapping[str, Mapping[str, int]]
    """For each system, the rank of every document that it lists."""
    scene: Scene | None

    @classmethod
    def read(
        cls,
        snapshot: Snapshot,
        task: str,
        query_id: str,
        *,
        systems: Sequence[str] = (),
        metric: str = "ndcg@10",
        order: str = "difficulty",
        depth: int = TOP,
    ) -> QueryData:
        """Read the data for the page of a query; without `systems`, for the best two systems."""
        if task not in snapshot.tasks:
            raise MissingError(
                f"No result of {task} is stored.\nRun a system: r2med eval bm25 --task {task}"
            )
        stored = snapshot.of_task(task, metric)
        check_systems(tuple(systems), stored, MOST_SYSTEMS, "on this task")
        systems = systems or list(stored)[:CHOSEN]
        chosen = {system: stored[system] for system in systems}
        data, missing = snapshot.data_of(task, chosen)
        compared = _choose_compared(stored, chosen)
        chosen_scores, all_scores = (
            query_scores(list(results.values()), metric) for results in (chosen, compared)
        )
        # Difficulty and disagreement count over all these systems, unless one is chosen alone.
        shared = order == "division" or (order == "difficulty" and len(chosen) > 1)
        ordered = sorted(all_scores if shared else chosen_scores, key=ORDERS[order][1])
        judged_ids = [query.query_id for query in ordered]
        ids = [*judged_ids, *snapshot.unjudged_queries(list(chosen.values()))]
        if query_id not in ids:
            raise MissingError(f"{task} has no query {query_id!r}. {nearest(query_id, ids)}")
        index = ids.index(query_id)
        compared_scores = _scores_of(query_id, all_scores, len(compared))
        runs = {system: snapshot.library.ranked_run(result) for system, result in chosen.items()}
        return cls(
            snapshot=snapshot,
            task=task,
            query_id=query_id,
            systems=systems,
            metric=metric,
            order=order,
            depth=depth,
            stored=stored,
            chosen=chosen,
            data=data,
            missing=missing,
            is_judged=query_id in judged_ids,
            scores=_scores_of(query_id, chosen_scores, len(chosen)),
            compared=compared,
            compared_scores=dict(zip(compared, compared_scores, strict=True)),
            position=index + 1,
            total=len(ids),
            previous=ids[index - 1] if index else None,
            next=ids[index + 1] if index + 1 < len(ids) else None,
            lists={system: run.ranking(query_id) for system, run in runs.items()},
            ranks={system: run.ranks_of(query_id) for system, run in runs.items()},
            scene=snapshot.library.scene(data) if data else None,
        )

    @property
    def texts(self) -> Task | None:
        """The task if its texts are shown, else None."""
        return None if self.missing else self.data

    @property
    def judged(self) -> Mapping[str, int]:
        """The grades of the documents that are judged for the query."""
        return self.scene.judged.get(self.query_id, {}) if self.scene else {}

    @property
    def origin(self) -> Hashable:
        """The inputs of the ranked lists on the page, as the cache key of their HTML."""
        used = {str(part) for system in self.chosen for part in members_of(parse(system))}
        rerankings = (stored.record.reranking for stored in self.chosen.values())
        used |= {stored.first for stored in rerankings if stored} | self.chosen.keys()
        results = (
            (stored.folder, stored.record.files.get(RUN_FILE))
            for stored in self.snapshot.results
            if stored.task == self.task and stored.system in used
        )
        names = tuple((system, self.snapshot.names[system]) for system in self.chosen)
        data = self.data.hash if self.data else None
        return self.query_id, self.metric, self.depth, names, tuple(results), data, self.missing

    @cached_property
    def positives(self) -> list[tuple[str, list[int | None]]]:
        """Every positive with its rank under each system; the best ranked positive comes first."""
        names = [name for name, grade in self.judged.items() if grade > 0]
        rows = [(name, [ranks.get(name) for ranks in self.ranks.values()]) for name in names]
        never = 1 << 30
        return sorted(rows, key=lambda row: min(rank or never for rank in row[1]))

    @cached_property
    def columns(self) -> list[QueryColumn]:
        """One column per system, compared with the first system (the first with the second)."""
        columns = []
        for index, (system, result) in enumerate(self.chosen.items()):
            expansion = None
            searched: dict[str, float] = {}
            diagnosis = self._diagnose(system, result)
            if self.texts is not None:
                from r2med.evaluation.explain import expanded_coverage, read_generated

                expansion = read_generated(result, self.texts, self.query_id)
                if expansion is not None and self.scene is not None:
                    names = [name for name, _ in self.positives]
                    searched = expanded_coverage(expansion, self.scene, names)
            compared = self.systems[0 if index else 1] if len(self.systems) > 1 else None
            parts = map(str, members_of(parse(system)))
            columns.append(
                QueryColumn(
                    system=system,
                    score=self.scores[index],
                    finding=diagnosis.queries[0] if diagnosis else None,
                    open=diagnosis.open if diagnosis else (),
                    other_ranks=self.ranks[compared] if compared else {},
                    expansion=expansion,
                    searched=searched,
                    stages=[(part, self.compared_scores.get(part)) for part in parts],
                    rerank_answers=self._read_rerank_answers(result),
                    limits=result.record.system.stage.text_limits,
                    is_lexical=all(
                        stage.backend == "bm25"
                        for stage in result.record.stages
                        if stage.type == "retriever"
                    ),
                )
            )
        return columns

    def _diagnose(self, system: str, result: Result) -> TaskDiagnosis | None:
        """Diagnose this query; None without data or positives.

        A bundle shows every query, so it diagnoses the whole task once and reads this query from
        it.
        """
        if self.data is None or not self.positives:
            return None
        library, results = self.snapshot.library, self.snapshot.results
        if self.snapshot.public:
            diagnosis = library.diagnosis(result, self.data, results)
            findings = [entry for entry in diagnosis.queries if entry.query_id == self.query_id]
            return replace(diagnosis, queries=tuple(findings)) if findings else None
        ranking = Ranking(system, library.ranked_run(result), result)
        return diagnose_ranking(
            ranking, self.data, results=results, scene=self.scene, only=self.query_id
        )

    def _read_rerank_answers(self, result: Result) -> list[RerankAnswer]:
        """Read the reasoning and the answers of reranking models; empty if texts are not shown."""
        if self.texts is None:
            return []
        return [
            answer
            for stage in result.record.stages
            for answer in read_rerank_answers(stage.trace, self.query_id)
        ]

    @cached_property
    def documents(self) -> dict[str, dict[str, Excerpt]]:
        """For each system, return excerpts of its documents with the words of its search marked."""
        if self.scene is None or self.texts is None:
            return {}
        lexicon = self.scene.lexicon
        query = self.scene.task.query(self.query_id)
        excerpts = {}
        for column in self.columns:
            ranking = self.lists[column.system][: self.depth]
            positives = [name for name, _ in self.positives]
            if self.snapshot.public and column.finding:
                positives = [miss.document_id for miss in column.finding.missed[:_MISSED]]
            names = dict.fromkeys([name for name, _ in ranking] + positives)
            texts = {name: text for name in names if (text := lexicon.text(name)) is not None}
            expansion = column.expansion
            generated = expansion.variants[0][0].lexical if expansion else ""
            longest = _LONG_IN_BUNDLE if self.snapshot.public else _LONG
            # The whole text of a positive is one click away in a bundle.
            lengths = dict.fromkeys(texts, longest)
            if self.snapshot.public:
                lengths |= dict.fromkeys(positives, _EXCERPT)
            marked = lexicon.mark(
                [text[: lengths[name]] for name, text in texts.items()],
                query,
                generated,
                only_generated=bool(generated) and column.is_lexical,
            )
            excerpts[column.system] = {
                name: Excerpt(*_split_excerpt(segments), max(0, len(text) - lengths[name]))
                for (name, text), segments in zip(texts.items(), marked, strict=True)
            }
        return excerpts

    @cached_property
    def query_pieces(self) -> Sequence[Segment]:
        """The text of the query; words that a relevant document contains are marked."""
        if self.scene is None or self.texts is None:
            return ()
        lexicon = self.scene.lexicon
        relevant = " ".join(lexicon.text(name) or "" for name, _ in self.positives)
        return lexicon.mark([self.scene.task.query(self.query_id).strip()], relevant)[0]

    def first_words(self, name: str) -> str:
        """Return the beginning of a document's text; empty if texts are not shown."""
        text = self.scene.lexicon.text(name) if self.scene and self.texts is not None else None
        return snippet(text or "", _FIRST_WORDS)

    def unread(self, name: str, limit: int | None) -> int:
        """Return how many words of a document a model with this limit certainly did not read."""
        text = self.scene.lexicon.text(name) if self.scene and limit else None
        return max(0, len(text.split()) - (limit or 0)) if text else 0


def _choose_compared(
    stored: Mapping[str, Result], chosen: Mapping[str, Result]
) -> dict[str, Result]:
    """Choose the results to compare: of the best systems, the chosen ones, and their stages."""
    parts = {str(part) for system in chosen for part in members_of(parse(system))}
    needed = {*list(stored)[:DETAILED_ROWS], *parts, *chosen}
    return {system: result for system, result in stored.items() if system in needed}


def _scores_of(
    query_id: str, queries: Sequence[QueryScores], systems: int
) -> tuple[float | None, ...]:
    """Return the score of a query under every system; None if the query is not scored."""
    scores = (entry.scores for entry in queries if entry.query_id == query_id)
    return next(scores, (None,) * systems)


def query_page(data: QueryData, link: Link, *, scope: str | None = None) -> str:
    """Return the page of a query; its lists, which take longest, are cached.

    `scope` is the suite or task of the comparison that led here; without one it is the task.
    """
    cached_lists = data.snapshot.library.lists
    summary, lists = cached_lists.get(
        (link, data.origin), lambda: (answer(data), _lists(data, link))
    )
    return render(
        "query.html",
        link,
        page="tasks",
        title=f"Query {data.query_id}, {task_label(data.task)}",
        data=data,
        suite=next(iter(data.stored.values())).suite,
        answer=summary,
        other_data=find_other_data(data.chosen.values()),
        notices=data.snapshot.version_notices(data.chosen.values()),
        answer_notes=list(answer_notes(data.chosen.values())),
        lists=lists,
        names=data.snapshot.names,
        orders=ORDERS,
        order_names=_order_names(data),
        depths=DEPTHS,
        most=MOST_SYSTEMS,
        systems=data.systems,
        scope=scope,
    )


def _order_names(data: QueryData) -> dict[str, str]:
    """Return the title of each order of queries, with the names of the two systems."""
    first, second = (data.snapshot.names[system] for system in (*data.systems, "B")[:2])
    return {
        "difficulty": "hardest",
        "division": "most disagreement",
        "gain": f"{first} wins most",
        "loss": f"{second} wins most" if len(data.systems) > 1 else "lowest",
        "task": "task order",
    }


def _lists(data: QueryData, link: Link) -> Markup:
    """Return the HTML of the ranked lists; it depends on `data.origin` alone and can be cached."""
    query_fields = dict.fromkeys(("texts", "answers", "body_systems", "reasonings"), "")
    if data.texts is not None:
        queries = data.texts.queries
        row = queries.ids.index(data.query_id).as_py()
        query_fields = {name: getattr(queries, name)[row].as_py() or "" for name in query_fields}
    html = render(
        "lists.html",
        link,
        data=data,
        asked=query_fields,
        names=data.snapshot.names,
        causes=CAUSES,
        evidence=evidence,
        label_of=label_of,
        labels=lambda system: [
            label_of(data.judged.get(name)) for name, _ in data.lists[system][: data.depth]
        ],
        most_missed=_MISSED,
        verbs=VERBS,
        stops=STOPS,
        top=TOP,
        systems=data.systems,
    )
    return Markup(html)


def answer(data: QueryData) -> str:
    """Describe in a sentence with numbers how each system did on the query, and why."""
    if not data.is_judged:
        return (
            "This query has no judgements, so it is not scored. The lists show what each system "
            "ranks first."
        )
    sentences = []
    for column in data.columns:
        name = data.snapshot.names[column.system]
        finding = column.finding
        text = f"{name} scores {points(column.score)}"
        if finding is None:
            sentences.append(f"{text}.")
            continue
        count = len(finding.positives)
        found_count = count - len(finding.missed)
        if not finding.missed:
            all_positives = "its positive" if count == 1 else f"all {count} positives"
            unjudged = f"; {finding.holes} of these are unjudged" if finding.holes else ""
            sentences.append(f"{text} and has {all_positives} in its first {TOP}{unjudged}.")
            continue
        text += f" and has {found_count} of {plural(count, 'positive')} in its first {TOP}"
        ranks = [str(miss.rank) for miss in finding.missed if miss.rank]
        text += f"; it missed {len(finding.missed)}"
        if len(ranks) == len(finding.missed) <= _RANKS:
            text += f" (rank{'s' if len(ranks) > 1 else ''} {', '.join(ranks)})"
        elif not ranks:
            text += " (not in its list)"
        cause = f": {CAUSES[finding.cause].title}" if finding.cause else ""
        sentences.append(f"{text}{cause}.")
    return " ".join(sentences)


def _split_excerpt(segments: Sequence[Segment]) -> tuple[Sequence[Segment], Sequence[Segment]]:
    """Split segments into an excerpt and the rest, at a space after the excerpt's length."""
    length = 0
    for index, segment in enumerate(segments):
        if length + len(segment.text) >= _EXCERPT and not segment.weight:
            space = segment.text.find(" ", max(0, _EXCERPT - length))
            if space >= 0:
                head = [*segments[:index], Segment(segment.text[:space])]
                return head, [Segment(segment.text[space:]), *segments[index + 1 :]]
        length += len(segment.text)
    return segments, []
