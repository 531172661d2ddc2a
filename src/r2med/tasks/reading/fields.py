"""The fields that files of each kind have, the rows they become, and who hears what is wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DataError

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

    @property
    def type(self) -> pa.DataType:
        """What its column holds."""
        kinds = {"score": pa.int32(), "number": pa.float64()}
        return kinds.get(self.kind, pa.large_string())


class Where(NamedTuple):
    """A line or row of a file, counted from 1; without a number, the file as a whole."""

    file: Path
    number: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        return str(self.file) if self.number is None else f"{self.file}, {self.unit} {self.number}"


#: Hears what is wrong, where, and the id that stands there; the rest of the file is read if it
#: returns.
Complain = Callable[[DataError, Where, object], None]


def stop(error: DataError, where: Where, id: object) -> None:
    """End the reading at the first thing that is wrong."""
    raise error


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file holds, as columns, with `where` to name the line or row a value came from.

    `repaired` counts texts in which half a surrogate pair was replaced by U+FFFD.
    """

    columns: Mapping[str, pa.Array]
    where: Callable[[int], Where]
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


def record_hint(fields: Sequence[Field]) -> str:
    """How a line should look, for the second line of an error."""
    shown = {"id": '"..."', "text": '"..."', "score": "1"}
    pairs = [f'"{field.name}": {shown[field.kind]}' for field in fields if field.kind in shown]
    return f"Each line is {{{', '.join(pairs)}}}; see docs/data.md."


def checked(values: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """The column that values become, texts or float64, and what is wrong about each wrong row."""
    if field.kind == "note":
        return pc.if_else(pc.equal(values, ""), None, values), {}
    if field.kind == "score":
        scores = pc.fill_null(values, 1.0).to_numpy()
        whole = (np.abs(scores) <= LARGEST_SCORE) & (scores == np.floor(scores))
        problems = {
            row: f"is {scores[row]:g}, expected {NUMBER_WORDS}"
            for row in np.flatnonzero(~whole).tolist()
        }
        return pa.array(np.where(whole, scores, 0).astype(np.int32)), problems
    wrong = dict.fromkeys(pc.indices_nonzero(values.is_null()).to_pylist(), "is null")
    if field.kind == "id":
        empty = pc.indices_nonzero(pc.equal(values, "")).to_pylist()
        wrong |= dict.fromkeys(empty, "is empty")
    return values, wrong
