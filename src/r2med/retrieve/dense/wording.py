"""Instructions in a task's own words: templates are data, and so are the words put into them."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from r2med.tasks.task import Task


@dataclass(frozen=True)
class Wording:
    """What the placeholders of an instruction stand for on one task."""

    kind: str
    """What a query is: `Biology post`."""
    purpose: str
    """What is wanted of it: `retrieve relevant passages that help answer the post`."""
    goal: str
    """The same as a phrase: `for retrieving relevant paragraphs`."""
    passage: str
    """What a document is: `Biology paragraph`."""

    def apply(self, template: str) -> str:
        """The instruction; braces that are no placeholder stay as they are."""
        for name in ("kind", "purpose", "goal", "passage"):
            template = template.replace("{" + name + "}", getattr(self, name))
        return template


def wording_of(task: Task, *, kind: str = "", purpose: str = "") -> Wording:
    """The task's registered words, those of the default for data of the user's own, or as told."""
    entry = task.entry
    known = _known()
    kind = kind or (entry.kind if entry else known[0].kind)
    purpose = purpose or (entry.purpose if entry else known[0].purpose)
    alike = [words for words in known if words.purpose == purpose]
    best = next((words for words in alike if words.kind == kind), (alike or known)[0])
    return Wording(kind, purpose, best.goal, best.passage)


@cache
def _known() -> tuple[Wording, ...]:
    text = (files("r2med.retrieve.dense") / "wording.toml").read_text(encoding="utf-8")
    return tuple(Wording(**row) for row in tomllib.loads(text)["wording"])
