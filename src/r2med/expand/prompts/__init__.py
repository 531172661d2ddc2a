"""Prompts as data: TOML files of texts with places to fill in, the package's own or the user's.

Expanders have one file per method and kind of task here, rerankers one file per style beside their
own code. The files that ship define which texts and places exist; a user's file is checked against
them. docs/generation.md describes the form.
"""

from __future__ import annotations

import codecs
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.tasks.reading.jsonl import decoded, described
from r2med.tasks.reading.lines import file_errors

if TYPE_CHECKING:
    from r2med.tasks.registry import TaskEntry

TaskKind = Literal["post", "exam", "treatment", "diagnosis", "question"]
TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

_FILES = tuple(f"{kind}.toml" for kind in TASK_KINDS)
_PLACE = re.compile(r"\{([A-Za-z_]\w*)\}")
_EXAMPLES = "examples"
#: Places that only help the wording; a prompt without any other place would lose what it asks
#: about, or what was found or written for it.
_OPTIONAL = frozenset({"kind", "turns", "count"})


def filled(template: str, **values: str) -> str:
    """The template with all places filled at once, so that braces in a value are left alone."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), template)


def trimmed(text: str, words: int) -> str:
    """The first words of a text, single-spaced; ` ...` says that there was more."""
    split = text.split(maxsplit=words)
    return " ".join(split[:words]) + (" ..." if len(split) > words else "")


@dataclass(frozen=True)
class Prompt:
    """The texts of one prompt file."""

    texts: Mapping[str, str]
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def hash(self) -> str:
        """Identity of every text in the file."""
        rows = [*sorted(self.texts.items()), *self.examples]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    def says(self, text: str, **values: str) -> str:
        """One of the texts with its places filled in."""
        return filled(self.texts[text], **values)

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


def prompt_of(name: str, shipped: Traversable, own: Path | None) -> Prompt:
    """A prompt that ships, or the user's in its place where that file is there.

    A text or place that ours has and the user's lacks, or has and ours does not, is a DataError.
    """
    ours = shipped.read_text(encoding="utf-8")
    known = {
        key: frozenset(_PLACE.findall(text)) if isinstance(text, str) else frozenset()
        for key, text in tomllib.loads(ours).items()
    }
    if own is None or not own.is_file():
        return _parsed(ours, known, name, shipped.name)
    with file_errors(own):
        lines = own.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    texts = (decoded(line, f"{own}, line {number}") for number, line in enumerate(lines, start=1))
    return _parsed("\n".join(texts), known, name, str(own))


def _parsed(text: str, known: Mapping[str, frozenset[str]], name: str, where: str) -> Prompt:
    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise DataError(f"{where}: this is not TOML: {problem}.") from None
    for key in table:
        if key not in known:
            raise DataError(
                f"{where}: {key!r} is not known to {name}, expected {', '.join(known)}."
            )
    for key in known:
        if key not in table:
            raise DataError(f"{where}: {key!r} is missing, {name} needs it.")
    examples = table.pop(_EXAMPLES, None)
    # Only where the request asks for numbers back does a passage need one.
    optional = _OPTIONAL if "count" in known["user"] else _OPTIONAL | {"number"}
    for key, written in table.items():
        if not isinstance(written, str):
            raise DataError(f"{where}: {key!r} is {described(written)}, expected a string.")
        places = set(_PLACE.findall(written))
        if unknown := places - known[key]:
            raise DataError(
                f"{where}: {key!r} holds {_listed(unknown)}, which {name} never fills in; known "
                f"there: {_listed(known[key])}."
            )
        if lacking := known[key] - optional - places:
            raise DataError(
                f"{where}: {key!r} lacks {_listed(lacking)}, which {name} needs there; known: "
                f"{_listed(known[key])}."
            )
    texts = {key: table[key].strip("\n") for key in known if key in table}
    return Prompt(texts, () if examples is None else _examples(examples, where))


def task_kind(entry: TaskEntry | None) -> TaskKind:
    """Which prompts a task gets, by what its queries are and what is wanted for them."""
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
    return entry.kind if entry else "question"


@cache
def methods() -> tuple[str, ...]:
    """The methods that prompts ship for."""
    folders = files("r2med.expand.prompts").iterdir()
    return tuple(sorted(folder.name for folder in folders if (folder / _FILES[0]).is_file()))


def read_prompt(method: str, kind: TaskKind, folder: Path | None = None) -> Prompt:
    """The prompt of a method for a kind of task; a user's folder may hold some and not others.

    Files of a user's that would never be read, since nothing has their name, are refused.
    """
    file = f"{kind}.toml"
    own = folder / method / file if folder else None
    if folder:
        for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
            if inner.name not in methods() and any(_prompt_files(inner)):
                raise DataError(
                    f"{inner} holds prompts, but {inner.name!r} is not a method. "
                    f"{nearest(inner.name, methods())}"
                )
        theirs = list(_prompt_files(folder / method))
        for path in theirs:
            if path.name not in _FILES:
                raise DataError(
                    f"{path}: a prompt file is called after a kind of task, such as {_FILES[0]}. "
                    f"{nearest(path.stem, TASK_KINDS)}"
                )
        if not theirs:
            raise MissingError(
                f"{folder} holds no prompt for {method}, expected {method}/{file} (or another of "
                f"{', '.join(TASK_KINDS)}).\n`r2med generate {method} --write-prompts {folder}` "
                "puts ours there to start from."
            )
    return prompt_of(method, _shipped(method, file), own)


def write_prompts(method: str, folder: Path) -> list[Path]:
    """Copy the shipped prompts of a method for editing; what is there already stays."""
    written = []
    for file in _FILES:
        target, shipped = folder / method / file, _shipped(method, file)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shipped.read_bytes())
            written.append(target)
    return written


def _shipped(method: str, file: str) -> Traversable:
    if method not in methods():
        raise UsageError(f"method {method!r} is not known. {nearest(method, methods())}")
    return files("r2med.expand.prompts") / method / file


def _prompt_files(folder: Path) -> Iterator[Path]:
    """The prompt files of one method; names that begin with a dot are an editor's own."""
    inside = sorted(folder.iterdir()) if folder.is_dir() else []
    return (path for path in inside if path.suffix.lower() == ".toml" and path.name[0] != ".")


def _examples(rows: object, where: str) -> tuple[tuple[str, str], ...]:
    """The texts of the examples; their line breaks are only for reading the file."""
    if not isinstance(rows, list) or not rows:
        what = "empty" if rows == [] else described(rows)
        raise DataError(f"{where}: 'examples' is {what}, expected tables [[examples]].")
    examples = []
    for number, row in enumerate(rows, start=1):
        match row:
            case {"query": str(query), "passage": str(passage)}:
                examples.append((" ".join(query.split()), " ".join(passage.split())))
            case _:
                raise DataError(
                    f"{where}: example {number} needs a string query and a string passage."
                )
    return tuple(examples)


def _listed(places: Set[str]) -> str:
    return ", ".join(f"{{{place}}}" for place in sorted(places)) or "none"
