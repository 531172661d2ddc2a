"""Explain one query: the generated texts, the ranks of its positives, and the reasons.

By default a stored result and its stored generations are read, and no model is called. With `run`,
this query alone is expanded and searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import MissingError, R2MedError, UsageError
from r2med.execution.resources import Resources
from r2med.expand.answers import ExpandedQuery, Expansion, Rule, extract_answer
from r2med.expand.expander import LiveGenerations
from r2med.expand.generations import check_fit, read_generations, read_traces
from r2med.paths import home_folder
from r2med.remote.registry import Stripping
from r2med.rerank.traces import RerankAnswer, read_rerank_answers
from r2med.results.diagnosis.diagnose import Scene, diagnose_ranking
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding, TaskDiagnosis
from r2med.results.identities import flatten
from r2med.results.record import Result
from r2med.results.select import Ranking, ResultSet
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher
from r2med.runs import Run
from r2med.runs.run import sort_lists
from r2med.schema import read_values
from r2med.settings import parse_settings
from r2med.systems.build import System
from r2med.systems.output import StageContext, run_member
from r2med.systems.registry import is_plain, parts_of
from r2med.systems.spec import Spec, parse
from r2med.systems.stages import Expanding, Fused, Retrieval, bind
from r2med.tables import Tabular
from r2med.tasks.fetch.provenance import sha256_of
from r2med.tasks.task import Task

#: Depth of the lists when a query is run; a document below counts as not found.
DEPTH = 1000


@dataclass(frozen=True)
class Change:
    """The contribution of a term to a document's score, without and with the expansion."""

    term: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """The contribution with the expansion minus the contribution without it."""
        return self.after - self.before


Changes = Mapping[str, Sequence[Change]]
"""The changes of all terms of a document, by document id."""


@dataclass(frozen=True, eq=False)
class Explained(Tabular):
    """The explanation of one query under one system."""

    task: Task
    diagnosis: TaskDiagnosis
    """The diagnosis of this query."""
    expansion: Expansion | None = None
    """The generated texts; None if the system has no expander, or they are not stored."""
    prompt: str | None = None
    """The first prompt; None if no model was called, or if the prompt has changed since then."""
    changes: Changes = field(default_factory=dict)
    """Changes of each positive's score by term, largest first; empty if scores are not sums."""
    members: Mapping[str, Mapping[str, int | None]] = field(default_factory=dict)
    """For a fusion, the rank of each positive in each stored member; None if it is not listed."""
    searched: Mapping[str, float] = field(default_factory=dict)
    """For each document, the share of the expanded query's terms in it; empty if not expanded."""
    rerank_answers: Sequence[RerankAnswer] = ()
    """The stored thoughts and answers of reranking models about the query."""

    is_drawn = True

    @property
    def query(self) -> QueryFinding:
        """The finding of this query."""
        return self.diagnosis.queries[0]

    def to_arrow(self) -> pa.Table:
        """One row per positive of the query."""
        return Diagnosis(self.diagnosis.system, (self.diagnosis,)).to_arrow()

    def to_json(self) -> dict[str, Any]:
        """Return the explanation as JSON values."""
        expansion = None
        if self.expansion is not None:
            [generated] = self.expansion.queries
            expansion = {
                "source": self.expansion.source,
                "prompt": self.prompt,
                "samples": [asdict(sample) for sample in generated.samples],
                "traces": [asdict(trace) for trace in generated.traces],
            }
        return {
            "system": self.diagnosis.system,
            "task": self.diagnosis.task,
            **self.query.to_json(),
            "open": list(self.diagnosis.open),
            "expansion": expansion,
            "searched": dict(self.searched),
            "members": self.members,
            "rerank_answers": [asdict(answer) for answer in self.rerank_answers],
            "changes": {
                document_id: [asdict(change) for change in changes]
                for document_id, changes in self.changes.items()
            },
        }


def explain(
    system: str,
    task: Task,
    query_id: str,
    *,
    results: str | Path | Sequence[Result] = DEFAULT_FOLDER,
    resources: Resources | None = None,
    run: bool = False,
) -> Explained:
    """Explain one query from stored results, or by running it.

    Args:
        system: The name of a system: a spec, label or key of a stored result, or a run file.
        task: The task of the query.
        query_id: The query.
        results: The results folder, or results that were read.
        resources: Callbacks, and options for running.
        run: Whether to expand and search for this query now, whatever is stored.

    """
    one_query, resources = _select_query(task, query_id), resources or Resources()
    result_set = ResultSet.open(results, resources.warn)
    if run:
        spec = result_set.find_spec(system)
        return _run(System.from_spec(spec, resources), task, one_query)
    try:
        ranking = result_set.find_ranking(system, task, resources.warn)
    except MissingError as problem:
        raise MissingError(f"{problem}\nOr run this one query with --run.") from None
    scene = Scene(task)
    diagnosis = diagnose_ranking(
        ranking, task, results=result_set.results, scene=scene, only=query_id
    )
    if ranking.result is None:
        return Explained(task, diagnosis)
    stored = StoredPipeline.of(ranking.result)
    members: dict[str, dict[str, int | None]] = {}
    for member in stored.members:
        with suppress(R2MedError):
            member_ranking = result_set.find_ranking(member, task, lambda message: None)
            ranks = member_ranking.run.ranks_of(query_id)
            positives = (positive.document_id for positive in diagnosis.queries[0].positives)
            members[member] = {document_id: ranks.get(document_id) for document_id in positives}
    answers = [
        answer
        for stage in ranking.result.record.stages
        for answer in read_rerank_answers(stage.trace, query_id)
    ]
    if stored.expander is None:
        return Explained(task, diagnosis, members=members, rerank_answers=answers)
    expansion = stored.expansion(one_query)
    if expansion is None:
        notice = "generated: the texts are not stored any more; --run calls the model."
        diagnosis = replace(diagnosis, open=(*diagnosis.open, notice))
        return Explained(task, diagnosis, members=members, rerank_answers=answers)
    prompt = _recorded_prompt(ranking.result, one_query, resources)
    changes = _changes(stored.bm25, task, one_query, expansion, _positives(diagnosis))
    return Explained(
        task,
        diagnosis,
        expansion,
        prompt,
        changes,
        members,
        expanded_coverage(expansion, scene, _mentioned_documents(diagnosis)),
        answers,
    )


def expanded_coverage(
    expansion: Expansion, scene: Scene, document_ids: Iterable[str]
) -> dict[str, float]:
    """Return for each document the share of the expanded query's terms in it.

    Rare terms weigh more. The expanded query is the text that BM25 searches for: the query and the
    generated texts, or the generated texts alone.
    """
    texts = [form.lexical for variant in expansion.variants for form in variant]
    [terms] = scene.lexicon.queries(pa.array([" ".join(texts)], pa.large_string()))
    coverage = scene.lexicon.coverage(terms)
    rows = {document_id: scene.lexicon.row(document_id) for document_id in document_ids}
    return {name: float(coverage[row]) for name, row in rows.items() if row is not None}


def _mentioned_documents(diagnosis: TaskDiagnosis) -> list[str]:
    """Return the positives of the diagnosed query and the documents at the top of its ranking."""
    [query] = diagnosis.queries
    return [*_positives(diagnosis), *(ranked.document_id for ranked in query.top)]


def read_generated(result: Result, task: Task, query_id: str) -> Expansion | None:
    """Return the stored generations for a query of a result; None if there are none.

    No model is called.
    """
    return StoredPipeline.of(result).expansion(_select_query(task, query_id))


Preparing = Callable[[Bm25Retriever, Task], Bm25Searcher]
"""A function that returns the searcher of a BM25 retriever for the corpus of a task."""


def term_changes(
    result: Result,
    task: Task,
    query_id: str,
    document_ids: Iterable[str],
    prepare: Preparing = Bm25Retriever.prepare,
) -> tuple[str, Changes]:
    """Return a system's spec without rerankers, and each term's contribution to its scores.

    The changes are empty if scores are not sums of terms. `before` and `after` differ only if the
    system expands its queries. `prepare` may return a cached searcher.
    """
    one_query, stored = _select_query(task, query_id), StoredPipeline.of(result)
    expansion = stored.expansion(one_query)
    if stored.expander is not None and expansion is None:
        return stored.spec, {}
    return stored.spec, _changes(stored.bm25, task, one_query, expansion, document_ids, prepare)


@dataclass(frozen=True, eq=False)
class StoredPipeline:
    """The recorded stages of a result that come before its rerankers.

    Only recorded settings are read. Nothing is built from the spec of a stored result, so no code
    that a stored file names is imported.
    """

    result: Result
    spec: str
    """The spec of the system without its rerankers."""
    members: tuple[str, ...]
    """The specs of a fusion's members; empty if it is not a fusion."""
    expander: Mapping[str, Any] | None
    """The recorded expander of the pipeline, or of the first member of a fusion that has one."""
    bm25: Bm25Retriever | None
    """The BM25 retriever, alone or behind an expander; None if another retriever searches."""

    @classmethod
    def of(cls, result: Result) -> StoredPipeline:
        """Read the pipeline of a stored result; unknown or malformed parts are left out."""
        identity: Any = result.record.system.identity
        spec = result.system
        while isinstance(identity, Mapping) and "reranker" in identity:
            identity = identity.get("first")
            if spec == result.system and result.record.reranking:
                spec = result.record.reranking.first
        pipeline = identity if isinstance(identity, Mapping) else {}
        members: tuple[str, ...] = ()
        if "fusion" in pipeline:
            with suppress(UsageError):
                specs = [
                    member if isinstance(member, Spec) else Spec((member,))
                    for member in parse(spec).fused
                ]
                members = tuple(map(str, specs))
        search = pipeline.get("first") if "expander" in pipeline else pipeline
        return cls(result, spec, members, _find_expander(pipeline), _recorded_bm25(search))

    def expansion(self, one_query: Task) -> Expansion | None:
        """Read the stored generations for the queries of a task; None if they cannot be read."""
        path = self._generations_path(one_query)
        if self.expander is None or path is None:
            return None
        with suppress(R2MedError, OSError, KeyError, TypeError, ValueError):
            settings, (of_model, of_method) = self.expander["settings"], self.expander["strip"]
            rule = read_values(Rule, self.expander, path)
            strippings = get_args(Stripping)
            if of_model not in strippings or of_method not in strippings:
                return None
            rows, traces = read_generations(path), read_traces(path)
            check_fit(rows, one_query, path)
            queries = []
            for query_id, query in one_query.queries.items():
                samples = tuple(
                    replace(
                        sample,
                        answer=extract_answer(extract_answer(sample.raw, of_model), of_method),
                    )
                    for sample in rows[query_id].samples[: settings["n"]]
                )
                queries.append(ExpandedQuery(query_id, query, samples, traces.get(query_id, ())))
            fuse = settings["combine"] == "fuse" and settings["n"] > 1
            return Expansion(tuple(queries), rule, fuse, {"generations_from": str(path)})
        return None

    def _generations_path(self, task: Task) -> Path | None:
        """Return the file of generations that the record names; None if it may not be read.

        A record may come from someone else and name any file. So only files in the home folder or
        the task's data folder are read, and any other file only if its hash is in the record.
        """
        all_facts = self.result.record.facts.values()
        facts = next((facts for facts in all_facts if "generations_from" in facts), {})
        recorded = facts.get("generations_kept") or facts.get("generations_from")
        if not isinstance(recorded, str) or recorded == "live":
            return None
        path = Path(recorded)
        with suppress(OSError, ValueError):
            if not path.is_file():
                return None
            trusted = [folder.resolve() for folder in (home_folder(), task.source) if folder]
            if any(path.resolve().is_relative_to(folder) for folder in trusted):
                return path
            if sha256_of(path) == facts.get("generations_sha256"):
                return path
        return None


def _find_expander(identity: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the recorded expander of a pipeline, or of the first member that has one."""
    expander = identity.get("expander")
    if isinstance(expander, Mapping):
        return expander
    for member in identity.get("members") or ():
        expander = _find_expander(member) if isinstance(member, Mapping) else None
        if expander is not None:
            return expander
    return None


def _recorded_bm25(identity: Any) -> Bm25Retriever | None:
    """Return a BM25 retriever with the recorded settings; None if it is another retriever."""
    retriever = identity.get("retriever") if isinstance(identity, Mapping) else None
    if not isinstance(retriever, Mapping) or retriever.get("backend") != "bm25":
        return None
    with suppress(UsageError, TypeError):
        return parse_settings(Bm25Retriever, retriever.get("settings", {}))
    return None


def _recorded_prompt(result: Result, one_query: Task, resources: Resources) -> str | None:
    """Return the first prompt of a live expansion; None if the prompt has changed since then.

    The expander is rebuilt from the spec only if all stages of the spec are registered.
    """
    units = [unit for unit, entry in parts_of(result.system) if entry and entry.backend == "expand"]
    spec = f"{units[0]} | bm25" if units else ""
    live = any(facts.get("generations_from") == "live" for facts in result.record.facts.values())
    if not live or not is_plain(spec):
        return None
    stage = System.from_spec(spec, resources).stage
    if not isinstance(stage, Expanding):
        return None
    bound = stage.expander.bind_live(one_query)
    recorded = {value for _, value in flatten(result.record.system.identity)}
    return bound.opening_prompts[0] if bound.prompt.hash in recorded else None


def _run(system: System, task: Task, one_query: Task) -> Explained:
    """Expand one query, search with and without the expansion, and diagnose the ranking."""
    stage = bind(system.stage, one_query, keep=False)
    if not isinstance(stage, Expanding):
        raise UsageError(
            f"--run needs an expander and a retriever, as in 'hyde:smollm2 | bm25'; got "
            f"{str(system)!r}. Any other system is explained from its stored result."
        )
    try:
        bound = stage.generations(one_query)
        expansion = bound.expand()
        prompt = bound.opening_prompts[0] if isinstance(bound, LiveGenerations) else None
    finally:
        system.resources.close()
    [query_id] = one_query.queries.ids.to_pylist()
    context = StageContext(one_query, run_member, system.resources.warn)
    deeper = replace(cast("Retrieval | Fused", stage.first), depth=DEPTH)

    def sort_ties(run: Run) -> Run:
        """Order ties as in measuring, down to the depth of a result; keep all deeper ranks."""
        measured = sort_lists(run.truncate(stage.depth), stage.ties(one_query)).ranking(query_id)
        return Run.from_lists({query_id: measured + run.ranking(query_id)[stage.depth :]})

    after = sort_ties(replace(stage, first=deeper).search(expansion, context).run)
    before = sort_ties(deeper.run(context).run)
    scene = Scene(task)
    diagnosis = diagnose_ranking(
        Ranking(str(system), after), task, below=before, scene=scene, only=query_id
    )
    first = stage.first
    retriever = first.retriever if isinstance(first, Retrieval) else None
    bm25 = retriever if isinstance(retriever, Bm25Retriever) else None
    changes = _changes(bm25, task, one_query, expansion, _positives(diagnosis))
    searched = expanded_coverage(expansion, scene, _mentioned_documents(diagnosis))
    return Explained(task, diagnosis, expansion, prompt, changes, searched=searched)


def _select_query(task: Task, query_id: str) -> Task:
    """Return the task with this query as its only query."""
    return replace(task, queries=task.queries.filter(pc.equal(task.queries.ids, query_id)))


def _positives(diagnosis: TaskDiagnosis) -> list[str]:
    positives = diagnosis.queries[0].positives
    return [positive.document_id for positive in positives if positive.in_corpus]


def _changes(
    retriever: Bm25Retriever | None,
    task: Task,
    one_query: Task,
    expansion: Expansion | None,
    document_ids: Iterable[str],
    prepare: Preparing = Bm25Retriever.prepare,
) -> Changes:
    """Return the changes by document id; in each document, the largest change comes first."""
    if retriever is None:
        return {}
    text = searched = one_query.queries.texts[0].as_py()
    if expansion is not None:
        if len(expansion.variants) != 1:
            return {}
        [form] = expansion.variants[0]
        searched = form.lexical
    searcher = prepare(retriever, task)
    by_document = {}
    for document_id in document_ids:
        before = searcher.contributions(text, document_id)
        after = searcher.contributions(searched, document_id)
        changes = [
            Change(term, before.get(term, 0.0), after.get(term, 0.0)) for term in before | after
        ]
        by_document[document_id] = sorted(
            changes, key=lambda change: (-abs(change.difference), change.term)
        )
    return by_document
