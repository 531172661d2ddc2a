"""The page of a document: its text with the words of a query marked, its ranks, its term scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.render import Link, plural, render
from r2med.report.table import task_label
from r2med.results.diagnosis.causes import TOP
from r2med.results.diagnosis.findings import label_of
from r2med.results.diagnosis.lexicon import Segment

if TYPE_CHECKING:
    from r2med.evaluation.explain import Change

_TERMS = 25
_QUERIES = 20
_VERBS = {"positive": "is relevant to", "not relevant": "is judged not relevant to"}


@dataclass(frozen=True)
class Positive:
    """A relevant document on the page of all positives of a query."""

    document_id: str
    segments: Sequence[Segment]
    """The text of the document; empty if texts are left out."""
    ranks: Sequence[tuple[str, int | None]]
    """The rank of the document under each system; None if the system does not list it."""


def positives_page(
    snapshot: Snapshot, link: Link, name: str, query_id: str, document_ids: Sequence[str]
) -> str:
    """Return one page with all positives of a query, for bundles without a page per document."""
    stored = snapshot.of_task(name)
    task, missing = snapshot.data_of(name, stored)
    if task is None:
        raise MissingError(missing)
    scene = snapshot.library.scene(task)
    chosen = next(iter(stored.values()))
    ranks = {
        system: snapshot.library.ranked_run(result).ranks_of(query_id)
        for system, result in stored.items()
    }
    marked: list[list[Segment]] = [[] for _ in document_ids]
    if not missing:
        from r2med.evaluation.explain import read_generated

        expansion = read_generated(chosen, task, query_id)
        generated = expansion.variants[0][0].lexical if expansion else ""
        texts = [scene.lexicon.text(document_id) or "" for document_id in document_ids]
        marked = scene.lexicon.mark(texts, task.query(query_id), generated)
    documents = [
        Positive(
            document_id,
            segments,
            [
                (system, ranks_of_system.get(document_id))
                for system, ranks_of_system in ranks.items()
            ],
        )
        for document_id, segments in zip(document_ids, marked, strict=True)
    ]
    first = sum(any(rank and rank <= TOP for _, rank in entry.ranks) for entry in documents)
    return render(
        "documents.html",
        link,
        page="tasks",
        title=f"Positives of query {query_id}, {task_label(name)}",
        task=name,
        suite=task.suite,
        query_id=query_id,
        query="" if missing else task.query(query_id),
        answer=f"{first} of {plural(len(documents), 'positive')} are among the first {TOP} of a "
        "stored system.",
        documents=documents,
        names=snapshot.names,
    )


def document_page(
    snapshot: Snapshot,
    link: Link,
    name: str,
    document_id: str,
    *,
    query_id: str | None = None,
    system: str | None = None,
) -> str:
    """Return the page of a document, with its relation to a query if one is named.

    If texts are left out, terms are left out too, because all terms together reveal the text.
    """
    stored = snapshot.of_task(name)
    task, missing = snapshot.data_of(name, stored)
    if task is None:
        raise MissingError(missing)
    scene = snapshot.library.scene(task)
    text = scene.lexicon.text(document_id)
    if text is None:
        raise MissingError(f"{name} has no document {document_id[:100]!r}.")
    answers = scene.evidence.get(document_id, [])[:_QUERIES]
    answer = f"{plural(len(text.split()), 'word')}, a positive of "
    answer += f"{plural(len(answers), 'query', 'queries')}."
    segments: Sequence[Segment] = [Segment(text)]
    rank_rows: list[tuple[Any, ...]] = []
    terms: list[Change] = []
    label, part = None, ""
    if query_id is not None:
        if query_id not in scene.answers:
            raise MissingError(f"{name} has no query {query_id[:100]!r}.")
        query = task.query(query_id)
        generated = ""
        chosen = stored.get(system or "") or next(iter(stored.values()), None)
        if not missing and chosen is not None:
            from r2med.evaluation.explain import read_generated, term_changes

            expansion = read_generated(chosen, task, query_id)
            generated = expansion.variants[0][0].lexical if expansion else ""
            prepared = snapshot.library.prepare_searcher
            part, changes = term_changes(chosen, task, query_id, [document_id], prepared)
            terms = sorted(changes.get(document_id, ()), key=lambda t: (-abs(t.after), t.term))
            spelled = scene.lexicon.spell([t.term for t in terms], f"{text} {query} {generated}")
            terms = [replace(t, term=word) for t, word in zip(terms, spelled, strict=True)]
        [segments] = scene.lexicon.mark([text], query, generated)
        for stored_system, result in stored.items():
            ranked = snapshot.library.ranked_run(result).ranking(query_id)
            listed = {
                listed_id: (rank, score) for rank, (listed_id, score) in enumerate(ranked, start=1)
            }
            rank_rows.append((stored_system, len(listed), *listed.get(document_id, (None, None))))
        label = label_of(scene.judged.get(query_id, {}).get(document_id))
        words = {
            segment.text.lower()
            for segment in segments
            if segment.weight and not segment.is_generated
        }
        shared = plural(len(words), "informative word")
        best = min(
            ((rank, stored_system) for stored_system, _, rank, _ in rank_rows if rank), default=None
        )
        answer = f"It {_VERBS.get(label, 'is not judged for')} query {query_id} and shares "
        answer += f"{shared} with it. "
        answer += (
            f"Best rank: {best[0]}, by {snapshot.names[best[1]]}."
            if best
            else "No stored system lists it."
        )
    return render(
        "document.html",
        link,
        page="tasks",
        title=f"Document {document_id}",
        task=name,
        suite=task.suite,
        document_id=document_id,
        answer=answer,
        query_id=query_id,
        query=task.query(query_id) if query_id is not None and not missing else "",
        pieces=() if missing else segments,
        label=label,
        places=rank_rows,
        part=snapshot.names[part],
        names=snapshot.names,
        has_generated=any(segment.is_generated for segment in segments),
        terms=terms[:_TERMS],
        answers=answers,
        expands=any(change.before != change.after for change in terms[:_TERMS]),
        most=max((abs(change.after) for change in terms), default=1.0) or 1.0,
    )
