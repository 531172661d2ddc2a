"""One query under a microscope: what was generated for it, where its positives stand, and why.

A stored result is read, and the generations that it was made with; no model is asked. `run` expands
and searches for this query alone, whatever is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import MissingError, R2MedError, UsageError
from r2med.expand.answers import Expansion
from r2med.expand.generations import FromFile
from r2med.expand.writing import FromModel
from r2med.results.diagnosis.diagnose import diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding, TaskDiagnosis
from r2med.results.lookup import Ranking, find_ranking, leaves, written_out
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher
from r2med.retrieve.conditions import Conditions
from r2med.runs import Run
from r2med.runs.run import ordered
from r2med.systems.build import System
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval, Stage, bind
from r2med.systems.work import Ledger, Work, run_member
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


Changes = Mapping[str, Sequence[Change]]
"""By document, term by term."""


@dataclass(frozen=True, eq=False)
class Explained(Tabular):
    """All there is to say of one query under one system."""

    task: Task
    diagnosis: TaskDiagnosis
    """Of this query alone."""
    expansion: Expansion | None = None
    """What was generated for it; None where nothing was, or where it is not kept."""
    prompt: str | None = None
    """What the model was asked first; None where nobody was asked, or in other words than now."""
    changes: Changes = field(default_factory=dict)
    """Of the positives, the largest difference first, where scores are sums of terms."""
    members: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """Of a fusion: by member, where it is stored, the rank of each positive, None if not listed."""

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
        expansion = None
        if self.expansion is not None:
            [generated] = self.expansion.queries
            expansion = {
                "source": self.expansion.source,
                "prompt": self.prompt,
                "samples": [*map(asdict, generated.samples)],
                "traces": [*map(asdict, generated.traces)],
            }
        return {
            "system": self.diagnosis.system,
            "task": self.diagnosis.task,
            **self.query.to_json(),
            "open": list(self.diagnosis.open),
            "expansion": expansion,
            "members": self.members,
            "changes": {name: [*map(asdict, own)] for name, own in self.changes.items()},
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
    alone, terms = _alone(task, query_id), conditions or Conditions()
    if run:
        return _run(System.from_spec(written_out(system, folder), terms), task, alone)
    try:
        ranking = find_ranking(system, results, task, folder, terms.tell)
    except MissingError as problem:
        raise MissingError(f"{problem}\nOr run this query alone with --run.") from None
    diagnosis = diagnose_ranking(ranking, task, results=results, only=query_id)
    if ranking.result is None:
        return Explained(task, diagnosis)
    part, stage, expansion = _kept(ranking.result, alone)
    members: dict[str, dict[str, int | None]] = {}
    for member in part.members if isinstance(part, Fused) else ():
        with suppress(R2MedError):
            own = find_ranking(member.text, results, task, folder, lambda message: None)
            ranks = own.run.ranks_of(query_id)
            names = (each.document_id for each in diagnosis.queries[0].positives)
            members[member.text] = {name: ranks.get(name) for name in names}
    if stage is None:
        return Explained(task, diagnosis, members=members)
    if expansion is None:
        gone = "generated: the texts are no longer kept; --run asks the model."
        return Explained(task, replace(diagnosis, open=(*diagnosis.open, gone)), members=members)
    prompt = None
    if ranking.result.record.facts.get(stage.name, {}).get("generations_from") == "live":
        live = replace(stage.expander, conditions=terms).live(alone)
        recorded = {value for _, value in leaves(ranking.result.record.system.identity)}
        prompt = live.openings[0] if live.prompt.hash in recorded else None
    changes = _changes(part, task, alone, expansion, _positives(diagnosis))
    return Explained(task, diagnosis, expansion, prompt, changes, members)


def generated(result: Result, task: Task, query_id: str) -> Expansion | None:
    """What was generated for a query of a stored result; None if it is not kept.

    No model is asked.
    """
    return _kept(result, _alone(task, query_id))[2]


Preparing = Callable[[Bm25Retriever, Task], Bm25Searcher]
"""How a corpus is made ready for searching."""


def term_changes(
    result: Result,
    task: Task,
    query_id: str,
    document_ids: Iterable[str],
    prepare: Preparing = Bm25Retriever.prepare,
) -> tuple[str, Changes]:
    """The part of a system below its rerankers, and what each term gave to its scores.

    Empty where scores are not sums of terms. Before and after are the same unless the system
    expands its queries. `prepare` may keep what it prepared for the next query.
    """
    alone = _alone(task, query_id)
    part, _, expansion = _kept(result, alone)
    changes = _changes(part, task, alone, expansion, document_ids, prepare)
    return part.text if part else "", changes


def _run(system: System, task: Task, alone: Task) -> Explained:
    """Expand one query, search with and without, and diagnose what comes out."""
    stage = bind(system.stage, alone, keep=False)
    if not isinstance(stage, Expanding):
        raise UsageError(
            "--run explains an expander and what it searches with, as in 'hyde:smollm2 | bm25'; "
            f"got {str(system)!r}. Any other system is explained from its stored result."
        )
    try:
        bound = stage.bound(alone)
        expansion = bound.expand()
        prompt = bound.openings[0] if isinstance(bound, FromModel) else None
    finally:
        system.conditions.close()
    [query_id] = alone.queries.ids.to_pylist()
    work = Work(alone, Ledger(), run_member, system.conditions)
    deeper = replace(cast("Retrieval | Fused", stage.first), depth=DEPTH)

    def in_order(run: Run) -> Run:
        """As measured to the depth of a result, ties included; below, as the search lists them."""
        measured = ordered(run.truncated(stage.depth), stage.ties(alone)).ranking(query_id)
        return Run.from_lists({query_id: measured + run.ranking(query_id)[stage.depth :]})

    after = in_order(replace(stage, first=deeper).search(expansion, work))
    before = in_order(deeper.run(work))
    diagnosis = diagnose_ranking(Ranking(str(system), after), task, below=before, only=query_id)
    changes = _changes(system.stage, task, alone, expansion, _positives(diagnosis))
    return Explained(task, diagnosis, expansion, prompt, changes)


def _alone(task: Task, query_id: str) -> Task:
    """The task with one of its queries."""
    return replace(task, queries=task.queries.filter(pc.equal(task.queries.ids, query_id)))


def _positives(diagnosis: TaskDiagnosis) -> list[str]:
    return [each.document_id for each in diagnosis.queries[0].positives if each.in_corpus]


def _kept(result: Result, alone: Task) -> tuple[Stage | None, Expanding | None, Expansion | None]:
    """A stored system below its rerankers, what expands queries in it, and with which generations.

    These are read from where the result says that they are kept.
    """
    try:
        part = System.from_spec(result.system).stage
    except R2MedError:  # a model or file of the user's that is not here
        return None, None, None
    while isinstance(part, Reranking):
        part = part.first
    stage = _expanding(part)
    facts = result.record.facts.get(stage.name, {}) if stage else {}
    places = [facts.get("generations_kept"), facts.get("generations_from")]
    path = next((Path(str(place)) for place in places if place and place != "live"), None)
    if stage is None or path is None or not path.is_file():
        return part, stage, None
    return part, stage, FromFile(alone, stage.expander.method, path, by_default=False).expand()


def _expanding(part: Stage) -> Expanding | None:
    """The stage that expands queries, or the first member of a fusion that does."""
    if isinstance(part, Fused):
        return next(filter(None, map(_expanding, part.members)), None)
    return part if isinstance(part, Expanding) else None


def _changes(
    stage: Stage | None,
    task: Task,
    alone: Task,
    expansion: Expansion | None,
    document_ids: Iterable[str],
    prepare: Preparing = Bm25Retriever.prepare,
) -> Changes:
    """The largest difference first; empty where scores are not sums of terms."""
    text = searched = alone.queries.texts[0].as_py()
    if isinstance(stage, Expanding) and expansion and len(expansion.variants) == 1:
        stage, [form] = stage.first, expansion.variants[0]
        searched = form.lexical
    if not isinstance(stage, Retrieval) or not isinstance(stage.retriever, Bm25Retriever):
        return {}
    searcher = prepare(stage.retriever, task)
    by_document = {}
    for document in document_ids:
        before, after = (searcher.contributions(each, document) for each in (text, searched))
        changes = [Change(t, before.get(t, 0.0), after.get(t, 0.0)) for t in before | after]
        by_document[document] = sorted(changes, key=lambda each: (-abs(each.difference), each.term))
    return by_document
