"""One query under a microscope: what was generated for it, where its positives stand, and why.

A stored result is read, and the generations that it was made with; no model is asked. `run` expands
and searches for this query alone, whatever is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import MissingError, R2MedError, UsageError, nearest
from r2med.expand.generations import FromFile
from r2med.expand.method import Expanded, Expansion
from r2med.expand.writing import FromModel
from r2med.results.diagnosis.diagnose import diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding, TaskDiagnosis
from r2med.results.lookup import Ranking, find_ranking, leaves, written_out
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.bm25.retriever import Bm25Retriever
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.interface import (
    QueryForm,
    Searcher,
    TermSearcher,
    search_forms,
)
from r2med.runs import Run
from r2med.runs.run import ordered
from r2med.systems.build import System
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval
from r2med.systems.work import Stage
from r2med.tabular import Tabular
from r2med.tasks.task import Task

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
    prompt: str | None = None
    """What the model was asked first; None where nobody was asked, or in other words than now."""
    members: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Of a fusion: by member the rank of each document that it lists, where it is stored."""

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
                "prompt": self.prompt,
                "samples": [asdict(sample) for sample in self.expanded.samples],
                "traces": [asdict(trace) for trace in self.expanded.traces],
            },
            "members": {
                name: {
                    each.document_id: ranks.get(each.document_id) for each in self.query.positives
                }
                for name, ranks in self.members.items()
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
        return _run(System.from_spec(written_out(system, folder), terms), task, alone)
    try:
        ranking = find_ranking(system, results, task, folder, terms.tell)
    except MissingError as problem:
        raise MissingError(f"{problem}\nOr run this query alone with --run.") from None
    diagnosis = diagnose_ranking(ranking, task, results=results, only=query_id)
    whole = _stage(ranking.result)
    stage = _expanding(whole)
    members = _members(whole, query_id, task, results, folder)
    expansion = _kept(ranking.result, stage, alone) if ranking.result and stage else None
    if ranking.result is None or stage is None or expansion is None:
        gone = "generated: the texts are no longer kept; --run asks the model."
        note = (gone,) if stage else ()
        open_to = replace(diagnosis, open=(*diagnosis.open, *note))
        return Explained(task, open_to, members=members)
    explained = replace(
        _explained(task, diagnosis, expansion),
        members=members,
        prompt=_prompt(ranking.result, stage, alone, terms),
    )
    retriever = getattr(stage.first.stage, "retriever", None)
    if members or not isinstance(retriever, Bm25Retriever):
        return explained
    return replace(
        explained, changes=_changes(retriever.prepare(task), alone, expansion, diagnosis)
    )


def generated(result: Result, task: Task, query_id: str) -> tuple[Expanded | None, str]:
    """What was generated for a query of a stored result, and where that is kept; None if it is not.

    No model is asked.
    """
    stage = _expanding(_stage(result))
    expansion = _kept(result, stage, _alone(task, query_id)) if stage else None
    if expansion is None:
        return None, ""
    return expansion.queries[0], str(expansion.work.get("generations_from", ""))


Preparing = Callable[[Bm25Retriever, Task], TermSearcher]
"""How a corpus is made ready for searching."""


def term_changes(
    result: Result,
    task: Task,
    query_id: str,
    document_ids: Iterable[str],
    prepare: Preparing = Bm25Retriever.prepare,
) -> dict[str, tuple[Change, ...]]:
    """What each term gave to the score of each document, largest first; empty where scores are not
    sums of terms.

    Before and after are the same unless the system expands its queries. `prepare` may keep what it
    prepared for the next query.
    """
    stage, expansion = _stage(result), None
    alone = _alone(task, query_id)
    if isinstance(stage, Expanding):
        expansion = _kept(result, stage, alone)
        if expansion is None:
            return {}
        stage = stage.first.stage
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, Bm25Retriever):
        return {}
    form = expansion.variants[0][0] if expansion else None
    searcher = prepare(stage.retriever, task)
    changes = {each: _terms(searcher, alone, form, each) for each in document_ids}
    return {
        each: tuple(sorted(own, key=lambda change: (-abs(change.after), change.term)))
        for each, own in changes.items()
    }


def _run(system: System, task: Task, alone: Task) -> Explained:
    """Expand one query, search with and without, and diagnose what comes out."""
    stage = system.stage
    if not isinstance(stage, Expanding) or not isinstance(stage.first.stage, Retrieval):
        raise UsageError(
            "--run explains an expander and one retriever, as in 'hyde:smollm2 | bm25'; got "
            f"{str(system)!r}. Any other system is explained from its stored result."
        )
    try:
        bound = stage.bound(alone)
        if isinstance(bound, FromModel):
            bound = replace(bound, keep=False)
        expansion = bound.expand()
        prompt = bound.openings[0] if isinstance(bound, FromModel) else None
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
    return replace(_explained(task, diagnosis, expansion), changes=changes, prompt=prompt)


def _explained(task: Task, diagnosis: TaskDiagnosis, expansion: Expansion) -> Explained:
    source = str(expansion.work.get("generations_from", ""))
    return Explained(task, diagnosis, expansion.queries[0], source)


def _alone(task: Task, query_id: str) -> Task:
    """The task with one of its queries."""
    chosen = pc.equal(task.queries.ids, query_id)
    if not chosen.true_count:
        known = nearest(query_id, task.queries.ids.to_pylist())
        raise UsageError(f"{task.name} has no query {query_id!r}. {known}")
    return replace(task, queries=task.queries.filter(chosen))


def _stage(result: Result | None) -> Stage | None:
    """The stages of a stored system, below rerankers."""
    try:
        stage: Stage | None = System.from_spec(result.system).stage if result else None
    except R2MedError:  # a model or file of the user's that is not here
        return None
    while isinstance(stage, Reranking):
        stage = stage.first.stage
    return stage


def _expanding(stage: Stage | None) -> Expanding | None:
    """The stage that expands queries, or the first member of a fusion that does."""
    if isinstance(stage, Fused):
        found = (_expanding(member.stage) for member in stage.members)
        return next((each for each in found if each is not None), None)
    return stage if isinstance(stage, Expanding) else None


def _members(
    stage: Stage | None, query_id: str, task: Task, results: Sequence[Result], folder: Path
) -> dict[str, dict[str, int]]:
    """The ranks of a query's documents in each member of a fusion that has a stored result."""
    ranks: dict[str, dict[str, int]] = {}
    for member in stage.members if isinstance(stage, Fused) else ():
        with suppress(R2MedError):
            own = find_ranking(member.text, results, task, folder, lambda message: None)
            listed = enumerate(own.run.listed(query_id), start=1)
            ranks[member.text] = {document: rank for rank, document in listed}
    return ranks


def _prompt(result: Result, stage: Expanding, alone: Task, conditions: Conditions) -> str | None:
    """What the model was asked about a query, where the prompt's words are still the same."""
    if result.record.facts.get(stage.name, {}).get("generations_from") != "live":
        return None
    live = replace(stage.expander, conditions=conditions).live(alone)
    recorded = {value for _, value in leaves(result.record.system.identity)}
    return live.openings[0] if live.prompt.hash in recorded else None


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
    searcher: TermSearcher, alone: Task, form: QueryForm | None, document: str
) -> tuple[Change, ...]:
    before = searcher.contributions(alone.queries.texts[0].as_py(), document)
    after = searcher.contributions(form.lexical, document) if form else before
    changes = [Change(t, before.get(t, 0.0), after.get(t, 0.0)) for t in before.keys() | after]
    return tuple(sorted(changes, key=lambda change: (-abs(change.difference), change.term)))
