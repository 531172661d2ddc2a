"""The errors that a user can see; messages name the place, the problem and the solution."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec


class R2MedError(Exception):
    """Base of all errors that r2med raises on purpose; any other exception is a bug."""


class UsageError(R2MedError):
    """An option, name or argument is wrong; the command line exits with 2."""


class DataError(R2MedError):
    """The content of a file, or the output of a model, is not valid."""


class MissingError(R2MedError):
    """Data, weights, a library or the network is missing."""


class OfflineError(R2MedError):
    """A connection was refused because offline mode is on."""


class DamagedError(R2MedError):
    """A stored entry fails its checksum or cannot be read back."""


class LimitError(R2MedError):
    """A limit of tokens or money is reached; finished work is stored, and the exit code is 3."""


class WorkError(R2MedError):
    """Pieces of work failed on several workers; all other work was done and is stored."""


def need(*libraries: str, extra: str) -> None:
    """Raise MissingError with the command to install it if a library is missing."""
    absent = [name for name in libraries if find_spec(name) is None]
    if absent:
        raise MissingError(f"this needs {' and '.join(absent)}: pip install 'r2med[{extra}]'.")


def first_line(problem: Exception) -> str:
    """Return the first line of an error's message; the name of its type if it has no message."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0]


def plural(count: int, word: str, words: str | None = None) -> str:
    """Return a count with its noun, as in `1 query` or `2 queries`."""
    usual = word[:-1] + "ies" if word.endswith("y") else word + "s"
    return f"{count:,} {word if count == 1 else words or usual}"


def nearest(name: str, names_known: Iterable[str]) -> str:
    """Return a hint for a mistyped name: the closest known names, or all of a short list.

    The closest name comes first.
    """
    from difflib import get_close_matches  # only errors need it

    names = sorted(set(names_known))
    lowered = {n.lower(): n for n in reversed(names)}
    offered = [lowered[close] for close in get_close_matches(name.lower(), lowered)]
    if offered:
        return "Did you mean " + " or ".join(repr(n) for n in offered) + "?"
    listed = ", ".join(names[:20])
    return f"Known: {listed}{', ...' if len(names) > 20 else ''}."
