"""Prompts as data: TOML files of texts with places to fill in, the package's own or the user's.

Expanders have one file per method and kind of task here, rerankers one file per style beside their
own code. The files that ship define which texts and places exist; a user's file is checked against
them. docs/generation.md describes the form.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.settings import read_toml
from r2med.tasks.reading.jsonl import describe_value
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


def fill_template(template: str, **values: str) -> str:
    """The template with all places filled at once, so that braces in a value are left alone."""
    return _PLACE.sub(lambda place: values.get(place[1], place[0]), template)


def truncate_words(text: str, words: int) -> str:
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
        return fill_template(self.texts[text], **values)

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
            self.says("passage", number=str(number), passage=truncate_words(text, words))
            for number, text in enumerate(texts, start=1)
        )


def prompt_of(name: str, shipped: Traversable, own: Path | None) -> Prompt:
    """A prompt that ships, or the user's in its place where that file is there.

    A text or place that ours has and the user's lacks, or has and ours does not, is a DataError.
    """
    ours = tomllib.loads(shipped.read_text(encoding="utf-8"))
    if own is None or not own.is_file():
        return _prompt(ours, shipped.name)
    with file_errors(own):
        table = read_toml(own)
    if table.keys() != ours.keys():
        raise DataError(
            f"{own}: it holds {', '.join(table) or 'nothing'}; expected the texts of {name}: "
            f"{', '.join(ours)}."
        )
    # Only where the request asks for numbers back does a passage need one.
    optional = _OPTIONAL if "count" in _places(ours["user"]) else _OPTIONAL | {"number"}
    for key, text in table.items():
        if key == _EXAMPLES:
            continue
        if not isinstance(text, str):
            raise DataError(f"{own}: {key!r} is {describe_value(text)}, expected a string.")
        places, known = _places(text), _places(ours[key])
        if not known - optional <= places <= known:
            raise DataError(
                f"{own}: {key!r} holds {_join_names(places)}; {name} fills in "
                f"{_join_names(known)} there, and needs {_join_names(known - optional)}."
            )
    return _prompt(table, str(own))


def _prompt(table: Mapping[str, Any], where: str) -> Prompt:
    """The texts of a file; line breaks in its examples are only for reading the file."""
    texts = {key: text.strip("\n") for key, text in table.items() if key != _EXAMPLES}
    try:
        rows = [(row["query"].split(), row["passage"].split()) for row in table.get(_EXAMPLES, ())]
    except (TypeError, KeyError, AttributeError):
        rows = []
    if _EXAMPLES in table and not rows:
        raise DataError(f"{where}: expected tables [[examples]], each a query and a passage.")
    return Prompt(texts, tuple((" ".join(query), " ".join(passage)) for query, passage in rows))


def _places(text: str) -> set[str]:
    return set(_PLACE.findall(text))


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


def query_noun(entry: TaskEntry | None) -> str:
    """What a query of the task is called in a prompt, such as `Biology post`."""
    return entry.kind if entry else "question"


@cache
def methods() -> tuple[str, ...]:
    """The methods that prompts ship for."""
    folders = files("r2med.expand.prompts").iterdir()
    return tuple(sorted(folder.name for folder in folders if (folder / _FILES[0]).is_file()))


def read_prompt(method: str, kind: TaskKind, folder: Path | None = None) -> Prompt:
    """The prompt of a method for a kind of task; a user's folder may hold some and not others.

    A file of the user's that would never be read, since no kind of task has its name, is refused.
    """
    shipped, own = _read_shipped(method, f"{kind}.toml"), None
    if folder:
        paths = (folder / method).glob("[!.]*")
        theirs = {path.name for path in paths if path.suffix.lower() == ".toml"}
        for wrong in sorted(theirs - set(_FILES)):
            raise DataError(
                f"{folder / method / wrong}: a prompt file is called after a kind of task, such as "
                f"{_FILES[0]}. {nearest(Path(wrong).stem, TASK_KINDS)}"
            )
        if not theirs:
            raise MissingError(
                f"{folder} holds no prompt for {method}, expected {method}/{kind}.toml (or another "
                f"of {', '.join(TASK_KINDS)}).\n`r2med generate {method} --write-prompts {folder}` "
                "puts ours there to start from."
            )
        own = folder / method / f"{kind}.toml"
    return prompt_of(method, shipped, own)


def write_prompts(method: str, folder: Path) -> list[Path]:
    """Copy the shipped prompts of a method for editing; what is there already stays."""
    written = []
    for file in _FILES:
        target, shipped = folder / method / file, _read_shipped(method, file)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shipped.read_bytes())
            written.append(target)
    return written


def _read_shipped(method: str, file: str) -> Traversable:
    if method not in methods():
        raise UsageError(f"method {method!r} is not known. {nearest(method, methods())}")
    return files("r2med.expand.prompts") / method / file


def _join_names(places: Set[str]) -> str:
    return ", ".join(f"{{{place}}}" for place in sorted(places)) or "none"
