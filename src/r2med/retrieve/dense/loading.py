"""Load a checkpoint's tokeniser, and say in a sentence why a checkpoint cannot be loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r2med.errors import DamagedError, DataError, MissingError, R2MedError, UsageError
from r2med.retrieve.conditions import Conditions

#: Vocabularies that transformers reads in place of the one that a tokeniser's class names.
_OTHER_VOCABULARIES = ("tokenizer.*", "tekken.json", "*tiktoken*")
#: Keys of a checkpoint's JSON files whose values sentence-transformers imports.
_IMPORTED_KEYS = {"type", "types", "tokenizer_class", "activation_function"}
_LIBRARY_PREFIXES = ("sentence_transformers.", "torch.nn.")
#: Names that the library replaces by classes of its own without importing them.
_LIBRARY_ALIASES = {"pylate.models.Dense.Dense"}
#: Large files that name no class.
_VOCABULARIES = {"tokenizer.json", "vocab.json"}


def load_tokenizer(folder: Path, conditions: Conditions) -> Any:
    """A checkpoint's tokeniser; without a vocabulary every text would be unknown tokens."""
    from transformers import AutoTokenizer

    trust = conditions.trust_remote_code
    with failures_told(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    names = sorted(set((tokenizer.vocab_files_names or {}).values()))
    patterns = (*names, *_OTHER_VOCABULARIES)
    if names and not any(next(folder.glob(pattern), None) for pattern in patterns):
        raise MissingError(
            f"{folder}: holds no tokenizer; expected {' or '.join(names)}.\n"
            "Save it beside the model with tokenizer.save_pretrained(FOLDER)."
        )
    return tokenizer


@contextmanager
def failures_told(place: Path) -> Iterator[None]:
    """Whatever a library raises over a checkpoint or a file of it, as an error that names it."""
    try:
        yield
    except R2MedError:
        raise
    except (OSError, ImportError) as problem:
        raise MissingError(f"{place}: {_first_line(problem)}") from problem
    except Exception as problem:
        if isinstance(problem, ValueError) and "trust_remote_code" in str(problem):
            raise UsageError(
                f"{place} runs code that comes with the checkpoint. Read it, then allow it with "
                "--trust-remote-code."
            ) from None
        raise DataError(
            f"{place}: cannot be loaded ({type(problem).__name__}: {_first_line(problem)})."
        ) from problem


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def refuse_foreign_code(folder: Path, *, allowed: bool) -> None:
    """A UsageError where a checkpoint's files name classes that its library does not bring.

    Sentence-transformers imports what its JSON files name: modules and a router's parts, tokenisers
    and activations. Which of these it checks depends on its version, so it is asked here.
    """
    if allowed or not (folder / "modules.json").is_file():
        return
    for file in sorted(folder.rglob("*.json")):
        if file.name in _VOCABULARIES:
            continue
        for name in _class_names(_parsed(file)):
            if not name.startswith(_LIBRARY_PREFIXES) and name not in _LIBRARY_ALIASES:
                raise UsageError(
                    f"{file}: names {name}, code that is not part of sentence-transformers or "
                    "torch. Read it, then allow it with --trust-remote-code."
                )


def _parsed(file: Path) -> object:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise DamagedError(f"{file}: not valid JSON ({problem}).") from None


def _class_names(content: object) -> Iterator[str]:
    """Dotted names under the keys that are imported, at any depth."""
    waiting = [content]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting.extend(part)
        elif isinstance(part, dict):
            waiting.extend(part.values())
            for key in _IMPORTED_KEYS & set(part):
                values = part[key].values() if isinstance(part[key], dict) else [part[key]]
                yield from (name for name in values if isinstance(name, str) and "." in name)
