"""One query under a microscope: what was generated for it, where its positives stand, and why.

A stored result is read, and the generations that it was made with; no model is asked. `run` expands
and searches for this query alone, whatever is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from r2med.errors import MissingError, R2MedError, UsageError, nearest
from r2med.expand.combining import Expanded, Expansion
from r2med.expand.generations import FromFile
from r2med.expand.writing import FromModel
from r2med.results.diagnosis.diagnose import diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding, TaskDiagnosis
from r2med.results.lookup import Ranking, find_ranking
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.bm25.retriever import Bm25Retriever
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.interface import (
    QueryForm,
    Retriever,
    Searcher,
    TermSearcher,
    search_forms,
)
from r2med.runs import Run
from r2med.runs.ties import ordered
from r2med.systems.build import System
from r2med.systems.stages import Expanding, Reranking, Retrieval
from r2med.systems.work import Stage
from r2med.tabular import Tabular
from r2med.tasks.task import Queries, Task

#: How deep documents are looked for when a query is run; below, a document counts as not found.
DEPTH = 1000


@dataclass(frozen=True)
class Change:
    """A term's share of a document's score, without the expansion and with it."""

    term: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """What the expansion added, or took."""
        return self.after - self.before


@dataclass(frozen=True, eq=False)
class Explained(Tabular):
    """All there is to say of one query under one system."""

    task: Task
    diagnosis: TaskDiagnosis
    """Of this query alone."""
    expanded: Expanded | None = None
    """What was generated for it; None where nothing was, or where it is not kept."""
    source: str = ""
    """Where the generation comes from."""
    changes: Mapping[str, tuple[Change, ...]] = field(default_factory=dict)
    """By positive, term by term, the largest difference first, where scores are sums of terms."""

    drawn_by = "r2med.report.diagnosis"

    @property
    def query(self) -> QueryFinding:
        """The finding."""
        return self.diagnosis.queries[0]

    def to_arrow(self) -> pa.Table:
        """One row per positive of the query."""
        return Diagnosis(self.diagnosis.system, (self.diagnosis,)).to_arrow()

    def to_json(self) -> dict[str, Any]:
        """Everything on the page."""
        return {
            "system": self.diagnosis.system,
            "task": self.diagnosis.task,
            **self.query.to_json(),
            "open": list(self.diagnosis.open),
            "expansion": self.expanded
            and {
                "source": self.source,
                "samples": [asdict(sample) for sample in self.expanded.samples],
                "traces": [asdict(trace) for trace in self.expanded.traces],
            },
            "changes": {
                name: [asdict(change) for change in changes]
                for name, changes in self.changes.items()
            },
        }


def explain(
    system: str,
    task: Task,
    query_id: str,
    *,
    results: Sequence[Result] = (),
    folder: Path = DEFAULT_FOLDER,
    conditions: Conditions | None = None,
    run: bool = False,
) -> Explained:
    """Explain one query from stored results, or by running it."""
    alone = _alone(task, query_id)
    terms = conditions or Conditions()
    if run:
        return _run(System.from_spec(system, terms), task, alone)
    try:
        ranking = find_ranking(system, results, task, folder, terms.tell)
    except MissingError as problem:
        raise MissingError(f"{problem}\nOr run this query alone with --run.") from None
    diagnosis = diagnose_ranking(ranking, task, results=results, only=query_id)
    stage = _expanding(ranking.result)
    expansion = _kept(ranking.result, stage, alone) if ranking.result and stage else None
    if stage is None or expansion is None:
        gone = "generated: the texts are no longer kept; --run asks the model."
        note = (gone,) if stage else ()
        return Explained(task, replace(diagnosis, open=(*diagnosis.open, *note)))
    explained = _explained(task, diagnosis, expansion)
    retrieval = stage.first.stage
    if not isinstance(retrieval, Retrieval) or not isinstance(retrieval.retriever, Bm25Retriever):
        return explained
    searcher = retrieval.retriever.prepare(task)
    return replace(explained, changes=_changes(searcher, alone, expansion, diagnosis))


def generated(result: Result, task: Task, query_id: str) -> tuple[Expanded | None, str]:
    """What was generated for a query of a stored result, and where that is kept; None if it is not.

    No model is asked.
    """
    stage = _expanding(result)
    expansion = _kept(result, stage, _alone(task, query_id)) if stage else None
    if expansion is None:
        return None, ""
    return expansion.queries[0], str(expansion.work.get("generations_from", ""))


def term_changes(
    result: Result,
    task: Task,
    query_id: str,
    document_id: str,
    *,
    prepare: Callable[[Retriever, Task], Searcher] = lambda retriever, task: retriever.prepare(
        task
    ),
) -> tuple[Change, ...]:
    """What each term gave to a document's score, largest first, where scores are sums of terms.

    Before and after are the same unless the system expands its queries. `prepare` may keep what it
    makes ready.
    """
    try:
        stage: Stage = System.from_spec(result.system).stage
    except R2MedError:  # a model or file of the user's that is not here
        return ()
    while isinstance(stage, Reranking):
        stage = stage.first.stage
    alone, expansion = _alone(task, query_id), None
    if isinstance(stage, Expanding):
        expansion = _kept(result, stage, alone)
        if expansion is None:
            return ()
        stage = stage.first.stage
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, Bm25Retriever):
        return ()
    searcher = prepare(stage.retriever, task)
    if not isinstance(searcher, TermSearcher):
        return ()
    if expansion is not None:
        changes = _terms(searcher, alone, expansion.variants[0][0], document_id)
    else:
        given = searcher.contributions(alone.queries.texts[0].as_py(), document_id)
        changes = tuple(Change(term, value, value) for term, value in given.items())
    return tuple(sorted(changes, key=lambda change: (-abs(change.after), change.term)))


def _run(system: System, task: Task, alone: Task) -> Explained:
    """Expand one query, search with and without, and diagnose what comes out."""
    stage = system.stage
    if not isinstance(stage, Expanding) or not isinstance(stage.first.stage, Retrieval):
        raise UsageError(
            "--run explains an expander and one retriever, as in 'hyde:smollm2 | bm25'; got "
            f"{str(system)!r}."
        )
    try:
        bound = stage.bound(alone)
        if isinstance(bound, FromModel):
            bound = replace(bound, keep=False)
        expansion = bound.expand()
    finally:
        system.conditions.close()
    retrieval = stage.first.stage
    searcher = retrieval.retriever.prepare(task)
    depth = min(len(task.corpus.document_ids), DEPTH)
    [form] = expansion.variants[0]
    before = _in_order(searcher.search(alone.queries, depth=depth), retrieval, alone)
    after = _in_order(search_forms(searcher, alone.queries, [form], depth=depth), retrieval, alone)
    [query_id] = alone.queries.ids.to_pylist()
    diagnosis = diagnose_ranking(Ranking(str(system), after), task, below=before, only=query_id)
    changes = _changes(searcher, alone, expansion, diagnosis)
    return replace(_explained(task, diagnosis, expansion), changes=changes)


def _explained(task: Task, diagnosis: TaskDiagnosis, expansion: Expansion) -> Explained:
    source = str(expansion.work.get("generations_from", ""))
    return Explained(task, diagnosis, expansion.queries[0], source)


def _alone(task: Task, query_id: str) -> Task:
    """The task with one of its queries."""
    ids = task.queries.ids.to_pylist()
    if query_id not in ids:
        raise UsageError(f"{task.name} has no query {query_id!r}. {nearest(query_id, ids)}")
    row = pa.array([ids.index(query_id)])
    queries = task.queries
    return replace(
        task,
        queries=Queries(
            queries.ids.take(row),
            queries.texts.take(row),
            queries.answers.take(row),
            queries.body_systems.take(row),
            queries.reasonings.take(row),
        ),
    )


def _expanding(result: Result | None) -> Expanding | None:
    """The stage of a stored system that expands queries, below rerankers."""
    try:
        stage: Stage | None = System.from_spec(result.system).stage if result else None
    except R2MedError:  # a model or file of the user's that is not here
        return None
    while isinstance(stage, Reranking):
        stage = stage.first.stage
    return stage if isinstance(stage, Expanding) else None


def _kept(result: Result, stage: Expanding, alone: Task) -> Expansion | None:
    """The generations that a result was made with, read from where it says they are kept."""
    facts = result.record.facts.get(stage.name, {})
    places = [facts.get("generations_kept"), facts.get("generations_from")]
    path = next((Path(str(place)) for place in places if place and place != "live"), None)
    if path is None or not path.is_file():
        return None
    return FromFile(alone, stage.expander.method, path, by_default=False).expand()


def _in_order(run: Run, stage: Retrieval, alone: Task) -> Run:
    """The run as a result of this retriever would be ranked.

    To the depth of its run that is the order in which it is measured, ties included; a run ends
    there, and the documents below follow as the search lists them.
    """
    [query] = alone.queries.ids.to_pylist()
    measured = ordered(run.truncated(stage.depth), stage.ties(alone)).ranking(query)
    return Run.from_lists({query: measured + run.ranking(query)[stage.depth :]})


def _changes(
    searcher: Searcher, alone: Task, expansion: Expansion, diagnosis: TaskDiagnosis
) -> dict[str, tuple[Change, ...]]:
    if not isinstance(searcher, TermSearcher):
        return {}
    [form] = expansion.variants[0]
    known = set(alone.corpus.document_ids.to_pylist())
    return {
        positive.document_id: _terms(searcher, alone, form, positive.document_id)
        for positive in diagnosis.queries[0].positives
        if positive.document_id in known
    }


def _terms(
    searcher: TermSearcher, alone: Task, form: QueryForm, document: str
) -> tuple[Change, ...]:
    before = searcher.contributions(alone.queries.texts[0].as_py(), document)
    after = searcher.contributions(form.lexical, document)
    changes = [Change(t, before.get(t, 0.0), after.get(t, 0.0)) for t in before.keys() | after]
    return tuple(sorted(changes, key=lambda change: (-abs(change.difference), change.term)))
