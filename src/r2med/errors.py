"""Every error a user can cause or meet: one message that says where, what, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


class R2MedError(Exception):
    """Base of all errors raised on purpose; anything else is a defect of the program."""


class UsageError(R2MedError):
    """An option, name or argument is wrong; the command line exits with 2."""


class DataError(R2MedError):
    """A file does not hold what its layout promises."""


class MissingError(R2MedError):
    """Data, weights, a library or the network is missing."""


class OfflineError(R2MedError):
    """A connection was refused because offline mode is on."""


class DamagedError(R2MedError):
    """A stored entry fails its checksum or cannot be read back."""


class LimitError(R2MedError):
    """A limit of tokens or money is reached, and finished work is stored; the exit code is 3."""


class WorkError(R2MedError):
    """Pieces of work failed on several workers; everything else was done and is kept."""


def need(*libraries: str, extra: str) -> None:
    """Raise MissingError with the command to install it if a library is missing."""
    absent = [name for name in libraries if find_spec(name) is None]
    if absent:
        raise MissingError(f"this needs {' and '.join(absent)}: pip install 'r2med[{extra}]'.")


def first_line(problem: Exception) -> str:
    """The first line of an error's message, or its type if it has none."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def plural(count: int, word: str, words: str | None = None) -> str:
    """A count with its noun."""
    usual = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else words or usual}"


def nearest(name: str, names_known: Iterable[str]) -> str:
    """A clause that offers the known names closest to a mistyped one, or all of a short list.

    The closest comes first.
    """
    from difflib import get_close_matches  # only errors need it

    names = sorted(set(names_known))
    lowered = {n.lower(): n for n in reversed(names)}
    offered = [lowered[close] for close in get_close_matches(name.lower(), lowered)]
    if offered:
        return "Did you mean " + " or ".join(repr(n) for n in offered) + "?"
    listed = ", ".join(names[:20])
    return f"Known: {listed}{', ...' if len(names) > 20 else ''}."
