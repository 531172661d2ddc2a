"""One document: its whole text with the words that a query shares, its ranks, its score by term."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.errors import MissingError
from r2med.explore.library import Shelf
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.findings import Label, label_of
from r2med.results.diagnosis.lexicon import Piece

if TYPE_CHECKING:
    from r2med.engine.explain import Change

_TERMS = 25
_QUERIES = 20


Place = tuple[str, int, int | None, float | None]
"""A system, how many documents it lists for the query, and this one's rank and score."""


@dataclass(frozen=True, eq=False)
class DocumentData:
    """Everything that the page of a document says."""

    task: str
    suite: str | None
    document_id: str
    query_id: str | None
    query: str
    pieces: tuple[Piece, ...]
    words: int
    shared: int
    label: Label | None
    places: list[Place]
    system: str | None
    terms: tuple[Change, ...]
    answers: list[str]
    """Ids of the queries that it is a positive of."""


def documents_data(
    shelf: Shelf,
    name: str,
    document_ids: Sequence[str],
    *,
    query_id: str | None = None,
    system: str | None = None,
) -> list[DocumentData]:
    """What is known of documents, beside a query where one is named.

    Their words are matched with the query's in one pass. Where texts are left out there are no
    terms either: together they are the words of the text.
    """
    stored = shelf.of_task(name)
    task, missing = shelf.data_of(name, stored)
    if task is None:
        raise MissingError(missing)
    scene = shelf.library.scene(task)
    texts = {each: scene.lexicon.text(each) for each in document_ids}
    for document_id, text in texts.items():
        if text is None:
            raise MissingError(f"{name} has no document {document_id[:100]!r}.")
    if query_id is not None and query_id not in scene.answers:
        raise MissingError(f"{name} has no query {query_id[:100]!r}.")
    known = [text or "" for text in texts.values()]
    query = "" if query_id is None else scene.task.query(query_id)
    marked = scene.lexicon.matched(query, known)
    chosen = stored.get(system or "") or next(iter(stored.values()), None)
    lists = {
        each: shelf.library.ranked(result).ranking_or_empty(query_id)
        for each, result in stored.items()
        if query_id is not None
    }
    terms: dict[str, tuple[Change, ...]] = {}
    if not missing and chosen is not None and query_id is not None:
        from r2med.engine.explain import term_changes

        terms = term_changes(chosen, task, query_id, texts, shelf.library.prepared)
    documents = []
    for document_id, text, pieces in zip(texts, known, marked, strict=True):
        grade = scene.judged.get(query_id or "", {}).get(document_id)
        documents.append(
            DocumentData(
                task=name,
                suite=task.suite,
                document_id=document_id,
                query_id=query_id,
                query=task.query(query_id) if query_id is not None and not missing else "",
                pieces=() if missing else pieces or (Piece(text),),
                words=len(text.split()),
                shared=len({piece.text.lower() for piece in pieces if piece.hit}),
                label=label_of(grade) if query_id is not None else None,
                places=[_place(each, own, document_id) for each, own in lists.items()],
                system=chosen.system if chosen else None,
                terms=terms.get(document_id, ())[:_TERMS],
                answers=scene.evidence.get(document_id, [])[:_QUERIES],
            )
        )
    return documents


def document_page(data: DocumentData, link: Link) -> str:
    """The page of a document."""
    return render(
        "document.html",
        link,
        page="tasks",
        title=f"Document {data.document_id}",
        data=data,
        answer=_answer(data),
        expands=any(change.before != change.after for change in data.terms),
        most=max((abs(change.after) for change in data.terms), default=1.0) or 1.0,
    )


def _answer(data: DocumentData) -> str:
    """What the document is to the query, in a sentence with numbers."""
    if data.query_id is None:
        queries = plural(len(data.answers), "query", "queries")
        return f"{plural(data.words, 'word')}, a positive of {queries}."
    said = {"positive": "is relevant to", "not relevant": "is judged not relevant to"}
    verb = said.get(data.label or "", "is not judged for")
    ranks = [(rank, system) for system, _, rank, _ in data.places if rank]
    where = "Best rank: {}, by {}.".format(*min(ranks)) if ranks else "No stored system lists it."
    shares = plural(data.shared, "different word")
    return f"It {verb} query {data.query_id} and shares {shares} with it. {where}"


def _place(system: str, ranked: list[tuple[str, float]], document_id: str) -> Place:
    for rank, (name, score) in enumerate(ranked, start=1):
        if name == document_id:
            return system, len(ranked), rank, score
    return system, len(ranked), None, None
