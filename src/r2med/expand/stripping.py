"""From what a model wrote to its answer: reasoning is cut off where the model marks its end."""

from __future__ import annotations

import re
from typing import get_args

from r2med.remote.registry import Stripping

#: How a model or method may mark its answer; `none` takes the text as it is.
STRIPPINGS: tuple[Stripping, ...] = get_args(Stripping)

_END_OF_THOUGHT = "</think>"
_FINAL_RESPONSE = "Final Response"
_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def strip(text: str, how: Stripping) -> str:
    """The answer in a text; a text without its marker is taken whole.

    As in the published runs the first marker counts, and an answer needs both of its tags.
    """
    match how:
        case "think":
            return _after(text, _END_OF_THOUGHT)
        case "final-response":
            return _after(text, _FINAL_RESPONSE)
        case "answer":
            found = _ANSWER.search(text)
            return found[1].strip() if found else text
        case "none":
            return text


def _after(text: str, marker: str) -> str:
    _, found, rest = text.partition(marker)
    return rest.strip() if found else text
