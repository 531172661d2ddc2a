"""The libraries that draw: an error that says how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from r2med.errors import MissingError

_LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python"}


def needed() -> None:
    """Fail with what to install where a library is missing."""
    missing = [name for module, name in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise MissingError(
            f'Plots need {" and ".join(missing)}: pip install "r2med[plots]".\n'
            "`r2med leaderboard`, `compare` and `diagnose` show the same figures without it."
        )
