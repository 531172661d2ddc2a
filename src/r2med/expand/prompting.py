"""Prompts as data: one file a method and kind of task, the package's own or the user's."""

from __future__ import annotations

import codecs
import hashlib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.expand.prompt_shape import EXAMPLES, PLACE, Shape
from r2med.tasks.reading.exact import decoded, described
from r2med.tasks.reading.lines import file_errors

if TYPE_CHECKING:
    from r2med.tasks.registry import TaskEntry

TaskKind = Literal["post", "exam", "treatment", "diagnosis", "question"]
KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

#: What a task that is not registered is called in a prompt.
_UNREGISTERED = "question"
_FILES = tuple(f"{kind}.toml" for kind in KINDS)


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


@cache
def methods() -> tuple[str, ...]:
    """The methods that prompts ship for."""
    folders = files("r2med.expand.prompts").iterdir()
    return tuple(sorted(folder.name for folder in folders if (folder / _FILES[0]).is_file()))


@cache
def shape_of(method: str) -> Shape:
    """What the prompt files of a method may and must say."""
    return Shape.of(method, tomllib.loads(_shipped(method, _FILES[-1])))


def read_prompt(method: str, kind: TaskKind, folder: Path | None = None) -> Prompt:
    """The prompt of a method for a kind of task; a user's folder may hold some and not others."""
    file = f"{kind}.toml"
    if folder:
        _check_names(folder, method)
        own = folder / method / file
        if own.is_file():
            return _parsed(_text(own), str(own), method)
        if not any(_prompt_files(own.parent)):
            raise MissingError(
                f"{folder} holds no prompt for {method}, expected {method}/{file} (or another of "
                f"{', '.join(KINDS)}).\n`r2med generate {method} --write-prompts {folder}` puts "
                "ours there to start from."
            )
    return _parsed(_shipped(method, file), f"r2med/expand/prompts/{method}/{file}", method)


def write_prompts(method: str, folder: Path) -> list[Path]:
    """Copy the shipped prompts of a method for editing; what is there already stays."""
    written = []
    for file in _FILES:
        target, shipped = folder / method / file, _shipped(method, file)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(shipped, encoding="utf-8")
            written.append(target)
    return written


def _shipped(method: str, file: str) -> str:
    if method not in methods():
        raise UsageError(f"method {method!r} is not known. {nearest(method, methods())}")
    return (files("r2med.expand.prompts") / method / file).read_text(encoding="utf-8")


def _check_names(folder: Path, method: str) -> None:
    """Refuse prompt files that would never be read, since nothing has their name."""
    for inner in sorted(path for path in folder.iterdir() if path.is_dir()):
        if inner.name not in methods() and any(_prompt_files(inner)):
            raise DataError(
                f"{inner} holds prompts, but {inner.name!r} is not a method. "
                f"{nearest(inner.name, methods())}"
            )
    for file in _prompt_files(folder / method):
        if file.name not in _FILES:
            raise DataError(
                f"{file}: a prompt file is called after a kind of task, such as {_FILES[0]}. "
                f"{nearest(file.stem, KINDS)}"
            )


def _prompt_files(folder: Path) -> Iterator[Path]:
    """The prompt files of one method; names that begin with a dot are an editor's own."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return (path for path in found if path.suffix.lower() == ".toml" and path.name[0] != ".")


def _text(path: Path) -> str:
    with file_errors(path):
        lines = path.read_bytes().removeprefix(codecs.BOM_UTF8).split(b"\n")
    return "\n".join(
        decoded(line, f"{path}, line {number}") for number, line in enumerate(lines, start=1)
    )


def _table(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise DataError(f"{where}: this is not TOML: {problem}.") from None


def _parsed(text: str, where: str, method: str) -> Prompt:
    table = _table(text, where)
    shape_of(method).check(table, where)
    examples = _examples(table.pop(EXAMPLES), where) if EXAMPLES in table else ()
    return Prompt({name: value.strip("\n") for name, value in table.items()}, examples, where)


def _examples(rows: object, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(rows, list) or not rows:
        found = "empty" if rows == [] else described(rows)
        raise DataError(f"{where}: 'examples' is {found}, expected tables [[examples]].")
    return tuple(_example(row, where, number) for number, row in enumerate(rows, start=1))


def _example(row: object, where: str, number: int) -> tuple[str, str]:
    """An example's texts; their line breaks are only for reading the file."""
    match row:
        case {"query": str(query), "passage": str(passage)}:
            return " ".join(query.split()), " ".join(passage.split())
        case _:
            raise DataError(f"{where}: example {number} needs a string query and a string passage.")


def _filled(template: str, values: Mapping[str, str]) -> str:
    """All places at once, so that braces in a query or passage are left alone."""
    return PLACE.sub(lambda place: values.get(place[1], place[0]), template)
