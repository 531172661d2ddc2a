"""The fields of each type of file, the rows that are read, and how problems are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DataError

#: id: a non-empty string or an integer; text: a string; note: any value or none;
#: score: a whole number, 1 if missing; number: any number, null if the column is missing.
FieldType = Literal["id", "text", "note", "score", "number"]

LARGEST_SCORE = 2**31 - 1
NUMBER_WORDS = "a whole number"


@dataclass(frozen=True)
class Field:
    """A field of a record: the name in the file, the column that it is read into, and its type."""

    name: str
    column: str
    type: FieldType

    @property
    def arrow_type(self) -> pa.DataType:
        """The Arrow type of the field's column."""
        if self.type == "score":
            return pa.int32()
        return pa.float64() if self.type == "number" else pa.large_string()


class Location(NamedTuple):
    """A line or row of a file, counted from 1; the whole file if `number` is None."""

    file: Path
    number: int | None = None
    unit: str = "line"

    def __str__(self) -> str:
        return str(self.file) if self.number is None else f"{self.file}, {self.unit} {self.number}"


#: Callback for a problem: the error, its location, and the id of the record. If it returns, the
#: rest of the file is read.
ReportProblem = Callable[[DataError, Location, object], None]


def raise_problem(error: DataError, location: Location, id: object) -> None:
    """Raise the error, so that reading stops at the first problem."""
    raise error


@dataclass(frozen=True, eq=False)
class Rows:
    """The columns of a file; `locate(index)` returns the line or row in the file.

    `repaired` counts texts in which half a surrogate pair was replaced by U+FFFD.
    """

    columns: Mapping[str, pa.Array]
    locate: Callable[[int], Location]
    repaired: int = 0

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


_NOTES = tuple(Field(name, name, "note") for name in ("answer", "body_system", "reasoning"))

DOCUMENT = (Field("id", "id", "id"), Field("text", "text", "text"))
#: As in BRIGHT: a list of documents that do not count for the query.
_EXCLUDED = Field("excluded_ids", "excluded_ids", "note")
QUERY = (*DOCUMENT, *_NOTES, _EXCLUDED)
JUDGEMENT = (
    Field("q_id", "query", "id"),
    Field("p_id", "document", "id"),
    Field("score", "score", "score"),
)

BEIR_QUERY = (Field("_id", "id", "id"), Field("text", "text", "text"), *_NOTES, _EXCLUDED)
BEIR_DOCUMENT = (*BEIR_QUERY[:2], Field("title", "title", "note"))
BEIR_JUDGEMENT = (
    Field("query-id", "query", "id"),
    Field("corpus-id", "document", "id"),
    Field("score", "score", "score"),
)


def record_hint(fields: Sequence[Field]) -> str:
    """Return a description of a correct line, which is the second line of errors."""
    examples = {"id": '"..."', "text": '"..."', "score": "1"}
    pairs = [
        f'"{field.name}": {examples[field.type]}' for field in fields if field.type in examples
    ]
    return f"Each line is {{{', '.join(pairs)}}}; see docs/data.md."


def check_values(values: pa.Array, field: Field) -> tuple[pa.Array, dict[int, str]]:
    """Convert texts or floats to the column of a field; return the problems by row, too."""
    if field.type == "note":
        return pc.if_else(pc.equal(values, ""), None, values), {}
    if field.type == "score":
        scores = pc.fill_null(values, 1.0).to_numpy()
        is_whole = (np.abs(scores) <= LARGEST_SCORE) & (scores == np.floor(scores))
        problems = {
            row: f"is {scores[row]:g}, expected {NUMBER_WORDS}"
            for row in np.flatnonzero(~is_whole).tolist()
        }
        return pa.array(np.where(is_whole, scores, 0).astype(np.int32)), problems
    problems = dict.fromkeys(pc.indices_nonzero(values.is_null()).to_pylist(), "is null")
    if field.type == "id":
        empty = pc.indices_nonzero(pc.equal(values, "")).to_pylist()
        problems |= dict.fromkeys(empty, "is empty")
    return values, problems
