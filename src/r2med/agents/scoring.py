"""Scores of agents: evidence seen and used, searches and tokens, answers and confidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean, median
from typing import Any

import numpy as np
import pyarrow as pa

from r2med.agents.calibration import ConfidenceCalibration, calibrate
from r2med.agents.sources import TraceSet
from r2med.agents.trace import COMPLETED, AgentTrace, remove_citations
from r2med.answer.correctness import (
    is_short,
    normalise,
    reference_forms,
    score_answer,
)
from r2med.errors import plural
from r2med.measure.intervals import SCORES, Interval, mean_interval
from r2med.measure.significance import Difference, compare_columns, holm
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.task import Task, positives_of


@dataclass(frozen=True)
class TraceScores:
    """The scores of one trace; None if a score does not apply or the trace lacks its data."""

    query_id: str
    sample: int
    completed: bool
    searches: int
    tokens: int | None
    documents: int
    """Distinct documents that the agent saw."""
    recall: float | None
    """Share of the judged positives among the documents seen; None for a query without
    positives."""
    saw_positive: float | None
    """1 if at least one positive was seen."""
    first_positive: int | None
    """The number of the search that showed the first positive, from 1."""
    used_positive: float | None
    """1 if a positive that was seen is cited or in the final list; None if no positive was seen, or
    if the agent never cites or ranks."""
    citation_precision: float | None
    """Share of the cited documents that are positives."""
    correct: float | None
    """1 if the right option is chosen or the short answer matches; None for long references."""
    mentions: float | None
    """1 if the answer contains the short reference; None for long references and options."""
    f1: float | None
    """Token F1 of the answer with the reference."""
    abstained: float | None
    confidence: float | None


#: Scores from 0 to 1, counts, in the order of the table.
SHARES = (
    "recall",
    "saw_positive",
    "used_positive",
    "citation_precision",
    "correct",
    "mentions",
    "f1",
    "abstained",
)
COUNTS = ("searches", "tokens", "documents")
#: Scores on which agents are compared.
COMPARED = ("recall", "correct", "f1")


@dataclass(frozen=True)
class AgentMean:
    """The mean of a score over queries, with its interval."""

    value: float
    interval: Interval | None
    """None for a count that is equal for all queries, because its variation is then unknown."""
    queries: int
    """Number of queries that have the score; a query with several samples counts once, by their
    mean."""


@dataclass(frozen=True)
class AgentSummary:
    """One agent on one task."""

    name: str
    queries: int
    """Number of queries with a trace."""
    task_queries: int
    traces: int
    incomplete: int
    """Number of traces that did not end with an answer."""
    means: Mapping[str, AgentMean]
    """The mean of each score, by name of the score; scores that no query has are left out."""
    median_first_positive: float | None
    """The median of `first_positive` over the traces that have it."""
    calibration: ConfidenceCalibration | None
    problems: tuple[str, ...]
    scores: tuple[TraceScores, ...]


@dataclass(frozen=True)
class AgentDifference:
    """The difference between an agent and the first agent, on the queries that both have."""

    agent: str
    score: str
    difference: Difference
    p_holm: float
    """The p-value after Holm's correction over all agents and scores compared."""


@dataclass(frozen=True, eq=False)
class AgentScores(Tabular):
    """The scores of agents on one task, and the difference of each from the first agent."""

    task: str
    baseline: str
    agents: tuple[AgentSummary, ...]
    differences: tuple[AgentDifference, ...]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per agent and trace."""
        columns: Mapping[str, type] = {"agent": str, **table_columns(TraceScores)}
        rows = (
            {"agent": agent.name, **asdict(trace)}
            for agent in self.agents
            for trace in agent.scores
        )
        return make_table(columns, rows)

    def to_json(self) -> Any:
        """Means with intervals, calibration and the scores of every trace."""
        return {
            "task": self.task,
            "agents": [asdict(agent) for agent in self.agents],
            "baseline": self.baseline,
            "differences": [asdict(difference) for difference in self.differences],
        }


def score_agents(task: Task, trace_sets: Sequence[TraceSet]) -> AgentScores:
    """Score the traces of agents against a task's judgements and answers.

    Args:
        task: The task.
        trace_sets: The traces of each agent; every other agent is compared with the first.
    """
    material = _Material(task)
    agents = tuple(_summarise(trace_set, task, material) for trace_set in trace_sets)
    return AgentScores(task.name, agents[0].name, agents, tuple(_compare(agents)))


@dataclass(frozen=True, eq=False)
class _Material:
    """The judgements and reference answers of a task, looked up once for all traces."""

    task: Task

    @cached_property
    def positives(self) -> Mapping[str, Sequence[str]]:
        return positives_of(self.task.judgements)

    @cached_property
    def answers(self) -> Mapping[str, str | None]:
        queries = self.task.queries
        return dict(zip(queries.ids.to_pylist(), queries.answers.to_pylist(), strict=True))

    @cached_property
    def questions(self) -> Mapping[str, str]:
        return dict(self.task.queries.items())


def _summarise(trace_set: TraceSet, task: Task, material: _Material) -> AgentSummary:
    is_use_known = any(trace.cited or trace.final_list for trace in trace_set.traces)
    scores = tuple(_score_trace(trace, material, is_use_known) for trace in trace_set.traces)
    firsts = [trace.first_positive for trace in scores if trace.first_positive is not None]
    means = {name: _mean(_by_query(scores, name).values(), name) for name in (*SHARES, *COUNTS)}
    return AgentSummary(
        name=trace_set.name,
        queries=len(trace_set.query_ids),
        task_queries=len(task.queries),
        traces=len(scores),
        incomplete=sum(not trace.completed for trace in scores),
        means={name: mean for name, mean in means.items() if mean is not None},
        median_first_positive=float(median(firsts)) if firsts else None,
        calibration=_calibrate(scores),
        problems=tuple(_describe_gaps(trace_set, scores, task, material)),
        scores=scores,
    )


def _by_query(scores: Iterable[TraceScores], name: str) -> dict[str, float]:
    """Return the mean of a score over each query's samples; queries without it are left out."""
    values: dict[str, list[float]] = {}
    for trace in scores:
        value = getattr(trace, name)
        if value is not None:
            values.setdefault(trace.query_id, []).append(float(value))
    return {query_id: fmean(samples) for query_id, samples in values.items()}


def _score_trace(trace: AgentTrace, material: _Material, is_use_known: bool) -> TraceScores:
    positives = material.positives.get(trace.query_id, ())
    seen = set(trace.documents) & set(positives)
    used = {*trace.cited, *trace.final_list}
    cited_positives = set(trace.cited) & set(positives)
    return TraceScores(
        query_id=trace.query_id,
        sample=trace.sample,
        completed=trace.status == COMPLETED and bool(trace.answer),
        searches=trace.searches,
        tokens=trace.tokens,
        documents=len(trace.documents),
        recall=len(seen) / len(positives) if positives else None,
        saw_positive=float(bool(seen)) if positives else None,
        first_positive=trace.first_search_with(positives),
        used_positive=float(bool(seen & used)) if seen and is_use_known else None,
        citation_precision=len(cited_positives) / len(trace.cited) if trace.cited else None,
        confidence=trace.confidence,
        **_score_answer(trace, material),
    )


def _score_answer(trace: AgentTrace, material: _Material) -> dict[str, float | None]:
    """Return the scores of an answer; a missing answer is wrong, and is not an abstention."""
    reference = material.answers.get(trace.query_id)
    if not reference:
        return dict.fromkeys(("correct", "mentions", "f1", "abstained"))
    answer = remove_citations(trace.answer, trace.documents)
    scores = score_answer(answer, reference, question=material.questions[trace.query_id])
    exact = scores.match if is_short(reference) else None
    has_text = scores.option is None and is_short(reference)
    return {
        "correct": scores.option if scores.option is not None else exact,
        "mentions": float(_mentions(answer, reference)) if has_text else None,
        "f1": scores.f1,
        "abstained": float(scores.abstained),
    }


def _mentions(answer: str, reference: str) -> bool:
    """Whether an answer contains one of the accepted wordings of the reference as whole words."""
    text = f" {normalise(answer)} "
    wordings = (normalise(form) for form in reference_forms(reference))
    return any(f" {wording} " in text for wording in wordings if wording)


def _calibrate(scores: Iterable[TraceScores]) -> ConfidenceCalibration | None:
    stated = [
        (trace.confidence, trace.correct)
        for trace in scores
        if trace.confidence is not None and trace.correct is not None
    ]
    return calibrate([confidence for confidence, _ in stated], [correct for _, correct in stated])


def _mean(values: Iterable[float], score: str) -> AgentMean | None:
    column = np.array(list(values), dtype=np.float64)
    if not len(column):
        return None
    mean, low, high = float(column.mean()), float(column.min()), float(column.max())
    if score in COUNTS and low == high:
        return AgentMean(mean, None, len(column))
    span = SCORES if score in SHARES else (low, high)
    return AgentMean(mean, mean_interval(column, span=span), len(column))


def _describe_gaps(
    trace_set: TraceSet, scores: Sequence[TraceScores], task: Task, material: _Material
) -> Iterable[str]:
    yield from trace_set.problems
    missing = len(task.queries) - len(trace_set.query_ids)
    if missing:
        yield f"{plural(missing, 'query')} of {task.name} without a trace are left out."
    unanswered = sum(not material.answers.get(trace.query_id) for trace in scores)
    if unanswered:
        yield f"{plural(unanswered, 'trace')} of queries without a reference answer."
    long = sum(trace.f1 is not None and trace.correct is None for trace in scores)
    if long:
        yield (
            f"{plural(long, 'trace')} of queries with a long reference answer have only token F1: "
            "match decides short answers and options alone."
        )


def _compare(agents: Sequence[AgentSummary]) -> list[AgentDifference]:
    """Compare every agent with the first, on the queries that both have."""
    differences: list[tuple[str, str, Difference]] = []
    first = agents[0]
    for agent in agents[1:]:
        for score in COMPARED:
            scores_a, scores_b = _by_query(agent.scores, score), _by_query(first.scores, score)
            common = sorted(scores_a.keys() & scores_b.keys())
            if common:
                a, b = (np.array([column[q] for q in common]) for column in (scores_a, scores_b))
                differences.append((agent.name, score, compare_columns(a, b)))
    corrected = holm([difference.p_randomisation for _, _, difference in differences])
    return [
        AgentDifference(name, score, difference, p_holm)
        for (name, score, difference), p_holm in zip(differences, corrected, strict=True)
    ]
