"""Options that take one of a few words: checked with an error that offers the nearest."""

from __future__ import annotations

from typing import TypeVar

from r2med.errors import UsageError, nearest

Choice = TypeVar("Choice", bound=str)


def chosen(text: str, allowed: tuple[Choice, ...], option: str) -> Choice:
    """The word, when it is one of the allowed ones."""
    if text not in allowed:
        raise UsageError(f"{option} {text!r} is not known. {nearest(text, allowed)}")
    return allowed[allowed.index(text)]
