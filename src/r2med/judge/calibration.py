"""How well a judge reproduces known judgements: overall, by length and by word overlap.

Judges are known to be lenient on long passages and on passages that share words with the query, so
both are reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from r2med.judge.agreement import Detection, Statistic, detect, kappa_interval
from r2med.judge.pool import query_texts, texts_of
from r2med.judge.rubric import Rubric
from r2med.judge.store import JudgementSet, Pair
from r2med.measure.intervals import Interval
from r2med.tasks.task import Task

_WORD = re.compile(r"\w{3,}")
_LENGTH, _OVERLAP = "length of the passage", "words shared with the query"
_THIRDS = 3


@dataclass(frozen=True)
class Stratum:
    """Calibration on a third of the pairs, sorted by passage length or by shared words."""

    by: str
    low: float
    high: float
    detection: Detection
    kappa: Statistic

    @property
    def name(self) -> str:
        """The name of the third, with its lowest and highest length or share of words."""
        if self.by == _OVERLAP:
            return f"shared words {100 * self.low:.0f} to {100 * self.high:.0f} %"
        return f"length {self.low:,.0f} to {self.high:,.0f}"


@dataclass(frozen=True)
class Calibration:
    """How a judge agrees with known relevance, on pairs that both have decided."""

    judge: str
    reference: str
    pairs: int
    """Calibration pairs with a grade."""
    undecided: int
    by_grade: Mapping[int, tuple[int, int]]
    """Pairs by grade: number known to be not relevant, number known to be relevant."""
    detection: Detection
    kappa: Statistic
    strata: tuple[Stratum, ...]

    @property
    def is_usable(self) -> bool:
        """Whether any pair was decided; otherwise added judgements are not used for scores."""
        return self.detection.units > 0

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        return {
            "judge": self.judge,
            "reference": self.reference,
            "pairs": self.pairs,
            "undecided": self.undecided,
            "by_grade": {
                str(grade): {"not_relevant": counts[0], "relevant": counts[1]}
                for grade, counts in self.by_grade.items()
            },
            **_figures(self.detection, self.kappa),
            "strata": [
                {
                    "by": part.by,
                    "low": part.low,
                    "high": part.high,
                    **_figures(part.detection, part.kappa),
                }
                for part in self.strata
            ],
        }


def calibrate(
    judge: str,
    grades: Mapping[Pair, int],
    relevance: Mapping[Pair, bool],
    rubric: Rubric,
    task: Task,
    *,
    reference: str = "benchmark",
) -> Calibration:
    """Compare grades with known relevance on the pairs that have both."""
    shared = [pair for pair in grades if pair in relevance]
    by_grade = {
        grade: (
            sum(grades[pair] == grade and not relevance[pair] for pair in shared),
            sum(grades[pair] == grade and relevance[pair] for pair in shared),
        )
        for grade in rubric.scale
    }
    called = {pair: rubric.is_relevant(grades[pair]) for pair in shared}
    decided = {pair: relevant for pair, relevant in called.items() if relevant is not None}
    strata = [
        *_strata(_LENGTH, decided, relevance, passage_lengths(task, decided)),
        *_strata(_OVERLAP, decided, relevance, word_overlaps(task, decided)),
    ]
    return Calibration(
        judge=judge,
        reference=reference,
        pairs=len(shared),
        undecided=len(shared) - len(decided),
        by_grade=by_grade,
        detection=_detect(decided, relevance),
        kappa=_kappa(decided, relevance),
        strata=tuple(strata),
    )


def calibrate_set(judged: JudgementSet, task: Task) -> Calibration:
    """Calibrate a judgement set against the benchmark's own judgements."""
    relevance = {
        (query_id, document_id): score > 0
        for query_id, scores in task.judgements.by_query().items()
        for document_id, score in scores.items()
    }
    return calibrate(judged.name, judged.grades(), relevance, judged.rubric, task)


def passage_lengths(task: Task, pairs: Mapping[Pair, object]) -> dict[Pair, float]:
    """Return the number of characters of each pair's passage."""
    texts = texts_of(task, {document_id for _, document_id in pairs})
    return {pair: float(len(texts.get(pair[1], ""))) for pair in pairs}


def word_overlaps(task: Task, pairs: Mapping[Pair, object]) -> dict[Pair, float]:
    """Return, by pair, the share of the query's words (three letters or more) in the passage."""
    texts = texts_of(task, {document_id for _, document_id in pairs})
    words = cache(_words)
    queries = query_texts(task)
    overlaps = {}
    for query_id, document_id in pairs:
        query = words(queries[query_id]["query"])
        passage = words(texts.get(document_id, ""))
        overlaps[query_id, document_id] = len(query & passage) / len(query) if query else 0.0
    return overlaps


def _strata(
    by: str,
    decided: Mapping[Pair, bool],
    relevance: Mapping[Pair, bool],
    values: Mapping[Pair, float],
) -> list[Stratum]:
    """Calibrate each third of the pairs, sorted by `values`; pairs of equal value stay together."""
    ordered = sorted(decided, key=lambda pair: (values[pair], pair))
    if len(ordered) < _THIRDS:
        return []
    limits = [values[ordered[len(ordered) * third // _THIRDS - 1]] for third in (1, 2)]
    groups: list[list[Pair]] = [[] for _ in range(_THIRDS)]
    for pair in ordered:
        groups[sum(values[pair] > limit for limit in limits)].append(pair)
    strata = []
    for pairs in filter(None, groups):
        part = {pair: decided[pair] for pair in pairs}
        low, high = values[pairs[0]], values[pairs[-1]]
        strata.append(Stratum(by, low, high, _detect(part, relevance), _kappa(part, relevance)))
    return strata


def _detect(decided: Mapping[Pair, bool], relevance: Mapping[Pair, bool]) -> Detection:
    return detect(list(decided.values()), [relevance[pair] for pair in decided])


def _kappa(decided: Mapping[Pair, bool], relevance: Mapping[Pair, bool]) -> Statistic:
    called = [int(relevant) for relevant in decided.values()]
    return kappa_interval(called, [int(relevance[pair]) for pair in decided], [0, 1])


def _figures(detection: Detection, kappa: Statistic) -> dict[str, Any]:
    return {
        "decided": detection.units,
        "confusion": {
            "true_positives": detection.true_positives,
            "false_positives": detection.false_positives,
            "false_negatives": detection.false_negatives,
            "true_negatives": detection.true_negatives,
        },
        "precision": detection.precision,
        "precision_interval": _limits(detection.precision_interval()),
        "recall": detection.recall,
        "recall_interval": _limits(detection.recall_interval()),
        "false_alarms": detection.false_alarms,
        "kappa": kappa.value,
        "kappa_interval": _limits(kappa.interval),
    }


def _limits(interval: Interval | None) -> Sequence[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.lower()))
