"""One document: its whole text with the words that a query shares, its ranks, its score by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from r2med.errors import MissingError
from r2med.explore.library import Shelf
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.findings import label_of
from r2med.results.diagnosis.lexicon import Piece

if TYPE_CHECKING:
    from r2med.engine.explain import Change

_TERMS = 25
_QUERIES = 20

Place = tuple[str, int, int | None, float | None]
"""A system, how many documents it lists for the query, and this one's rank and score."""


def document_pages(
    shelf: Shelf,
    link: Link,
    name: str,
    document_ids: Sequence[str],
    *,
    query_id: str | None = None,
    system: str | None = None,
) -> dict[str, str]:
    """The pages of some documents, beside a query where one is named.

    Their words are matched with the query's in one pass. Where texts are left out there are no
    terms either: together they are the words of the text.
    """
    stored = shelf.of_task(name)
    task, missing = shelf.data_of(name, stored)
    if task is None:
        raise MissingError(missing)
    scene = shelf.library.scene(task)
    texts: dict[str, str] = {}
    for document_id in document_ids:
        text = scene.lexicon.text(document_id)
        if text is None:
            raise MissingError(f"{name} has no document {document_id[:100]!r}.")
        texts[document_id] = text
    chosen = stored.get(system or "") or next(iter(stored.values()), None)
    marked: list[tuple[Piece, ...]] = [() for _ in texts]
    lists: dict[str, list[tuple[str, float]]] = {}
    terms: dict[str, tuple[Change, ...]] = {}
    if query_id is not None:
        if query_id not in scene.answers:
            raise MissingError(f"{name} has no query {query_id[:100]!r}.")
        marked = scene.lexicon.matched(task.query(query_id), list(texts.values()))
        for each, result in stored.items():
            lists[each] = shelf.library.ranked(result).ranking_or_empty(query_id)
        if not missing and chosen is not None:
            from r2med.engine.explain import term_changes

            terms = term_changes(chosen, task, query_id, texts, shelf.library.prepared)
    grades = scene.judged.get(query_id or "", {})
    pages = {}
    for (document_id, text), pieces in zip(texts.items(), marked, strict=True):
        label = label_of(grades.get(document_id)) if query_id is not None else None
        places = [_place(each, own, document_id) for each, own in lists.items()]
        answers = scene.evidence.get(document_id, [])[:_QUERIES]
        words = plural(len(text.split()), "word")
        shared = plural(len({piece.text.lower() for piece in pieces if piece.hit}), "uncommon word")
        changes = terms.get(document_id, ())[:_TERMS]
        pages[document_id] = render(
            "document.html",
            link,
            page="tasks",
            title=f"Document {document_id}",
            task=name,
            suite=task.suite,
            document_id=document_id,
            answer=f"{words}, a positive of {plural(len(answers), 'query', 'queries')}."
            if query_id is None
            else _answer(query_id, label, shared, places),
            query_id=query_id,
            query=task.query(query_id) if query_id is not None and not missing else "",
            pieces=() if missing else pieces or (Piece(text),),
            label=label,
            places=places,
            system=chosen.system if chosen else None,
            terms=changes,
            answers=answers,
            expands=any(change.before != change.after for change in changes),
            most=max((abs(change.after) for change in changes), default=1.0) or 1.0,
        )
    return pages


def _answer(query_id: str, label: str | None, shared: str, places: Sequence[Place]) -> str:
    """What the document is to the query, in a sentence with numbers."""
    said = {"positive": "is relevant to", "not relevant": "is judged not relevant to"}
    verb = said.get(label or "", "is not judged for")
    ranks = [(rank, system) for system, _, rank, _ in places if rank]
    where = "Best rank: {}, by {}.".format(*min(ranks)) if ranks else "No stored system lists it."
    return f"It {verb} query {query_id} and shares {shared} with it. {where}"


def _place(system: str, ranked: list[tuple[str, float]], document_id: str) -> Place:
    for rank, (name, score) in enumerate(ranked, start=1):
        if name == document_id:
            return system, len(ranked), rank, score
    return system, len(ranked), None, None
