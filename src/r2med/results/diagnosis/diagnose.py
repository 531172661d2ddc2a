"""Where a ranking fails and why, query by query: where positives stand, why some were missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.measure import measure
from r2med.results.diagnosis.causes import TOP, Case, cause_of
from r2med.results.diagnosis.findings import (
    Diagnosis,
    PositiveFinding,
    QueryFinding,
    RankedFinding,
    TaskDiagnosis,
    label_of,
)
from r2med.results.diagnosis.lexicon import Lexicon, Numbers, Piece, QueryTerms, Weights, matched
from r2med.results.lookup import Ranking, find_ranking, own_tasks, stored_results
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Tell, log
from r2med.runs import Run
from r2med.systems.registry import first_stage, kind_of
from r2med.systems.spec import parse
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task, sources_of

METRIC = "ndcg@10"
_SHARED_WORDS = 12


def diagnose(
    system: str | Path | Result,
    task: str | Path | Task | None = None,
    *,
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Tell = log,
) -> Diagnosis:
    """Say where a stored system fails on tasks, and why.

    A system is a `Result`, a run file, the folder of a stored result, or a text as in `evaluate`
    that has results stored in `results`. A `Result` knows its task; everything else needs one, or a
    suite, or a list with commas.
    """
    folder = Path(results)
    if isinstance(system, Result) and task is None:
        task = system.task
    if task is None:
        raise UsageError("diagnose needs a task or a suite, e.g. diagnose('bm25', 'demo').")
    own = own_tasks(system.root if isinstance(system, Result) else folder)
    loaded = [task] if isinstance(task, Task) else load_tasks(str(task), root=root, own=own)
    stored = stored_results(folder, tell) if folder.is_dir() else []
    found = []
    for each in loaded:
        ranking = (
            Ranking(system.name, system.ranked, system)
            if isinstance(system, Result)
            else find_ranking(str(system), stored, each, folder, tell)
        )
        found.append(diagnose_ranking(ranking, each, results=stored))
    return Diagnosis(found[0].system, tuple(found))


def diagnose_ranking(
    ranking: Ranking,
    task: Task,
    *,
    results: Sequence[Result] = (),
    below: Run | None = None,
    scene: Scene | None = None,
    only: str | None = None,
) -> TaskDiagnosis:
    """Diagnose every query that has a positive, or `only` one.

    `below` is the ranking of the first stage; without it, `results` may hold one. A `scene` of the
    task saves looking through its corpus again.
    """
    missing: list[str] = []
    if below is None:
        below, missing = _first_stage(ranking, task, results)
    scene = scene or Scene(task)
    act = _Act(scene, ranking, below)
    scores = measure(ranking.run, task.judgements, [METRIC, f"hit@{TOP}"], ties="list")
    by_query = {row["query_id"]: row for row in scores.to_arrow().to_pylist()}
    findings = [
        act.query(query, terms, row=place, scores=by_query[query])
        for place, (query, terms) in enumerate(
            zip(task.queries.ids.to_pylist(), scene.query_terms, strict=True)
        )
        if only in (None, query)
        and any(relevance > 0 for relevance in scene.judged.get(query, {}).values())
    ]
    if not findings:
        which = "no query has a positive" if only is None else f"query {only!r} has no positive"
        raise DataError(f"{task.name}: {which}, so there is nothing to diagnose.")
    return TaskDiagnosis(
        system=ranking.name,
        task=task.name,
        suite=task.suite,
        family=task.entry.family if task.entry else None,
        data=task.hash,
        metric=METRIC,
        depth=int(ranking.run.lengths.max(initial=0)),
        queries=tuple(findings),
        open=(*missing, *act.undetectable()),
    )


@dataclass(eq=False)
class Scene:
    """A task with everything looked up once that does not depend on a ranking."""

    task: Task
    lexicon: Lexicon = field(init=False)
    judged: dict[str, dict[str, int]] = field(init=False)
    evidence: dict[str, list[str]] = field(init=False)
    """By document, the queries that it is a positive of."""
    answers: Mapping[str, str | None] = field(init=False)
    systems: Mapping[str, str | None] = field(init=False)
    query_terms: list[QueryTerms] = field(init=False)
    spellings: list[Mapping[str, str]] = field(init=False)
    sources: Mapping[str, str] = field(init=False)
    _last: tuple[str, Weights] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        queries = self.task.queries
        self.lexicon = Lexicon(self.task.corpus)
        self.judged = self.task.judgements.by_query()
        self.evidence = _evidence(self.judged)
        ids = queries.ids.to_pylist()
        self.answers = dict(zip(ids, queries.answers.to_pylist(), strict=True))
        self.systems = dict(zip(ids, queries.body_systems.to_pylist(), strict=True))
        self.query_terms = self.lexicon.queries(queries.texts)
        self.spellings = self.lexicon.spellings(queries.texts.fill_null("").to_pylist())
        self.sources = sources_of(self.task.corpus.document_ids.to_pylist())

    def coverage(self, query_id: str, terms: QueryTerms) -> Weights:
        """As `Lexicon.coverage`; that of the last query is kept for the next ranking of it."""
        last = self._last
        if last is None or last[0] != query_id:
            last = self._last = (query_id, self.lexicon.coverage(terms))
        return last[1]

    def matched(self, query_id: str, texts: Sequence[str]) -> list[tuple[Piece, ...]]:
        """Texts with the words marked that they share with a query, common ones left out."""
        return self.matched_with(self.task.query(query_id), texts)

    def matched_with(self, query: str, texts: Sequence[str]) -> list[tuple[Piece, ...]]:
        """The same for any text that asks."""
        [terms] = self.lexicon.queries(pa.array([query], pa.large_string()))
        return matched(query, texts, common=self.lexicon.common(terms))


@dataclass(eq=False)
class _Act:
    """A ranking of a task, and the limits of the system that made it."""

    scene: Scene
    ranking: Ranking
    below: Run | None
    limits: Limits = field(init=False)
    reranked: int | None = field(init=False)

    def __post_init__(self) -> None:
        result = self.ranking.result
        self.limits = limits_of(result.record.system.identity) if result else Limits()
        reranking = result.record.reranking if result else None
        self.reranked = reranking.depth if reranking else None

    def undetectable(self) -> list[str]:
        """Causes that this data or result does not allow to see."""
        causes = []
        if not self.scene.sources:
            causes.append("same-source: the document ids do not name source documents.")
        if self.ranking.result is None and self.below is None:
            causes.append("cut texts, demotions: a run file does not say which system made it.")
        return causes

    def query(
        self, query: str, terms: QueryTerms, *, row: int, scores: Mapping[str, float]
    ) -> QueryFinding:
        """All that is to say of one query."""
        scene = self.scene
        text = scene.task.queries.texts[row].as_py() or ""
        coverage = scene.coverage(query, terms)
        ranked = self.ranking.run.listed(query)
        earlier = self.below.listed(query) if self.below is not None else []
        view = _View(self, query, terms, len(text.split()), coverage, ranked, earlier)
        judged = scene.judged[query]
        positives = [view.positive(name) for name, grade in judged.items() if grade > 0]
        positives.sort(key=lambda each: (each.rank is None, each.rank or 0, each.document_id))
        return QueryFinding(
            query_id=query,
            text=text,
            score=float(scores[METRIC]),
            hit=scores[f"hit@{TOP}"] > 0,
            words=len(text.split()),
            terms=len(terms.known),
            answer=scene.answers.get(query) or None,
            body_system=scene.systems.get(query) or None,
            overlap=max(each.coverage for each in positives),
            positives=tuple(positives),
            top=tuple(view.ranked(scene.spellings[row])),
        )


@dataclass(eq=False)
class _View:
    """One query's list, held against its positives."""

    act: _Act
    query: str
    terms: QueryTerms
    query_words: int
    coverage: NDArray[np.float64]
    listed: list[str]
    earlier: list[str]
    """The list of the first stage alone."""
    scene: Scene = field(init=False)
    places: Mapping[str, int] = field(init=False)
    others: list[tuple[str, int]] = field(init=False)
    """Non-positives of the top, with their rows in the corpus."""
    covered: list[tuple[float, str]] = field(init=False)
    """How much of the query each of them covers."""
    usual: float = field(init=False)
    """Their median."""

    def __post_init__(self) -> None:
        self.scene = self.act.scene
        self.places = {name: rank for rank, name in enumerate(self.listed, start=1)}
        judged, row = self.scene.judged[self.query], self.scene.lexicon.row
        self.others = [
            (name, place)
            for name in self.listed[:TOP]
            if judged.get(name, 0) <= 0 and (place := row(name)) is not None
        ]
        self.covered = [(float(self.coverage[place]), name) for name, place in self.others]
        self.usual = median([share for share, _ in self.covered]) if self.covered else 0.0

    def positive(self, name: str) -> PositiveFinding:
        """Where a positive stands and why."""
        lexicon, row = self.scene.lexicon, self.scene.lexicon.row(name)
        case = self._case(name, row)
        cause, witness = cause_of(case)
        return PositiveFinding(
            document_id=name,
            relevance=self.scene.judged[self.query][name],
            rank=case.rank,
            cause=cause,
            witness=witness,
            coverage=case.coverage,
            shared_terms=0 if row is None else len(lexicon.shared(self.terms, row)),
            as_well=case.as_well,
            top_coverage=case.top_coverage,
            subject=case.subject,
            likeness=case.likeness,
            words=case.words,
            limit=case.limit,
            first_stage_rank=case.first_stage_rank,
        )

    def ranked(self, spelling: Mapping[str, str]) -> list[RankedFinding]:
        """The top of the list, its shared words as the query spells them."""
        top = enumerate(self.listed[:TOP], start=1)
        return [self._ranked(rank, name, spelling) for rank, name in top]

    def _case(self, name: str, row: int | None) -> Case:
        lexicon, limits = self.scene.lexicon, self.act.limits
        own = 0.0 if row is None else float(self.coverage[row])
        keys = np.empty(0, np.int64) if row is None else lexicon.key_terms(row, self.terms)
        likeness, twin = self._closest_unjudged(row)
        subject, same = self._closest_subject(keys)
        limit = limits.document
        if limits.pair is not None:
            limit = max(0, limits.pair - self.query_words)
        return Case(
            rank=self.places.get(name),
            in_corpus=row is not None,
            coverage=own,
            as_well=float(np.mean(self.coverage >= own)) if len(self.coverage) else 0.0,
            top_coverage=self.usual,
            likeness=likeness,
            twin_witness=twin,
            subject=subject,
            subject_witness=same,
            source_witness=self._same_source(name),
            surface_witness=max(self.covered)[1] if self.covered else None,
            query_words=self.query_words,
            words=0 if row is None else lexicon.words(row),
            query_limit=limits.query if limits.pair is None else limits.pair,
            limit=limit,
            reranked=self.act.reranked,
            first_stage_rank=self.earlier.index(name) + 1 if name in self.earlier else None,
        )

    def _closest_unjudged(self, row: int | None) -> tuple[float, str | None]:
        judged = self.scene.judged[self.query]
        found = [
            (self.scene.lexicon.likeness(row, place), name)
            for name, place in self.others
            if row is not None and name not in judged
        ]
        return max(found) if found else (0.0, None)

    def _closest_subject(self, keys: Numbers) -> tuple[float, str | None]:
        found = [(self.scene.lexicon.share(keys, place), name) for name, place in self.others]
        return max(found) if found and len(keys) else (0.0, None)

    def _same_source(self, name: str) -> str | None:
        sources = self.scene.sources
        own = sources.get(name)
        same = (other for other, _ in self.others if own and sources.get(other) == own)
        return next(same, None)

    def _ranked(self, rank: int, name: str, spelling: Mapping[str, str]) -> RankedFinding:
        lexicon, row = self.scene.lexicon, self.scene.lexicon.row(name)
        none = np.empty(0, np.int64)
        shared = none if row is None else lexicon.shared(self.terms, row)[:_SHARED_WORDS]
        return RankedFinding(
            rank=rank,
            document_id=name,
            label=label_of(self.scene.judged[self.query].get(name)),
            coverage=0.0 if row is None else float(self.coverage[row]),
            shared=tuple(lexicon.spelled(shared, spelling)),
            answers=self._evidence_for(name),
        )

    def _evidence_for(self, name: str) -> tuple[str, ...]:
        """Answers of other queries that this document is a positive of."""
        own = self.scene.answers.get(self.query)
        other = [self.scene.answers.get(q) for q in self.scene.evidence.get(name, [])]
        return tuple(dict.fromkeys(answer for answer in other if answer and answer != own))


def _evidence(judged: Mapping[str, Mapping[str, int]]) -> dict[str, list[str]]:
    """By document, the queries that it is a positive of."""
    found: dict[str, list[str]] = {}
    for query, own in judged.items():
        for document in (name for name, grade in own.items() if grade > 0):
            found.setdefault(document, []).append(query)
    return found


def _first_stage(
    ranking: Ranking, task: Task, results: Sequence[Result]
) -> tuple[Run | None, list[str]]:
    """The run of the system without its outermost stage, or why it is not here."""
    below = _below(ranking.result) if ranking.result else None
    if below is None:
        return None, []
    same = [result for result in results if result.record.task.hash == task.hash]
    if not any(result.system == below for result in same):
        return None, [f"demoted: {below} alone has no stored result (r2med eval '{below}')."]
    return find_ranking(below, same, task, task.source).run, []


def _below(result: Result) -> str | None:
    """What the outermost stage stands upon: a reranker's record says, an expander's text does."""
    if result.record.reranking:
        return result.record.reranking.first
    spec = parse(result.system)
    below = first_stage(spec, kind_of(spec))
    return None if below is None else str(below)


@dataclass(frozen=True)
class Limits:
    """Tokens; a text with more *words* than that was certainly cut, whatever the tokenizer."""

    query: int | None = None
    document: int | None = None
    pair: int | None = None
    """Query and document together, for a reranker."""


def limits_of(identity: Mapping[str, Any]) -> Limits:
    """The limits of the last stage that read whole texts.

    A fusion reads as much as its most patient member, and an expanded query is not the query.
    """
    if "reranker" in identity:
        return Limits(pair=_number(_flat(identity["reranker"]).get("max_length")))
    if "expander" in identity:
        return Limits(document=limits_of(identity.get("first", {})).document)
    if "members" in identity:
        members = [limits_of(member) for member in identity["members"]]
        return Limits(
            _most([each.query for each in members]), _most([each.document for each in members])
        )
    retriever = _flat(identity.get("retriever", {}))
    return Limits(_side(retriever, "query"), _side(retriever, "document"))


def _flat(built: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings, and what was read besides them, as one mapping."""
    return {**built.get("settings", {}), **built}


def _side(retriever: Mapping[str, Any], side: str) -> int | None:
    encoder = retriever.get(f"{side}_encoder") or retriever.get(side)
    own = encoder if isinstance(encoder, Mapping) else {}
    lengths = (
        retriever.get(f"{side}_max_length"),
        retriever.get("max_length"),
        own.get("max_length"),
        own.get("limit"),
    )
    return next((number for value in lengths if (number := _number(value))), None)


def _number(value: object) -> int | None:
    """A limit; 0 means that the model's own is used, which the identity does not tell."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _most(limits: list[int | None]) -> int | None:
    known = [limit for limit in limits if limit is not None]
    return max(known) if known and len(known) == len(limits) else None
