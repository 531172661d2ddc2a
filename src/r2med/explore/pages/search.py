"""The search page: finds systems, tasks, queries and documents by words or ids."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import R2MedError
from r2med.explore.library import Snapshot
from r2med.explore.render import Link, render
from r2med.report.table import snippet
from r2med.results.diagnosis.lexicon import Segment
from r2med.tasks.registry import all_entries

#: Hits of each type that are shown.
_MOST = 20
_EXCERPT = 180
#: Characters before the first match of an excerpt.
_BEFORE = 60


@dataclass(frozen=True)
class SearchHit:
    """One search result."""

    name: str
    segments: Sequence[Segment]
    """The text around the first match; the words of the search are marked."""
    address: str | None
    task: str = ""


def search_page(snapshot: Snapshot, link: Link, words: str) -> str:
    """Return the page of all items that contain every word, or whose id is the search text."""
    terms = words.lower().split()
    groups: dict[str, list[SearchHit]] = {}
    if terms:
        groups = {
            "Systems": _systems(snapshot, link, terms),
            "Tasks": _tasks(snapshot, link, terms),
            **_texts(snapshot, link, terms),
        }
    count = sum(map(len, groups.values()))
    answer = "Type words or an id to find systems, tasks, queries and documents."
    if terms:
        counts = [f"{len(hits)} {name.lower()}" for name, hits in groups.items() if hits]
        summary = ", ".join(counts)
        answer = f"“{words}”: {summary}." if count else f"Nothing here contains “{words}”."
    return render(
        "search.html",
        link,
        page="",
        title=f"Search for {words}" if terms else "Search",
        words=words,
        answer=answer,
        groups={name: hits[:_MOST] for name, hits in groups.items() if hits},
        most=_MOST,
    )


def _systems(snapshot: Snapshot, link: Link, terms: Sequence[str]) -> list[SearchHit]:
    stored = dict.fromkeys(result.system for result in snapshot.results)
    hits = []
    for system in stored:
        name = snapshot.names[system]
        if all(word in f"{system} {name}".lower() for word in terms):
            suites = {snapshot.suite_of(r.task) for r in snapshot.results if r.system == system}
            suite = next((suite for suite in snapshot.suites if suite in suites), None)
            hits.append(SearchHit(name, (), link("system", suite=suite, system=system)))
    return hits


def _tasks(snapshot: Snapshot, link: Link, terms: Sequence[str]) -> list[SearchHit]:
    described = {entry.name: entry.description for entry in all_entries()}
    names = dict.fromkeys([*snapshot.tasks, *described])
    return [
        SearchHit(name, _excerpt(described.get(name, "your data"), terms), link("task", task=name))
        for name in names
        if all(word in f"{name} {described.get(name, '')}".lower() for word in terms)
    ]


def _texts(snapshot: Snapshot, link: Link, terms: Sequence[str]) -> dict[str, list[SearchHit]]:
    """Search the queries and documents of the tasks that have results and data here."""
    queries: list[SearchHit] = []
    documents: list[SearchHit] = []
    for name in snapshot.tasks:
        if not snapshot.library.has_data(name):
            continue
        try:
            task, missing = snapshot.data_of(name, snapshot.of_task(name))
        except R2MedError:
            continue
        if task is None or missing:
            continue
        for row in _rows(task.queries.ids, task.queries.texts, terms):
            query_id, text = task.queries.ids[row].as_py(), task.queries.texts[row].as_py() or ""
            address = link("query", task=name, query=query_id)
            queries.append(SearchHit(query_id, _excerpt(text, terms), address, name))
        ids, texts = task.corpus.document_ids, task.corpus.texts
        if len(ids) != len(texts):  # repeated ids: the last text counts, found by its id alone
            continue
        for row in _rows(ids, texts, terms):
            document_id, text = ids[row].as_py(), texts[row].as_py() or ""
            address = link("document", task=name, document=document_id)
            documents.append(SearchHit(document_id, _excerpt(text, terms), address, name))
    return {"Queries": queries, "Documents": documents}


def _excerpt(text: str, terms: Sequence[str]) -> list[Segment]:
    """Return the part of a text that begins shortly before the first match, in marked segments."""
    flat = " ".join(text.split())
    pattern = re.compile("|".join(map(re.escape, terms)), re.IGNORECASE)
    first = pattern.search(flat)
    start = flat.rfind(" ", 0, max(0, first.start() - _BEFORE)) + 1 if first else 0
    excerpt = ("… " if start else "") + snippet(flat[start:], _EXCERPT)
    segments, end = [], 0
    for match in pattern.finditer(excerpt):
        segments += [Segment(excerpt[end : match.start()]), Segment(match[0], 2)]
        end = match.end()
    return [*segments, Segment(excerpt[end:])]


def _rows(ids: pa.LargeStringArray, texts: pa.LargeStringArray, terms: Sequence[str]) -> list[int]:
    """Return rows whose id is the search text, then rows with all terms; at most `_MOST`."""
    by_id = pc.equal(pc.utf8_lower(ids), " ".join(terms))
    by_text = pc.match_substring(texts, terms[0], ignore_case=True)
    for word in terms[1:]:
        by_text = pc.and_(by_text, pc.match_substring(texts, word, ignore_case=True))
    exact = pc.indices_nonzero(by_id.fill_null(False)).to_pylist()
    containing = pc.indices_nonzero(by_text.fill_null(False)).slice(0, _MOST).to_pylist()
    return list(dict.fromkeys([*exact, *containing]))[:_MOST]
