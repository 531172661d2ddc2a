"""Twins: unjudged documents whose text equals, or nearly equals, that of a judged one.

A system that retrieves a twin of a positive is not rewarded for it. Here twins are found, and
scores are measured again as if every twin had the judgement of its original.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.audit.matching import TextIndex, words
from r2med.measure.intervals import Interval
from r2med.measure.scores import measure
from r2med.measure.significance import compare_columns
from r2med.results.record import Result
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.task import Judgements, Task

TwinType = Literal["exact", "near-duplicate"]
#: Texts that are compared with the judged ones at once.
_BATCH = 2000
#: A longer document that merely contains a judged one is not a twin of it.
_LARGEST_RATIO = 1.25


@dataclass(frozen=True)
class Twin:
    """An unjudged document, and the judged document with the same text."""

    type: TwinType
    query: str
    original: str
    twin: str
    score: int
    """The judged score of the original."""


@dataclass(frozen=True)
class TwinScore:
    """The score of one system on one task, with and without inherited judgements."""

    system: str
    task: str
    twins: int
    """Number of pairs of a query and a twin of one of its positives."""
    score: float
    with_twins: float
    change: Interval
    """The 95 % interval of the change per query."""


@dataclass(frozen=True, eq=False)
class TwinScores(Tabular):
    """Scores with and without the judgements that twins inherit; as a table, one row per result."""

    metric: str
    scores: tuple[TwinScore, ...]
    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per result; scores are 0 to 1."""
        columns = {"system": str, "task": str, "twins": int, "score": float, "with_twins": float}
        rows = [
            {**vars(score), "change_low": score.change.low, "change_high": score.change.high}
            for score in self.scores
        ]
        return make_table(columns | {"change_low": float, "change_high": float}, rows)

    def to_json(self) -> dict[str, Any]:
        """Return all fields; scores are 0 to 1."""
        return {"metric": self.metric, "scores": [asdict(score) for score in self.scores]}


def find_twins(task: Task) -> list[Twin]:
    """Find the unjudged twins of every judged document of a task.

    A twin has the same words as its original, or shares most of them in the same order and is of
    about the same length. Judgements of 0 are inherited too.
    """
    judged = task.judgements.by_query()
    names = sorted({document for documents in judged.values() for document in documents})
    originals = [name for name in names if name in _document_positions(task)]
    pairs = _match_documents(task, originals)
    twins = []
    for query, documents in judged.items():
        for original, score in documents.items():
            for twin, twin_type in pairs.get(original, {}).items():
                if twin not in documents:
                    twins.append(Twin(twin_type, query, original, twin, score))
    return twins


def inherit_judgements(judgements: Judgements, twins: Sequence[Twin]) -> Judgements:
    """Return the judgements with those of the originals added for their twins.

    A twin of several originals inherits the highest score.
    """
    inherited: dict[tuple[str, str], int] = {}
    for twin in twins:
        pair = (twin.query, twin.twin)
        inherited[pair] = max(twin.score, inherited.get(pair, twin.score))
    query_ids = [*judgements.query_ids.to_pylist(), *(query for query, _ in inherited)]
    document_ids = [*judgements.document_ids.to_pylist(), *(twin for _, twin in inherited)]
    return Judgements(
        pa.array(query_ids, pa.large_string()),
        pa.array(document_ids, pa.large_string()),
        np.concatenate([judgements.scores, np.array([*inherited.values()], dtype=np.int32)]),
    )


def score_twins(
    results: Sequence[Result], tasks: Mapping[str, Task], metric: str = "ndcg@10"
) -> TwinScores:
    """Measure results as if twins had the judgements of their originals.

    Args:
        results: Results on these tasks.
        tasks: The loaded tasks by name.
        metric: The metric.
    """
    twins = {name: find_twins(task) for name, task in tasks.items()}
    rows = []
    for result in results:
        task, task_twins = tasks[result.task], twins[result.task]
        judgements = inherit_judgements(task.judgements, task_twins)
        ties = result.record.system.ties
        scores = measure(result.run, judgements, [metric], ties=ties).at(result.scores.query_ids)
        before, after = result.scores[metric], scores[metric]
        positive = {(twin.query, twin.twin) for twin in task_twins if twin.score > 0}
        rows.append(
            TwinScore(
                system=result.name,
                task=result.task,
                twins=len(positive),
                score=float(before.mean()),
                with_twins=float(after.mean()),
                change=compare_columns(after, before).interval,
            )
        )
    return TwinScores(metric, tuple(rows))


def twin_table(twins: Sequence[Twin]) -> pa.Table:
    """One row per twin."""
    return make_table(table_columns(Twin), [asdict(twin) for twin in twins])


def _document_positions(task: Task) -> dict[str, int]:
    names = task.corpus.document_ids.to_pylist()
    return {name: position for position, name in enumerate(names)}


def _match_documents(task: Task, originals: Sequence[str]) -> dict[str, dict[str, TwinType]]:
    """Return the twins of each judged document, with the type of each twin."""
    names = task.corpus.document_ids.to_pylist()
    texts = task.corpus.document_texts()
    text_of = dict(zip(names, texts, strict=True))
    holders: dict[str, list[str]] = {}
    for name in originals:
        holders.setdefault(" ".join(words(text_of[name])), []).append(name)
    holders.pop("", None)
    groups = list(holders.values())
    index = TextIndex([text_of[group[0]] for group in groups])
    twins: dict[str, dict[str, TwinType]] = {}
    for start in range(0, len(names), _BATCH):
        for match in index.matches(texts[start : start + _BATCH]):
            document = names[start + match.text]
            group = groups[match.entry]
            lengths = sorted((len(text_of[document]), len(text_of[group[0]])))
            is_exact = match.kind == "exact"
            is_near = match.kind in ("contained", "near-duplicate") and not match.boilerplate
            if not is_exact and not (is_near and lengths[1] <= _LARGEST_RATIO * lengths[0]):
                continue
            for original in group:
                if document != original:
                    twin_type: TwinType = "exact" if is_exact else "near-duplicate"
                    twins.setdefault(original, {})[document] = twin_type
    return twins
