"""Which pairs are judged: the union of what systems retrieved, and a calibration sample.

Judging only one system's unjudged documents favours that system, because the others keep their
holes; so the pool is the union over all systems.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from r2med.judge.store import Pair
from r2med.runs import Run
from r2med.runs.run import find_positions
from r2med.tasks.task import Task

CALIBRATION = 100


@dataclass(frozen=True)
class Pool:
    """The pairs that systems retrieved: to be judged, equal in text to others, or judged."""

    ask: tuple[Pair, ...]
    """Unjudged pairs with distinct texts per query, which the judge is asked about."""
    copies: Mapping[Pair, Pair]
    """Unjudged pairs with the same text as a pair in `ask`, each mapped to that pair."""
    judged_copies: Mapping[Pair, Pair]
    """Unjudged pairs with the same text as a judged pair, each mapped to that pair."""
    systems: Mapping[Pair, tuple[str, ...]]
    """The systems that retrieved each unjudged pair."""
    judged: int
    """Number of pooled pairs that the benchmark has judged."""

    @property
    def size(self) -> int:
        """Number of pooled pairs, judged or not."""
        return self.judged + len(self.systems)


def pool_runs(task: Task, runs: Mapping[str, Run], *, depth: int) -> Pool:
    """Pool the first `depth` documents of every system for every query of a task.

    Args:
        task: The task that the runs belong to.
        runs: Runs by system, with ties resolved.
        depth: Documents per query and system.
    """
    judged = task.judgements.by_query()
    order = {query_id: rank for rank, query_id in enumerate(task.queries.ids.to_pylist())}
    systems: dict[Pair, dict[str, None]] = {}
    known_pairs: set[Pair] = set()
    for system, run in runs.items():
        for query_id in order:
            for document_id in run.ranked_documents(query_id)[:depth]:
                pair = (query_id, document_id)
                if document_id in judged.get(query_id, {}):
                    known_pairs.add(pair)
                else:
                    systems.setdefault(pair, {})[system] = None
    pairs = sorted(systems, key=lambda pair: (order[pair[0]], pair[1]))
    documents = {document for _, document in pairs}
    documents |= {document for scores in judged.values() for document in scores}
    texts = texts_of(task, documents)
    first = _judged_texts(judged, texts)
    ask: list[Pair] = []
    copies: dict[Pair, Pair] = {}
    judged_copies: dict[Pair, Pair] = {}
    first_asked: dict[tuple[str, str], Pair] = {}
    for pair in pairs:
        content = (pair[0], texts[pair[1]])
        if content in first:
            judged_copies[pair] = first[content]
        elif content in first_asked:
            copies[pair] = first_asked[content]
        else:
            first_asked[content] = pair
            ask.append(pair)
    return Pool(
        ask=tuple(ask),
        copies=copies,
        judged_copies=judged_copies,
        systems={pair: tuple(systems[pair]) for pair in pairs},
        judged=len(known_pairs),
    )


def _judged_texts(
    judged: Mapping[str, Mapping[str, int]], texts: Mapping[str, str]
) -> dict[tuple[str, str], Pair]:
    """Return the pair with the highest score for every query and document text."""
    first: dict[tuple[str, str], Pair] = {}
    for query_id, scores in judged.items():
        best_first = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        for document_id, _ in best_first:
            if document_id in texts:
                first.setdefault((query_id, texts[document_id]), (query_id, document_id))
    return first


def sample_calibration(task: Task, size: int = CALIBRATION) -> list[Pair]:
    """Sample pairs that the benchmark has judged: half relevant, half not, as far as available.

    The sample depends on the ids only, so that every judge is calibrated on the same pairs.
    """
    texts = set(task.corpus.document_ids.to_pylist())
    groups: dict[bool, list[Pair]] = {True: [], False: []}
    for query_id, scores in task.judgements.by_query().items():
        for document_id, score in scores.items():
            if document_id in texts:
                groups[score > 0].append((query_id, document_id))
    positives = draw(groups[True], "calibration")
    negatives = draw(groups[False], "calibration")
    half = max(size - len(negatives), (size + 1) // 2)
    chosen = positives[:half]
    return chosen + negatives[: size - len(chosen)]


def draw(pairs: Iterable[Pair], purpose: str) -> list[Pair]:
    """Return pairs in a fixed pseudo-random order; adding pairs does not reorder the others."""

    def position(pair: Pair) -> bytes:
        return hashlib.sha256("\0".join((purpose, *pair)).encode()).digest()

    return sorted(pairs, key=position)


def texts_of(task: Task, document_ids: Iterable[str]) -> dict[str, str]:
    """Return the texts of documents; ids that the corpus lacks are left out."""
    ids = list(document_ids)
    codes = find_positions(pa.array(ids, pa.large_string()), task.corpus.document_ids)
    is_present = codes >= 0
    rows = task.corpus.last_rows[codes[is_present]]
    texts = task.corpus.texts.take(pa.array(rows)).fill_null("").to_pylist()
    present = [ids[position] for position in np.flatnonzero(is_present)]
    return dict(zip(present, texts, strict=True))


def query_texts(task: Task) -> dict[str, dict[str, str]]:
    """Return the texts that a rubric may use (query, answer and reasoning) by query id."""
    queries = task.queries
    columns: dict[str, Sequence[str | None]] = {
        "query": queries.texts.to_pylist(),
        "answer": queries.answers.to_pylist(),
        "reasoning": queries.reasonings.to_pylist(),
    }
    return {
        query_id: {name: column[row] or "" for name, column in columns.items()}
        for row, query_id in enumerate(queries.ids.to_pylist())
    }
