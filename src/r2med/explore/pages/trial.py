"""Try it: a typed query through a chosen system, stage by stage, with times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.explore.library import Library, Shelf, entry_of
from r2med.explore.render import Link, plural, render
from r2med.results.diagnosis.lexicon import Piece
from r2med.tasks.registry import all_entries
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.engine.trial import Tried

LONGEST = 20_000
_ALWAYS = ("bm25", "bm25-lucene")
_EXCERPT = 400


@dataclass(frozen=True)
class Choice:
    """What can be chosen, and what was."""

    systems: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    system: str = ""
    task: str = ""
    text: str = ""


def choices(library: Library, shelf: Shelf) -> Choice:
    """Stored systems that are made of registered stages, and the tasks whose data is here."""
    from r2med.engine.trial import is_plain

    stored = dict.fromkeys(result.system for result in shelf.results)
    systems = [*(name for name in stored if is_plain(name)), *_ALWAYS]
    names = [
        *(name for name in shelf.tasks if library.has_data(name)),
        *(entry.name for entry in all_entries() if library.has_data(entry.name)),
    ]
    return Choice(
        systems=tuple(dict.fromkeys(systems)),
        tasks=tuple((name, _words(name)) for name in dict.fromkeys(names)),
    )


def trial_page(
    choice: Choice,
    link: Link,
    *,
    tried: Tried | None = None,
    task: Task | None = None,
    marked: Sequence[Sequence[tuple[Piece, ...]]] = (),
    problem: str = "",
) -> str:
    """The form, and below it what came out."""
    return render(
        "try.html",
        link,
        page="try",
        title=f"{tried.system} tried on {tried.task}" if tried else "Try it",
        choice=choice,
        tried=tried,
        stages=list(zip(tried.stages, marked, strict=True)) if tried else [],
        answer=answer(tried, task) if tried and task else "",
        problem=problem.splitlines(),
        longest=LONGEST,
    )


def answer(tried: Tried, task: Task) -> str:
    """What came first and how long it took."""
    seconds = sum(cost.seconds for cost in tried.costs)
    ranked = tried.stages[-1].documents
    of = plural(len(task.corpus.document_ids), "document")
    if not ranked:
        return f"{tried.system} found nothing among {of}, in {seconds:.2f} s."
    return f"{tried.system} ranks {ranked[0][0]} first of {of}, in {seconds:.2f} s."


def excerpts(tried: Tried, library: Library, task: Task) -> list[list[tuple[Piece, ...]]]:
    """For every stage the heads of its documents, with the words marked that the query has."""
    scene = library.scene(task)
    found = []
    for stage in tried.stages:
        texts = [scene.lexicon.text(name) or "" for name, _ in stage.documents]
        found.append(scene.matched_with(tried.text, [_head(text) for text in texts]))
    return found


def _head(text: str) -> str:
    """The first words of a text."""
    return text if len(text) <= _EXCERPT else text[:_EXCERPT].rpartition(" ")[0] + " …"


def _words(name: str) -> str:
    entry = entry_of(name)
    return f"{entry.source} ({entry.suite})" if entry else name
