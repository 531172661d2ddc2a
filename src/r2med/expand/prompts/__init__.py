"""Prompts: TOML files of texts with placeholders, of this package or of the user.

Expanders have one file per method and type of task in this folder; rerankers have one file per
style in `rerank/`. A user's file must have the same texts and placeholders as the package's file.
docs/generation.md describes the format.
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

PromptType = Literal["post", "exam", "treatment", "diagnosis", "question"]
PROMPT_TYPES: tuple[PromptType, ...] = get_args(PromptType)

_FILES = tuple(f"{prompt_type}.toml" for prompt_type in PROMPT_TYPES)
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_EXAMPLES = "examples"
#: Placeholders that a user's prompt may leave out; all others carry the query or passages.
_OPTIONAL = frozenset({"kind", "turns", "count"})


def fill_template(template: str, **values: str) -> str:
    """Replace all placeholders at once, so that braces inside a value are not replaced."""
    return _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), template)


def truncate_words(text: str, count: int) -> str:
    """Return the first words of a text, single-spaced, and ` ...` if there are more."""
    words = text.split(maxsplit=count)
    if len(words) <= count:
        return " ".join(words)
    return " ".join(words[:count]) + " ..."


@dataclass(frozen=True)
class Prompt:
    """The texts of one prompt file."""

    texts: Mapping[str, str]
    examples: tuple[tuple[str, str], ...] = ()

    @property
    def hash(self) -> str:
        """The hash of all texts and examples."""
        rows = [*sorted(self.texts.items()), *self.examples]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    def fill(self, text: str, **values: str) -> str:
        """Return one of the texts, by its name in the file, with its placeholders replaced."""
        return fill_template(self.texts[text], **values)

    def opening_request(self, *, query_type: str, query: str, **values: str) -> str:
        """Return the first prompt for a query, with the examples of the file if there are any."""
        examples = [
            self.fill("example", kind=query_type, query=example_query, passage=passage)
            for example_query, passage in self.examples
        ]
        return self.fill(
            "user", kind=query_type, query=query, examples="\n\n".join(examples), **values
        )

    def list_passages(self, texts: Sequence[str], *, words: int) -> str:
        """Return passages for a prompt: numbered from 1, each cut after `words` words."""
        return "\n\n".join(
            self.fill("passage", number=str(number), passage=truncate_words(text, words))
            for number, text in enumerate(texts, start=1)
        )


def load_prompt(name: str, shipped: Traversable, user_file: Path | None) -> Prompt:
    """Load the user's prompt file if it exists, otherwise the shipped one.

    DataError is raised if the user's file has other texts or placeholders than the shipped one.
    """
    shipped_table = tomllib.loads(shipped.read_text(encoding="utf-8"))
    if user_file is None or not user_file.is_file():
        return _make_prompt(shipped_table, shipped.name)
    with file_errors(user_file):
        table = read_toml(user_file)
    if table.keys() != shipped_table.keys():
        raise DataError(
            f"{user_file}: it contains {', '.join(table) or 'nothing'}; expected the texts of "
            f"{name}: {', '.join(shipped_table)}."
        )
    optional = _OPTIONAL
    if "count" not in _placeholders(shipped_table["user"]):
        optional |= {"number"}  # the model does not have to name passages by their numbers
    for key, text in table.items():
        if key == _EXAMPLES:
            continue
        if not isinstance(text, str):
            raise DataError(f"{user_file}: {key!r} is {describe_value(text)}, expected a string.")
        placeholders, allowed = _placeholders(text), _placeholders(shipped_table[key])
        required = allowed - optional
        if not required <= placeholders <= allowed:
            raise DataError(
                f"{user_file}: {key!r} has the placeholders {_join_names(placeholders)}; {name} "
                f"allows {_join_names(allowed)} and requires {_join_names(required)}."
            )
    return _make_prompt(table, str(user_file))


def hash_prompt_file(content: bytes) -> str | None:
    """Return the hash of the prompt in a file, as records have it; None if it is not a prompt."""
    try:
        return _make_prompt(tomllib.loads(content.decode("utf-8")), "").hash
    except (ValueError, AttributeError, DataError):
        return None


def _make_prompt(table: Mapping[str, Any], source: str) -> Prompt:
    """Make a prompt from the table of a file; line breaks in examples become spaces."""
    texts = {key: text.strip("\n") for key, text in table.items() if key != _EXAMPLES}
    try:
        examples = tuple(
            (" ".join(row["query"].split()), " ".join(row["passage"].split()))
            for row in table.get(_EXAMPLES, ())
        )
    except (TypeError, KeyError, AttributeError):
        examples = ()
    if _EXAMPLES in table and not examples:
        raise DataError(f"{source}: expected tables [[examples]], each with a query and a passage.")
    return Prompt(texts, examples)


def _placeholders(text: str) -> set[str]:
    return set(_PLACEHOLDER.findall(text))


def choose_prompt_type(entry: TaskEntry | None) -> PromptType:
    """Choose the prompts for a task by the type and the purpose of its queries."""
    if entry is None:
        return "question"
    if "similar cases" in entry.purpose:
        return "diagnosis"
    query_type = entry.kind.lower()
    if query_type.endswith("post"):
        return "post"
    return "exam" if "exam" in query_type else "treatment"


def describe_query_type(entry: TaskEntry | None) -> str:
    """Return the name of a task's queries for prompts, such as `Biology post`."""
    return entry.kind if entry else "question"


@cache
def methods() -> tuple[str, ...]:
    """Return the names of all methods with prompts in this package."""
    folders = files("r2med.expand.prompts").iterdir()
    return tuple(sorted(folder.name for folder in folders if (folder / _FILES[0]).is_file()))


def read_prompt(method: str, prompt_type: PromptType, folder: Path | None = None) -> Prompt:
    """Read the prompt of a method for a type of task, from the user's folder or the package.

    The user's folder may have files for some types only. A file that would never be read, because
    its name is not a type, is a DataError.
    """
    file_name = f"{prompt_type}.toml"
    shipped = _find_shipped(method, file_name)
    if folder is None:
        return load_prompt(method, shipped, None)
    paths = (folder / method).glob("[!.]*")
    user_files = {path.name for path in paths if path.suffix.lower() == ".toml"}
    for unknown in sorted(user_files - set(_FILES)):
        raise DataError(
            f"{folder / method / unknown}: the name of a prompt file is a type of task, such as "
            f"{_FILES[0]}. {nearest(Path(unknown).stem, PROMPT_TYPES)}"
        )
    if not user_files:
        raise MissingError(
            f"{folder} has no prompt for {method}, expected {method}/{file_name} (or another of "
            f"{', '.join(PROMPT_TYPES)}).\n`r2med generate {method} --write-prompts {folder}` "
            "writes the default prompts there."
        )
    return load_prompt(method, shipped, folder / method / file_name)


def write_prompts(method: str, folder: Path) -> list[Path]:
    """Copy the shipped prompts of a method for editing; existing files are not overwritten."""
    written = []
    for file_name in _FILES:
        target, shipped = folder / method / file_name, _find_shipped(method, file_name)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(shipped.read_bytes())
            written.append(target)
    return written


def _find_shipped(method: str, file_name: str) -> Traversable:
    if method not in methods():
        raise UsageError(f"method {method!r} is not known. {nearest(method, methods())}")
    return files("r2med.expand.prompts") / method / file_name


def _join_names(placeholders: Set[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(placeholders)) or "none"
