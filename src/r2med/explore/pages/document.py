"""One document: its whole text with the words that a query shares, its ranks, its score by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.findings import label_of

if TYPE_CHECKING:
    from r2med.engine.explain import Change

_TERMS = 25
_QUERIES = 20
_VERBS = {"positive": "is relevant to", "not relevant": "is judged not relevant to"}


def document_page(
    snapshot: Snapshot,
    link: Link,
    name: str,
    document_id: str,
    *,
    query_id: str | None = None,
    system: str | None = None,
) -> str:
    """The page of a document, beside a query where one is named.

    Where texts are left out there are no terms either: together they are the words of the text.
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
    pieces: Sequence[str] = [text]
    places: list[tuple[Any, ...]] = []
    terms: list[Change] = []
    label, part = None, ""
    if query_id is not None:
        if query_id not in scene.answers:
            raise MissingError(f"{name} has no query {query_id[:100]!r}.")
        [pieces] = scene.lexicon.matched(task.query(query_id), [text])
        for each, result in stored.items():
            ranked = snapshot.library.ranked(result).ranking(query_id)
            listed = {other: (rank, score) for rank, (other, score) in enumerate(ranked, start=1)}
            places.append((each, len(listed), *listed.get(document_id, (None, None))))
        label = label_of(scene.judged.get(query_id, {}).get(document_id))
        shared = plural(len({word.lower() for word in pieces[1::2]}), "uncommon word")
        best = min(((rank, each) for each, _, rank, _ in places if rank), default=None)
        answer = f"It {_VERBS.get(label, 'is not judged for')} query {query_id} and shares "
        answer += f"{shared} with it. "
        answer += f"Best rank: {best[0]}, by {best[1]}." if best else "No stored system lists it."
        chosen = stored.get(system or "") or next(iter(stored.values()), None)
        if not missing and chosen is not None:
            from r2med.engine.explain import term_changes

            prepared = snapshot.library.prepared
            part, changes = term_changes(chosen, task, query_id, [document_id], prepared)
            terms = sorted(changes.get(document_id, ()), key=lambda t: (-abs(t.after), t.term))
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
        pieces=() if missing else pieces,
        label=label,
        places=places,
        part=part,
        terms=terms[:_TERMS],
        answers=answers,
        expands=any(change.before != change.after for change in terms[:_TERMS]),
        most=max((abs(change.after) for change in terms), default=1.0) or 1.0,
    )
