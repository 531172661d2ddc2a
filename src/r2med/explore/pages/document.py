"""One document: its whole text with the words that a query shares, its ranks, its score by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.findings import label_of

if TYPE_CHECKING:
    from r2med.engine.explain import Changes

_TERMS = 25
_QUERIES = 20
_VERBS = {"positive": "is relevant to", "not relevant": "is judged not relevant to"}


def document_pages(
    snapshot: Snapshot,
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
    stored = snapshot.of_task(name)
    task, missing = snapshot.data_of(name, stored)
    if task is None:
        raise MissingError(missing)
    scene = snapshot.library.scene(task)
    texts: dict[str, str] = {}
    for document_id in document_ids:
        text = scene.lexicon.text(document_id)
        if text is None:
            raise MissingError(f"{name} has no document {document_id[:100]!r}.")
        texts[document_id] = text
    marked = [[text] for text in texts.values()]
    lists: dict[str, dict[str, tuple[int, float]]] = {}
    part = ""
    terms: Changes = {}
    if query_id is not None:
        if query_id not in scene.answers:
            raise MissingError(f"{name} has no query {query_id[:100]!r}.")
        marked = scene.lexicon.matched(task.query(query_id), list(texts.values()))
        for each, result in stored.items():
            ranked = enumerate(snapshot.library.ranked(result).ranking(query_id), start=1)
            lists[each] = {document: (rank, score) for rank, (document, score) in ranked}
        chosen = stored.get(system or "") or next(iter(stored.values()), None)
        if not missing and chosen is not None:
            from r2med.engine.explain import term_changes

            part, terms = term_changes(chosen, task, query_id, texts, snapshot.library.prepared)
    grades = scene.judged.get(query_id or "", {})
    pages = {}
    for (document_id, text), pieces in zip(texts.items(), marked, strict=True):
        label = label_of(grades.get(document_id))
        places = [
            (each, len(own), *own.get(document_id, (None, None))) for each, own in lists.items()
        ]
        answers = scene.evidence.get(document_id, [])[:_QUERIES]
        answer = f"{plural(len(text.split()), 'word')}, a positive of "
        answer += f"{plural(len(answers), 'query', 'queries')}."
        if query_id is not None:
            shared = plural(len({word.lower() for word in pieces[1::2]}), "uncommon word")
            best = min(((rank, each) for each, _, rank, _ in places if rank), default=None)
            verb = _VERBS.get(label, "is not judged for")
            answer = f"It {verb} query {query_id} and shares {shared} with it. "
            answer += (
                f"Best rank: {best[0]}, by {best[1]}." if best else "No stored system lists it."
            )
        changes = sorted(terms.get(document_id, ()), key=lambda each: (-abs(each.after), each.term))
        pages[document_id] = render(
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
            label=label if query_id is not None else None,
            places=places,
            part=part,
            terms=changes[:_TERMS],
            answers=answers,
            expands=any(change.before != change.after for change in changes[:_TERMS]),
            most=max((abs(change.after) for change in changes), default=1.0) or 1.0,
        )
    return pages
