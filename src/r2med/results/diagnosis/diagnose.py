"""Diagnose a ranking query by query: the ranks of positives, and why some were missed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

import numpy as np

from r2med.errors import DataError, UsageError
from r2med.execution.resources import Warn, log_warning
from r2med.measure import measure
from r2med.measure.aspects import AspectScores, measure_aspects
from r2med.results.diagnosis.causes import SURFACE_CAUSES, TOP, PositiveFinding
from r2med.results.diagnosis.findings import (
    Diagnosis,
    QueryFinding,
    RankedFinding,
    TaskDiagnosis,
    label_of,
)
from r2med.results.diagnosis.lexicon import Lexicon, is_informative
from r2med.results.published_data import describe_task_data
from r2med.results.record import Result
from r2med.results.select import (
    Ranking,
    ResultSet,
    SelectedSystem,
    find_local_tasks,
    find_path,
    rank_system,
)
from r2med.results.stage_record import TextLimits
from r2med.results.store import DEFAULT_FOLDER
from r2med.runs import Run
from r2med.systems.registry import first_stage, kind_of
from r2med.systems.spec import parse
from r2med.tasks.load import load_tasks, task_names
from r2med.tasks.reading.aspects import read_task_aspects
from r2med.tasks.registry import resolve
from r2med.tasks.task import Task, sources_of

METRIC = "ndcg@10"
_SHARED_WORDS = 12


def diagnose(
    system: str | Path | Result,
    task: str | Path | Task | None = None,
    *,
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Warn = log_warning,
) -> Diagnosis:
    """Find where a stored system fails on tasks, and why.

    Args:
        system: A `Result`, a run file, the folder of a stored result, or a spec with results in
            `results`.
        task: A task, a suite, or names separated by commas; not needed for a `Result`.
        results: The results folder.
        root: A folder with data of tasks.
        tell: Callback for user-facing warnings.

    Returns:
        The diagnosis; it prints as a table and converts to Arrow, pandas, polars and JSON.

    Examples:
        >>> import r2med
        >>> result = r2med.evaluate("bm25", "demo/biology")
        >>> diagnosis = r2med.diagnose(result)
    """
    if isinstance(system, Result) and task is None:
        task = system.task
    if task is None:
        raise UsageError("diagnose needs a task or a suite, e.g. diagnose('bm25', 'demo').")
    result_set = ResultSet.open(results, tell)
    local_tasks = find_local_tasks(system.root if isinstance(system, Result) else results)
    if isinstance(task, Task):
        names, loaded_tasks = [task.name], iter([task])
    else:
        names = task_names(resolve(str(task), local_tasks), local_tasks)
        loaded_tasks = load_tasks(str(task), root=root, local_tasks=local_tasks)
    diagnoses = []
    selected: SelectedSystem | None = None
    for loaded in loaded_tasks:
        if isinstance(system, Result):
            ranking = Ranking(system.name, system.ranked, system)
        elif find_path(str(system)) is not None:
            ranking = result_set.find_ranking(system, loaded, tell)
        else:
            if selected is None:
                selected = _select_system(result_set, system, names, tell)
            ranking = rank_system(selected, loaded)
        diagnoses.append(diagnose_ranking(ranking, loaded, results=result_set.results))
    return Diagnosis(diagnoses[0].system, tuple(diagnoses))


def _select_system(
    result_set: ResultSet, system: str | Path, tasks: Sequence[str], warn: Warn
) -> SelectedSystem:
    """Select one version of a system for all tasks."""
    selection = result_set.select([system], tasks=tasks)
    for notice in selection.notices:
        warn(notice)
    return selection.systems[0]


def diagnose_ranking(
    ranking: Ranking,
    task: Task,
    *,
    results: Sequence[Result] = (),
    below: Run | None = None,
    scene: Scene | None = None,
    only: str | None = None,
) -> TaskDiagnosis:
    """Diagnose every query that has a positive, or only the query with the id `only`.

    `below` is the run of the first stage; without it, the run is looked up in `results`. Pass the
    `scene` of the task to avoid analysing the corpus again.
    """
    missing: list[str] = []
    if below is None:
        below, missing = _first_stage(ranking, task, results)
    scene = scene or Scene(task)
    run = ranking.run if only is None else Run.from_lists({only: ranking.run.ranking(only)})
    scores = measure(run, task.judgements, [METRIC], ties="list")
    by_query = dict(zip(scores.query_ids.to_pylist(), scores[METRIC].tolist(), strict=True))
    findings = [
        _View(scene, row, ranking, below).finding(by_query[query])
        for row, query in enumerate(task.queries.ids.to_pylist())
        if only in (None, query)
        and any(relevance > 0 for relevance in scene.judged.get(query, {}).values())
    ]
    if not findings:
        which = "no query has a positive" if only is None else f"query {only!r} has no positive"
        raise DataError(f"{task.name}: {which}, so there is nothing to diagnose.")
    if not scene.sources:
        missing.append("passages of the same source, because the document ids name no sources.")
    if ranking.result is None and below is None:
        missing.append("cut texts and demotions, because a run file does not name its system.")
    return TaskDiagnosis(
        system=ranking.name,
        task=task.name,
        suite=task.suite,
        family=task.entry.family if task.entry else None,
        data=task.hash,
        metric=METRIC,
        depth=int(ranking.run.lengths.max(initial=0)),
        queries=tuple(findings),
        open=tuple(missing),
        aspects=_measure_aspects(run, task) if only is None else None,
        data_note=describe_task_data(task) or "",
    )


def _measure_aspects(run: Run, task: Task) -> AspectScores | None:
    judgements = read_task_aspects(task)
    return measure_aspects(run, judgements, ties="list") if judgements else None


class Scene:
    """The parts of a diagnosis that depend only on the task, computed once."""

    def __init__(self, task: Task) -> None:
        queries, ids = task.queries, task.queries.ids.to_pylist()
        self.task = task
        self.lexicon = Lexicon(task.corpus)
        self.judged = task.judgements.by_query()
        self.answers = dict(zip(ids, queries.answers.to_pylist(), strict=True))
        self.query_terms = self.lexicon.queries(queries.texts)
        self.sources = sources_of(task.corpus.document_ids.to_pylist())
        self.evidence: dict[str, list[str]] = {}
        """The queries for which a document is a positive, by document id."""
        for query, grades in self.judged.items():
            for document in (name for name, grade in grades.items() if grade > 0):
                self.evidence.setdefault(document, []).append(query)


class _View:
    """The ranked list and the positives of one query; `below` is the run of the first stage."""

    def __init__(self, scene: Scene, row: int, ranking: Ranking, below: Run | None) -> None:
        queries, result = scene.task.queries, ranking.result
        self.scene, self.row = scene, row
        self.query: str = queries.ids[row].as_py()
        self.text: str = queries.texts[row].as_py() or ""
        self.terms = scene.query_terms[row]
        self.judged = scene.judged[self.query]
        self.coverage = scene.lexicon.coverage(self.terms)
        self.limits = result.record.system.stage.text_limits if result else TextLimits()
        self.reranking = result.record.reranking if result else None
        self.ranks = ranking.run.ranks_of(self.query)
        self.earlier = below.ranks_of(self.query) if below is not None else {}
        self.top = list(self.ranks)[:TOP]
        self.others = [
            (name, row_index)
            for name in self.top
            if self.judged.get(name, 0) <= 0 and (row_index := scene.lexicon.row(name)) is not None
        ]
        """Documents in the top 10 that are not positives, with their row in the corpus."""
        self.covered = [(float(self.coverage[row_index]), name) for name, row_index in self.others]
        """Coverage of the query by each of `others`, with the document id."""

    def finding(self, score: float) -> QueryFinding:
        """Return the finding on the query, which has this score."""
        positives = [self._positive(name) for name, grade in self.judged.items() if grade > 0]
        positives.sort(
            key=lambda finding: (finding.rank is None, finding.rank or 0, finding.document_id)
        )
        return QueryFinding(
            query_id=self.query,
            text=self.text,
            score=score,
            words=len(self.text.split()),
            answer=self.scene.answers.get(self.query) or None,
            body_system=self.scene.task.queries.body_systems[self.row].as_py() or None,
            overlap=max(finding.coverage for finding in positives),
            positives=tuple(positives),
            top=tuple(map(self._describe_document, self.top)),
        )

    def _positive(self, name: str) -> PositiveFinding:
        """Return the finding on a positive: its rank, and the numbers that explain the rank."""
        lexicon, limits, sources = self.scene.lexicon, self.limits, self.scene.sources
        row, query_words, source = lexicon.row(name), len(self.text.split()), sources.get(name)
        likeness: tuple[float, str | None] = (0.0, None)
        subject = likeness
        if row is not None:
            alike = [
                (lexicon.likeness(row, corpus_row), document_id)
                for document_id, corpus_row in self.others
                if document_id not in self.judged
            ]
            keys = lexicon.key_terms(row, self.terms)
            about = [
                (lexicon.share(keys, corpus_row), document_id)
                for document_id, corpus_row in self.others
            ]
            likeness, subject = max(alike, default=likeness), max(about, default=subject)
        coverage = 0.0 if row is None else float(self.coverage[row])
        same_source = (
            document_id
            for document_id, _ in self.others
            if source and sources.get(document_id) == source
        )
        finding = PositiveFinding(
            rank=self.ranks.get(name),
            in_corpus=row is not None,
            coverage=coverage,
            as_well=float(np.mean(self.coverage >= coverage)) if len(self.coverage) else 0.0,
            top_coverage=median([share for share, _ in self.covered]) if self.covered else 0.0,
            likeness=likeness[0],
            subject=subject[0],
            witnesses={
                "twin-retrieved": likeness[1],
                "same-source": next(same_source, None),
                "same-subject": subject[1],
                **dict.fromkeys(SURFACE_CAUSES, max(self.covered)[1] if self.covered else None),
            },
            query_terms=len(self.terms),
            query_words=query_words,
            words=len((lexicon.text(name) or "").split()),
            query_limit=limits.query if limits.pair is None else limits.pair,
            limit=limits.document if limits.pair is None else max(0, limits.pair - query_words),
            reranked=self.reranking.depth if self.reranking else None,
            first_stage_rank=self.earlier.get(name),
            document_id=name,
            relevance=self.judged[name],
            shared_terms=0 if row is None else len(lexicon.shared_terms(self.terms, row)),
        )
        return finding.with_cause()

    def _describe_document(self, name: str) -> RankedFinding:
        """Describe a document of the top 10; shared words are spelled as in the query."""
        scene, lexicon, row = self.scene, self.scene.lexicon, self.scene.lexicon.row(name)
        answers = dict.fromkeys(scene.answers.get(query) for query in scene.evidence.get(name, []))
        own_answer = scene.answers.get(self.query)
        shared = [] if row is None else lexicon.shared_terms(self.terms, row).tolist()
        words = [word for word in lexicon.spell_terms(shared, self.text) if is_informative(word)]
        return RankedFinding(
            rank=self.ranks[name],
            document_id=name,
            label=label_of(self.judged.get(name)),
            coverage=0.0 if row is None else float(self.coverage[row]),
            shared=tuple(words[:_SHARED_WORDS]),
            answers=tuple(answer for answer in answers if answer and answer != own_answer),
        )


def _first_stage(
    ranking: Ranking, task: Task, results: Sequence[Result]
) -> tuple[Run | None, list[str]]:
    """Return the stored run of the system without its outermost stage.

    If the run is needed but not stored, the second value says what cannot be detected.
    """
    if ranking.result is None:
        return None, []
    spec, reranking = parse(ranking.result.system), ranking.result.record.reranking
    below = reranking.first if reranking else str(first_stage(spec, kind_of(spec)) or "")
    if not below:
        return None, []
    for result in results:
        if (result.system, result.data) == (below, task.hash):
            return result.ranked, []
    return None, [f"demotions, because {below} alone is not stored (r2med eval '{below}')."]
