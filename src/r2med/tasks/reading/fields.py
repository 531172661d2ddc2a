"""The fields that files of each kind have: what is read, under which name, and as what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

#: id: a non-empty string or an integer; text: a string; note: anything, or nothing;
#: score: a whole number, 1 where it is missing; number: any number, null where the column is.
Kind = Literal["id", "text", "note", "score", "number"]

LARGEST_SCORE = 2**31 - 1
NUMBER_WORDS = "a whole number"


@dataclass(frozen=True)
class Field:
    """One field of a record: its name in the file and the column it becomes."""

    name: str
    column: str
    kind: Kind


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file holds, as columns, with `place` to name the line or row a value came from.

    `repaired` counts texts in which half a surrogate pair had to be replaced by U+FFFD.
    """

    columns: Mapping[str, pa.Array]
    place: Callable[[int], str]
    repaired: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


_NOTES = tuple(Field(name, name, "note") for name in ("answer", "body_system", "reasoning"))

DOCUMENT = (Field("id", "id", "id"), Field("text", "text", "text"))
QUERY = (*DOCUMENT, *_NOTES)
JUDGEMENT = (
    Field("q_id", "query", "id"),
    Field("p_id", "document", "id"),
    Field("score", "score", "score"),
)

BEIR_QUERY = (Field("_id", "id", "id"), Field("text", "text", "text"), *_NOTES)
BEIR_DOCUMENT = (*BEIR_QUERY[:2], Field("title", "title", "note"))
BEIR_JUDGEMENT = (
    Field("query-id", "query", "id"),
    Field("corpus-id", "document", "id"),
    Field("score", "score", "score"),
)


def record_hint(fields: tuple[Field, ...]) -> str:
    """How a line should look, for the second line of an error."""
    shown = {"id": '"..."', "text": '"..."', "score": "1"}
    pairs = [f'"{field.name}": {shown[field.kind]}' for field in fields if field.kind in shown]
    return f"Each line is {{{', '.join(pairs)}}}; see docs/data.md."
