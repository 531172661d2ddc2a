"""One query under a microscope: what was generated for it, and which documents that moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from r2med.errors import UsageError, nearest
from r2med.expand.combining import Expanded
from r2med.expand.writing import FromModel
from r2med.retrieve.interface import QueryForm, Searcher, TermSearcher, search_forms
from r2med.runs import Run
from r2med.runs.ties import ordered
from r2med.systems.build import System
from r2med.systems.stages import Expanding, Retrieval
from r2med.tasks.task import Queries, Task

#: How deep documents are looked for; below, a document counts as not found.
DEPTH = 1000


@dataclass(frozen=True)
class Change:
    """A term's share of a document's score, before and after."""

    term: str
    before: float
    after: float

    @property
    def difference(self) -> float:
        """What expansion added, or took."""
        return self.after - self.before


@dataclass(frozen=True)
class Movement:
    """A judged document in both rankings; a rank of None is below `DEPTH`."""

    document_id: str
    text: str
    relevance: int
    rank_before: int | None
    rank_after: int | None
    score_before: float | None
    score_after: float | None
    changes: tuple[Change, ...] | None
    """Term by term, the largest difference first; None where scores are no sums of terms."""

    @property
    def moved(self) -> int | None:
        """Places won; None when it is missing from either ranking."""
        if self.rank_before is None or self.rank_after is None:
            return None
        return self.rank_before - self.rank_after


@dataclass(frozen=True)
class Shown:
    """All there is to say of one query and one expanding system."""

    task: str
    system: str
    retriever: str
    query: Expanded
    form: QueryForm
    source: Mapping[str, object]
    movements: tuple[Movement, ...]


def show(system: System, task: Task, query_id: str) -> Shown:
    """Expand one query, search with and without, and compare what is judged relevant."""
    stage = system.stage
    if not isinstance(stage, Expanding) or not isinstance(stage.first.stage, Retrieval):
        raise UsageError(
            f"show explains an expander and one retriever, as in 'hyde:smollm2 | bm25'; got "
            f"{str(system)!r}."
        )
    alone = _alone(task, query_id)
    bound = stage.bound(alone)
    if isinstance(bound, FromModel):
        bound = replace(bound, keep=False)
    expansion = bound.expand()
    form = expansion.variants[0][0]
    searcher = stage.first.stage.retriever.prepare(task)
    return Shown(
        task=task.name,
        system=str(system),
        retriever=stage.first.text,
        query=expansion.queries[0],
        form=form,
        source=expansion.work,
        movements=tuple(_movements(searcher, stage.first.stage, alone, form)),
    )


def _alone(task: Task, query_id: str) -> Task:
    """The task with one of its queries."""
    ids = task.queries.ids.to_pylist()
    if query_id not in ids:
        raise UsageError(f"{task.name} has no query {query_id!r}. {nearest(query_id, ids)}")
    row = pa.array([ids.index(query_id)])
    queries = task.queries
    return replace(
        task,
        queries=Queries(
            queries.ids.take(row),
            queries.texts.take(row),
            queries.answers.take(row),
            queries.body_systems.take(row),
            queries.reasonings.take(row),
        ),
    )


def _movements(
    searcher: Searcher, stage: Retrieval, alone: Task, form: QueryForm
) -> Sequence[Movement]:
    """Relevant documents, the best placed after expansion first."""
    depth = min(len(alone.corpus.document_ids), DEPTH)
    before = _places(searcher.search(alone.queries, depth=depth), stage, alone)
    after = _places(search_forms(searcher, alone.queries, [form], depth=depth), stage, alone)
    query = alone.queries.texts[0].as_py()
    found = [
        Movement(
            document_id=document,
            text=alone.document(document),
            relevance=relevance,
            rank_before=before.get(document, (None, None))[0],
            rank_after=after.get(document, (None, None))[0],
            score_before=before.get(document, (None, None))[1],
            score_after=after.get(document, (None, None))[1],
            changes=_changes(searcher, query, form.lexical, document),
        )
        for document, relevance in _relevant(alone, form.query_id)
    ]
    return sorted(found, key=lambda movement: movement.rank_after or DEPTH + 1)


def _places(run: Run, stage: Retrieval, alone: Task) -> dict[str, tuple[int, float]]:
    """Rank and score of the documents, ranked as in a result of this retriever.

    To the depth of its run that is the order in which it is measured, ties included; a run ends
    there, and the documents below follow as the search lists them.
    """
    [query] = alone.queries.ids.to_pylist()
    measured = ordered(run.truncated(stage.depth), stage.ties(alone))
    ranking = measured.ranking(query) + run.ranking(query)[stage.depth :]
    return {document: (rank, score) for rank, (document, score) in enumerate(ranking, start=1)}


def _relevant(task: Task, query_id: str) -> list[tuple[str, int]]:
    judged = task.judgements
    own = np.array(judged.query_ids.to_pylist(), dtype=object) == query_id
    rows = np.flatnonzero(own & (judged.scores > 0))
    known = set(task.corpus.document_ids.to_pylist())
    pairs = [(judged.document_ids[int(row)].as_py(), int(judged.scores[row])) for row in rows]
    return [(document, relevance) for document, relevance in pairs if document in known]


def _changes(
    searcher: Searcher, query: str, expanded: str, document: str
) -> tuple[Change, ...] | None:
    if not isinstance(searcher, TermSearcher):
        return None
    before = searcher.contributions(query, document)
    after = searcher.contributions(expanded, document)
    changes = [Change(t, before.get(t, 0.0), after.get(t, 0.0)) for t in before.keys() | after]
    return tuple(sorted(changes, key=lambda change: (-abs(change.difference), change.term)))
