"""Prompts that ask a model to answer, as TOML files: with passages and without."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.paths import user_path
from r2med.remote.completions import Message
from r2med.settings import read_toml

DEFAULT = "default"
NO_PASSAGES = "(none)"
_FOLDER = Path(__file__).parent / "prompts"
_FIELD = re.compile(r"\{([a-z_]+)\}")
#: The fields that each text of a prompt must and may have.
_FIELDS = {
    "passage": {"number", "text"},
    "closed_book": {"question"},
    "with_passages": {"question", "passages"},
}


@dataclass(frozen=True)
class AnswerPrompt:
    """The texts that ask for an answer."""

    name: str
    description: str
    version: int
    system: str
    closed_book: str
    with_passages: str
    passage: str
    longest_passage: int
    """Characters after which a passage is cut."""

    @property
    def hash(self) -> str:
        """Hash of the prompt's texts; the file's name is not included."""
        values = {key: value for key, value in asdict(self).items() if key != "name"}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def messages(self, question: str, passages: Sequence[str] | None) -> tuple[Message, ...]:
        """Return the conversation that asks a question; without passages if they are None.

        Texts are inserted in a single pass, so that braces in a text stay unchanged.
        """
        if passages is None:
            user = _fill(self.closed_book, {"question": question})
        else:
            numbered = [
                _fill(self.passage, {"number": str(number), "text": self.shorten(text)})
                for number, text in enumerate(passages, start=1)
            ]
            texts = {"question": question, "passages": "\n\n".join(numbered) or NO_PASSAGES}
            user = _fill(self.with_passages, texts)
        system = [Message("system", self.system.strip())] if self.system.strip() else []
        return (*system, Message("user", user.strip()))

    def shorten(self, text: str) -> str:
        """Cut a passage that is too long."""
        if len(text) <= self.longest_passage:
            return text.strip()
        return text[: self.longest_passage].rstrip() + " …"


def find_prompt(name: str) -> AnswerPrompt:
    """Return a prompt of the package by name, or the prompt in a TOML file by path.

    Raises:
        UsageError: No prompt has this name.
        MissingError: The file does not exist.
        DataError: The file is not a valid prompt.
    """
    if name.endswith(".toml") or "/" in name:
        path = user_path(name, "--prompt")
        if not path.is_file():
            raise MissingError(f"{path}: no such prompt file.")
        return read_prompt(path)
    names = sorted(path.stem for path in _FOLDER.glob("*.toml"))
    if name not in names:
        raise UsageError(
            f"prompt {name!r} is not known. {nearest(name, names)}\n"
            "Name a custom prompt by a path ending in .toml; see docs/answers.md."
        )
    return read_prompt(_FOLDER / f"{name}.toml")


def read_prompt(path: Path) -> AnswerPrompt:
    """Read and validate a prompt file."""
    values = read_toml(path)
    try:
        return _validate(path.stem, values)
    except (KeyError, TypeError, ValueError) as problem:
        finding = (
            f"{problem.args[0]!r} is missing" if isinstance(problem, KeyError) else str(problem)
        )
        raise DataError(
            f"{path}: {finding}. A prompt has system, closed_book, with_passages, passage and "
            "longest_passage; see docs/answers.md."
        ) from None


def _validate(name: str, values: Mapping[str, Any]) -> AnswerPrompt:
    keys = {"description", "version", "system", "longest_passage", *_FIELDS}
    unknown = values.keys() - keys
    if unknown:
        raise ValueError(f"the key {sorted(unknown)[0]!r} is not known")
    for key, needed in _FIELDS.items():
        fields = set(_FIELD.findall(str(values[key])))
        for field in sorted(needed - fields):
            raise ValueError(f"{key} does not contain {{{field}}}")
        for field in sorted(fields - needed):
            raise ValueError(f"{key} contains {{{field}}}, expected {sorted(needed)}")
    longest = values.get("longest_passage", 4000)
    if not isinstance(longest, int) or isinstance(longest, bool) or longest < 1:
        raise ValueError(f"longest_passage is {longest!r}, expected a number of characters")
    return AnswerPrompt(
        name=name,
        description=str(values.get("description", "")),
        version=int(values.get("version", 1)),
        system=str(values.get("system", "")),
        closed_book=str(values["closed_book"]),
        with_passages=str(values["with_passages"]),
        passage=str(values["passage"]),
        longest_passage=longest,
    )


def _fill(template: str, texts: Mapping[str, str]) -> str:
    return _FIELD.sub(lambda match: texts[match[1]], template)
