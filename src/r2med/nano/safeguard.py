"""The rank-101 safeguard of the published hybrid candidates.

Only where the 100 candidates of a query hold no positive, one positive is appended below them, so
that a reranker has something to find. It leaks an answer: a system is scored without it, too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from r2med.nano.pool import SEED
from r2med.runs import Run
from r2med.tasks.task import Judgements


def positives_of(judgements: Judgements) -> dict[str, list[str]]:
    """The positive documents of every query that has any, sorted."""
    found: dict[str, list[str]] = {}
    rows = zip(
        judgements.query_ids.to_pylist(),
        judgements.document_ids.to_pylist(),
        judgements.scores.tolist(),
        strict=True,
    )
    for query, document, score in rows:
        if score > 0:
            found.setdefault(query, []).append(document)
    return {query: sorted(documents) for query, documents in found.items()}


def safeguards(run: Run, judgements: Judgements, *, split: str) -> dict[str, str]:
    """For every query whose list holds no positive, the positive that is chosen for it."""
    positives = positives_of(judgements)
    chosen = {}
    for row, query in enumerate(run.query_ids.to_pylist()):
        if query not in positives:
            continue
        found = run.documents[run.offsets[row] : run.offsets[row + 1]]
        listed = {run.document_ids[int(document)].as_py() for document in found}
        if listed.isdisjoint(positives[query]):
            chosen[query] = _choice(positives[query], split, query)
    return chosen


def with_safeguards(run: Run, chosen: Mapping[str, str]) -> Run:
    """The run with the chosen positives below its lists; scores are falling ranks."""
    lists = {}
    for query in run.query_ids.to_pylist():
        names = [name for name, _ in run.ranking(query)]
        names += [chosen[query]] if query in chosen else []
        lists[query] = [(name, -float(rank)) for rank, name in enumerate(names, start=1)]
    return Run.from_lists(lists)


def _choice(positives: list[str], split: str, query: str) -> str:
    return random.Random(f"{SEED}\0{split}\0{query}\0positive_safeguard").choice(positives)
