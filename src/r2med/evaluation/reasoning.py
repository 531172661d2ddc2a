"""Compare two systems, usually with and without an expansion: does reasoning help search?

Scores are compared in groups of queries: by the share of the query's words in its positives, and by
whether the generated text names the answer. The causes of misses are compared in each family of
tasks. Generated words that brought wrong documents into the top ten are listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.audit.matching import words
from r2med.errors import UsageError
from r2med.evaluation.explain import StoredPipeline
from r2med.execution.resources import Warn, log_warning
from r2med.measure.intervals import Interval
from r2med.measure.significance import compare_columns
from r2med.results.compare import Comparison, compare_selection, select_systems
from r2med.results.diagnosis.diagnose import Scene, diagnose_ranking
from r2med.results.diagnosis.findings import TaskDiagnosis
from r2med.results.diagnosis.lexicon import is_informative
from r2med.results.record import Result
from r2med.results.select import ResultSet, SelectedSystem, rank_system
from r2med.results.store import DEFAULT_FOLDER
from r2med.tables import Tabular, make_table
from r2med.tasks.load import load_tasks
from r2med.tasks.task import Task

_QUARTERS = 4
#: Generated words that are listed.
_MOST_WORDS = 20


@dataclass(frozen=True)
class QueryGroup:
    """A group of queries with their mean scores under both systems, from 0 to 1."""

    name: str
    queries: int
    score_a: float
    score_b: float
    difference: Interval
    """The 95 % confidence interval of the mean score of A minus that of B."""

    @property
    def change(self) -> float:
        """The mean score of A minus that of B."""
        return self.score_a - self.score_b


@dataclass(frozen=True)
class MissCount:
    """How many missed positives of a family of tasks have one cause, under A and under B."""

    family: str
    cause: str
    a: int
    b: int


@dataclass(frozen=True)
class GeneratedWord:
    """A generated word in non-relevant documents in the top ten of A that are not in that of B."""

    word: str
    queries: int
    documents: int
    example: str
    """A query id and a document id, joined as QUERY: DOCUMENT."""


@dataclass(frozen=True)
class SampleScores:
    """The scores of one expander's samples on one task, if each sample is searched for alone."""

    system: str
    task: str
    scores: tuple[float, ...]
    variance: float
    """The unbiased variance of the scores; the samples differ by their random seeds."""


@dataclass(frozen=True, eq=False)
class ReasoningStudy(Tabular):
    """A comparison of two systems, A and B, by groups of queries and causes of misses."""

    a: str
    b: str
    metric: str
    queries: int
    quarters: tuple[QueryGroup, ...]
    """Queries grouped by the share of their words in their positives, the lowest share first."""
    naming: tuple[QueryGroup, ...]
    """Queries whose generated text names the answer, and others; empty without generations."""
    misses: tuple[MissCount, ...]
    pulling_words: tuple[GeneratedWord, ...]
    samples: tuple[SampleScores, ...] = ()
    """Scores of single samples, for systems that search for each separately (`combine=fuse`)."""
    notices: tuple[str, ...] = ()

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per group of queries; scores are 0 to 1."""
        groups = [("overlap", group) for group in self.quarters]
        groups += [("generation", group) for group in self.naming]
        rows = [
            {
                "grouped_by": grouped_by,
                **{n: getattr(group, n) for n in ("name", "queries", "score_a", "score_b")},
                "difference": group.change,
                "low": group.difference.low,
                "high": group.difference.high,
            }
            for grouped_by, group in groups
        ]
        columns: dict[str, type] = {"grouped_by": str, "name": str, "queries": int}
        scores = ("score_a", "score_b", "difference", "low", "high")
        return make_table(columns | dict.fromkeys(scores, float), rows)

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; scores are 0 to 1."""
        return asdict(self)


@dataclass(frozen=True)
class _QueryCase:
    """One query with its scores under both systems."""

    score_a: float
    score_b: float
    overlap: float
    names_answer: bool | None
    """Whether the generated text names the answer; None without a text or an answer."""


def study_reasoning(
    *systems: str | Path,
    task: str | None = None,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    tell: Warn = log_warning,
) -> ReasoningStudy:
    """Compare two systems in groups of queries, and by the causes of their misses.

    Systems are named as in `compare`. Generated texts are those of the first system.

    Raises:
        UsageError: The number of systems is not two.
    """
    if len(systems) != 2:
        raise UsageError(f"a study compares two systems, A and B; {len(systems)} are given.")
    selection = select_systems(
        *systems, task=task, metric=metric, results=results, root=root, tell=tell
    )
    comparison = compare_selection(selection, metric)
    result_set = ResultSet.open(results, lambda message: None)
    names = ",".join(comparison.tasks)
    cases: list[_QueryCase] = []
    misses: dict[tuple[str, str], Counter[str]] = {}
    pulling: dict[str, list[tuple[str, str]]] = {}
    notices: list[str] = []
    for loaded in load_tasks(task or names, root=root, local_tasks=result_set.local_tasks):
        diagnosed = _DiagnosedTask.of(selection.systems, loaded)
        generated = _read_generated(selection.systems[0], loaded)
        if generated is None:
            notices.append(f"{loaded.name}: no stored generations of {comparison.systems[0]}.")
        overlaps = {finding.query_id: finding.overlap for finding in diagnosed.a.queries}
        answers = diagnosed.scene.answers
        for query in comparison.tasks[loaded.name]:
            if query.query_id not in overlaps:
                continue
            text = None if generated is None else generated.get(query.query_id)
            case = _QueryCase(
                query.scores[0],
                query.scores[1],
                overlaps[query.query_id],
                _names_answer(text, answers.get(query.query_id)),
            )
            cases.append(case)
        for side, diagnosis in (("a", diagnosed.a), ("b", diagnosed.b)):
            for cause, count in diagnosis.causes.items():
                family = diagnosis.family or loaded.name
                misses.setdefault((family, cause), Counter())[side] += count
        for word, example in diagnosed.find_pulling_words(generated or {}):
            pulling.setdefault(word, []).append(example)
    name_a, name_b = comparison.systems
    return ReasoningStudy(
        a=name_a,
        b=name_b,
        metric=comparison.metric,
        queries=len(cases),
        quarters=tuple(_quarters(cases)),
        naming=tuple(_group_by_naming(cases)),
        misses=tuple(
            MissCount(family, cause, count["a"], count["b"])
            for (family, cause), count in sorted(misses.items())
        ),
        pulling_words=_most_frequent(pulling),
        samples=tuple(_collect_samples(selection.systems, comparison)),
        notices=() if any(case.names_answer is not None for case in cases) else tuple(notices),
    )


@dataclass(frozen=True, eq=False)
class _DiagnosedTask:
    """The diagnoses of both systems on one task."""

    scene: Scene
    a: TaskDiagnosis
    b: TaskDiagnosis

    @classmethod
    def of(cls, systems: Sequence[SelectedSystem], task: Task) -> _DiagnosedTask:
        scene = Scene(task)
        first, second = (
            diagnose_ranking(rank_system(system, task), task, scene=scene) for system in systems
        )
        return cls(scene, first, second)

    def find_pulling_words(
        self, generated: Mapping[str, str]
    ) -> Iterator[tuple[str, tuple[str, str]]]:
        """Yield generated words in non-relevant documents that only A has in its top ten.

        Each word comes with an example, a query id and a document id. Words of the query are left
        out.
        """
        lexicon = self.scene.lexicon
        tops_b = {
            finding.query_id: {document.document_id for document in finding.top}
            for finding in self.b.queries
        }
        for finding in self.a.queries:
            text = generated.get(finding.query_id)
            if not text:
                continue
            [of_text] = lexicon.queries(pa.array([text], pa.large_string()))
            [of_query] = lexicon.queries(pa.array([finding.text], pa.large_string()))
            added = np.setdiff1d(of_text, of_query)
            for document in finding.top:
                row = lexicon.row(document.document_id)
                is_new = document.document_id not in tops_b.get(finding.query_id, set())
                if row is None or not is_new or document.label == "positive":
                    continue
                shared = lexicon.shared_terms(added, row).tolist()
                for word in lexicon.spell_terms(shared, text):
                    if is_informative(word):
                        yield word.lower(), (finding.query_id, document.document_id)


def _read_generated(system: SelectedSystem, task: Task) -> dict[str, str] | None:
    """Return the generated texts of a stored result by query id; None if there are none."""
    result = system.results.get(task.name)
    if not isinstance(result, Result):
        return None
    expansion = StoredPipeline.of(result).expansion(task)
    if expansion is None:
        return None
    return {
        query.query_id: "\n".join(sample.answer for sample in query.samples)
        for query in expansion.queries
    }


def _collect_samples(
    systems: Sequence[SelectedSystem], comparison: Comparison
) -> Iterator[SampleScores]:
    for name, system in zip(comparison.systems, systems, strict=True):
        for task in comparison.tasks:
            result = system.results.get(task)
            if not isinstance(result, Result) or result.record.samples is None:
                continue
            samples, metric = result.record.samples, comparison.metric
            if metric in samples.variance:
                scores = tuple(sample[metric] for sample in samples.metrics)
                yield SampleScores(name, task, scores, samples.variance[metric])


def _names_answer(generated: str | None, answer: str | None) -> bool | None:
    answer_words = " ".join(words(answer or ""))
    if not generated or not answer_words:
        return None
    return f" {answer_words} " in f" {' '.join(words(generated))} "


def _quarters(cases: Sequence[_QueryCase]) -> Iterator[QueryGroup]:
    """Yield four groups of about the same size, in ascending order of overlap."""
    ordered = sorted(cases, key=lambda case: case.overlap)
    for part in np.array_split(np.arange(len(ordered)), min(_QUARTERS, len(ordered))):
        group = [ordered[index] for index in part]
        low, high = 100 * group[0].overlap, 100 * group[-1].overlap
        yield _summarize(f"{low:.0f} to {high:.0f} % shared", group)


def _group_by_naming(cases: Sequence[_QueryCase]) -> Iterator[QueryGroup]:
    for is_named, name in ((True, "names the answer"), (False, "does not name it")):
        group = [case for case in cases if case.names_answer is is_named]
        if group:
            yield _summarize(name, group)


def _summarize(name: str, cases: Sequence[_QueryCase]) -> QueryGroup:
    a = np.array([case.score_a for case in cases])
    b = np.array([case.score_b for case in cases])
    compared = compare_columns(a, b)
    return QueryGroup(name, len(cases), compared.mean_a, compared.mean_b, compared.interval)


def _most_frequent(pulling: Mapping[str, Sequence[tuple[str, str]]]) -> tuple[GeneratedWord, ...]:
    rows = [
        GeneratedWord(
            word,
            queries=len({query for query, _ in examples}),
            documents=len(set(examples)),
            example=": ".join(examples[0]),
        )
        for word, examples in pulling.items()
    ]
    rows.sort(key=lambda row: (-row.documents, -row.queries, row.word))
    return tuple(rows[:_MOST_WORDS])


def missing_generations_hint(study: ReasoningStudy) -> str | None:
    """Return the reason why figures about generations are missing; None if they are not."""
    if study.naming or not study.notices:
        return None
    return (
        f"{study.notices[0]} Figures about generated texts need a system with an expander, such as "
        "'hyde:gpt4 | bm25', as A."
    )
