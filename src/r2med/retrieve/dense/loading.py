"""Load a checkpoint's tokeniser, and say in a sentence why a checkpoint cannot be loaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.retrieve.conditions import Conditions

#: Vocabularies that transformers reads in place of the one that a tokeniser's class names.
_OTHER_VOCABULARIES = ("tokenizer.*", "tekken.json", "*tiktoken*")


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
