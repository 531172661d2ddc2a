"""Try it: a typed query through a chosen system, stage by stage, with times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from r2med.explore.library import Library, Snapshot, task_words
from r2med.explore.render import Link, plural, render
from r2med.report.table import snippet
from r2med.tasks.registry import all_entries

if TYPE_CHECKING:
    from r2med.engine.trial import Tried

LONGEST = 20_000
_ALWAYS = ("bm25", "bm25-lucene")
_EXCERPT = 400


@dataclass(frozen=True)
class Choice:
    """What can be chosen, and what was."""

    library: Library
    systems: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...]
    system: str = ""
    task: str = ""
    text: str = ""


def choices(snapshot: Snapshot) -> Choice:
    """Stored systems that are made of registered stages, and the tasks whose data is here."""
    from r2med.engine.trial import is_plain

    stored = dict.fromkeys(result.system for result in snapshot.results)
    systems = [_ALWAYS[0], *filter(is_plain, stored), *_ALWAYS]
    names = dict.fromkeys([*snapshot.tasks, *(entry.name for entry in all_entries())])
    return Choice(
        snapshot.library,
        systems=tuple(dict.fromkeys(systems)),
        tasks=tuple((name, task_words(name)) for name in names if snapshot.library.has_data(name)),
    )


def trial_page(choice: Choice, link: Link, tried: Tried | None = None, problem: str = "") -> str:
    """The form, and below it what came out, with the words marked that match; or what was wrong."""
    answer, stages = "", []
    if tried is not None:
        task = choice.library.task(choice.task)
        lexicon = choice.library.scene(task).lexicon
        for part, documents in tried.stages:
            texts = [snippet(lexicon.text(name) or "", _EXCERPT) for name, _ in documents]
            stages.append((part, documents, lexicon.matched(choice.text, texts)))
        [*_, (_, ranked)] = tried.stages
        first = f"ranks {ranked[0][0]} first of" if ranked else "found nothing among"
        of = plural(len(task.corpus.document_ids), "document")
        seconds = sum(cost.seconds for cost in tried.costs)
        answer = f"{choice.system} {first} {of}, in {seconds:.2f} s."
    return render(
        "try.html",
        link,
        page="try",
        title=f"{choice.system} tried on {choice.task}" if tried else "Try it",
        choice=choice,
        tried=tried,
        problem=problem.splitlines(),
        longest=LONGEST,
        answer=answer,
        stages=stages,
    )
