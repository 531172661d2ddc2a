"""Try it: a typed query through a chosen system, stage by stage, with times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from r2med.explore.library import Snapshot, task_words
from r2med.explore.render import Link, plural, render
from r2med.report.table import snippet
from r2med.tasks.registry import all_entries

if TYPE_CHECKING:
    from r2med.engine.trial import Tried

LONGEST = 20_000
_ALWAYS = ("bm25", "bm25-lucene")
_EXCERPT = 400


def offered(snapshot: Snapshot) -> tuple[list[str], dict[str, str]]:
    """Stored systems that are made of registered stages, and the tasks whose data is here."""
    from r2med.engine.trial import is_plain

    stored = dict.fromkeys(result.system for result in snapshot.results)
    systems = dict.fromkeys([_ALWAYS[0], *filter(is_plain, stored), *_ALWAYS])
    names = dict.fromkeys([*snapshot.tasks, *(entry.name for entry in all_entries())])
    return list(systems), {
        name: task_words(name) for name in filter(snapshot.library.has_data, names)
    }


def trial_page(
    snapshot: Snapshot,
    link: Link,
    *,
    system: str = "",
    task: str = "",
    text: str = "",
    tried: Tried | None = None,
    problem: str = "",
) -> str:
    """The form, and below it what came out, with the words marked that match; or what was wrong."""
    answer, stages = "", []
    if tried is not None:
        data = snapshot.library.task(task)
        lexicon = snapshot.library.scene(data).lexicon
        for part, documents in tried.stages:
            texts = [snippet(lexicon.text(name) or "", _EXCERPT) for name, _ in documents]
            stages.append((part, documents, lexicon.matched(text, texts)))
        [*_, (_, ranked)] = tried.stages
        first = f"ranks {ranked[0][0]} first of" if ranked else "found nothing among"
        of = plural(len(data.corpus.document_ids), "document")
        seconds = sum(cost.seconds for cost in tried.costs)
        answer = f"{system} {first} {of}, in {seconds:.2f} s."
    systems, tasks = offered(snapshot)
    return render(
        "try.html",
        link,
        page="try",
        title=f"{system} tried on {task}" if tried else "Try it",
        systems=systems,
        tasks=tasks,
        system=system,
        task=task,
        text=text,
        tried=tried,
        problem=problem.splitlines(),
        longest=LONGEST,
        answer=answer,
        stages=stages,
    )
