"""Prompts as data: one file a method and kind of task, the package's own or the user's."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from r2med.errors import DataError, MissingError

if TYPE_CHECKING:
    from r2med.tasks.registry import TaskEntry

TaskKind = Literal["post", "exam", "treatment", "diagnosis", "question"]
KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

#: What a task that is not registered is called in a prompt.
_UNREGISTERED = "question"
_PLACE = re.compile(r"\{([a-z]+)\}")
_EXAMPLES = "{examples}"

#: Which texts a prompt file may hold, and what may be filled into each.
_TEXTS: Mapping[str, frozenset[str]] = {
    "user": frozenset({"kind", "query", "examples", "passages", "turns"}),
    "example": frozenset({"kind", "query", "passage"}),
    "results": frozenset({"passages"}),
    "passage": frozenset({"number", "passage"}),
    "nothing": frozenset(),
    "malformed": frozenset(),
    "last": frozenset(),
}


@dataclass(frozen=True)
class Prompt:
    """The texts of one prompt file, and where they were read."""

    texts: Mapping[str, str]
    examples: tuple[tuple[str, str], ...]
    where: str

    @property
    def hash(self) -> str:
        """Identity of every text in the file."""
        rows = [*sorted(self.texts.items()), *self.examples]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    def says(self, text: str, **values: str) -> str:
        """One of the texts with its places filled in."""
        if text not in self.texts:
            raise DataError(f"{self.where}: the text {text!r} is missing; this method needs it.")
        return _filled(self.texts[text], values)

    def first(self, *, kind: str, query: str, **values: str) -> str:
        """The opening request, with the examples where the file has them."""
        shots = [
            self.says("example", kind=kind, query=asked, passage=passage)
            for asked, passage in self.examples
        ]
        return self.says("user", kind=kind, query=query, examples="\n\n".join(shots), **values)

    def passages(self, texts: Sequence[str], *, words: int) -> str:
        """Passages as the model reads them: numbered from 1, each cut after so many words."""
        return "\n\n".join(
            self.says("passage", number=str(number), passage=trimmed(text, words))
            for number, text in enumerate(texts, start=1)
        )


def trimmed(text: str, words: int) -> str:
    """The first words of a text, single-spaced; ` ...` says that there was more."""
    found = text.split(maxsplit=words)
    return " ".join(found[:words]) + (" ..." if len(found) > words else "")


def kind_of(entry: TaskEntry | None) -> TaskKind:
    """Which prompts a task gets: told by what its queries are and what is wanted for them."""
    if entry is None:
        return "question"
    if "similar cases" in entry.purpose:
        return "diagnosis"
    kind = entry.kind.lower()
    if kind.endswith("post"):
        return "post"
    return "exam" if "exam" in kind else "treatment"


def called(entry: TaskEntry | None) -> str:
    """What a query of the task is called in a prompt, such as `Biology post`."""
    return entry.kind if entry else _UNREGISTERED


def read_prompt(method: str, kind: TaskKind, folder: Path | None = None) -> Prompt:
    """The prompt of a method for a kind of task; a user's folder may hold some and not others."""
    own = folder / method / f"{kind}.toml" if folder else None
    if own and own.is_file():
        return _parsed(own.read_text(encoding="utf-8"), str(own))
    if folder and not any((folder / method).glob("*.toml")):
        raise MissingError(
            f"{folder} holds no prompt for {method}, expected {method}/{kind}.toml (or another of "
            f"{', '.join(KINDS)}).\n`r2med generate {method} --write-prompts {folder}` puts ours "
            "there to start from."
        )
    name = f"{method}/{kind}.toml"
    return _parsed(_shipped(method, kind), f"r2med/expand/prompts/{name}")


def write_prompts(method: str, folder: Path) -> list[Path]:
    """Copy the shipped prompts of a method for editing; what is there already stays."""
    written = []
    for kind in KINDS:
        target = folder / method / f"{kind}.toml"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_shipped(method, kind), encoding="utf-8")
            written.append(target)
    return written


def _shipped(method: str, kind: str) -> str:
    return (files("r2med.expand.prompts") / method / f"{kind}.toml").read_text(encoding="utf-8")


def _parsed(text: str, where: str) -> Prompt:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise DataError(f"{where}: this is not TOML: {problem}.") from None
    examples = table.pop("examples", [])
    for name, value in table.items():
        _check(name, value, where)
    if "{query}" not in table.get("user", ""):
        raise DataError(f'{where}: the text "user" is missing or has no place for {{query}}.')
    prompt = Prompt(
        {name: value.strip("\n") for name, value in table.items()},
        tuple(_example(row, where, number) for number, row in enumerate(examples, start=1)),
        where,
    )
    if prompt.examples and "example" not in table:
        raise DataError(f'{where}: there are examples, but no text "example" says how to put them.')
    if (_EXAMPLES in table["user"]) != bool(prompt.examples):
        raise DataError(f'{where}: examples and {_EXAMPLES} in "user" go together; one is missing.')
    return prompt


def _check(name: str, value: object, where: str) -> None:
    if name not in _TEXTS:
        known = ", ".join(_TEXTS)
        raise DataError(f"{where}: {name!r} is not known, expected {known} or examples.")
    if not isinstance(value, str):
        raise DataError(f"{where}: {name!r} is a {type(value).__name__}, expected a string.")
    unknown = [place for place in _PLACE.findall(value) if place not in _TEXTS[name]]
    if unknown:
        allowed = ", ".join(f"{{{place}}}" for place in sorted(_TEXTS[name])) or "none"
        raise DataError(
            f"{where}: {name!r} has a place {{{unknown[0]}}} that is never filled; "
            f"known: {allowed}."
        )


def _example(row: object, where: str, number: int) -> tuple[str, str]:
    """An example's texts; their line breaks are only for reading the file."""
    match row:
        case {"query": str(query), "passage": str(passage)}:
            return " ".join(query.split()), " ".join(passage.split())
        case _:
            raise DataError(f"{where}: example {number} needs a string query and a string passage.")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """All places at once, so that braces in a query or passage are left alone."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), template)
