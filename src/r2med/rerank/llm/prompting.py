"""Prompts as data: a text with places for query and passages, replaceable by the user's own."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from r2med.errors import DataError
from r2med.tasks.reading.exact import decoded

_PLACE = re.compile(r"\{(\w+)\}")


def load_prompt(name: str, places: tuple[str, ...], folder: Path | None) -> str:
    """The prompt `name`.txt of a folder of the user's where it is there, else the package's.

    One of the user's own must hold `places`, and no place that the package's does not.
    """
    shipped = (files("r2med.rerank.llm") / "prompts" / f"{name}.txt").read_text(encoding="utf-8")
    own = folder / f"{name}.txt" if folder else None
    if own is None or not own.is_file():
        return shipped
    text = decoded(own.read_bytes(), str(own))
    for place in places:
        if place not in _PLACE.findall(text):
            raise DataError(f"{own}: the place {{{place}}} is missing from the prompt.")
    known = dict.fromkeys(_PLACE.findall(shipped))
    for place in _PLACE.findall(text):
        if place not in known:
            listed = ", ".join(f"{{{one}}}" for one in known)
            raise DataError(f"{own}: {{{place}}} is never filled in; known: {listed}.")
    return text


def filled(prompt: str, **values: str) -> str:
    """The prompt with its places filled; braces in the values stay as they are."""
    places = re.compile("|".join("{" + re.escape(name) + "}" for name in values))
    return places.sub(lambda found: values[found[0][1:-1]], prompt)


def shortened(text: str, words: int) -> str:
    """On one line, cut after so many words, so that a window fits a model's context."""
    split = text.split()
    return " ".join(split[:words]) + (" ..." if len(split) > words else "")
