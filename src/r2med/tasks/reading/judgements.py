"""Judgements as text columns: TREC qrels, tab-separated files with a header, and mixtures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError, plural
from r2med.tasks.reading.fields import JUDGEMENT, NUMBER_WORDS, Complain, Rows, Where, stop
from r2med.tasks.reading.jsonl import decoded, read_jsonl, whole_number
from r2med.tasks.reading.lines import lines

QUERY_NAMES = {"query-id", "query_id", "q_id", "qid", "query"}
DOCUMENT_NAMES = {
    *("corpus-id", "corpus_id", "p_id", "pid", "doc-id", "doc_id", "docid", "docno", "document_id"),
    *("document", "doc", "passage_id"),
}
SCORE_NAMES = {"score", "relevance", "rel", "label", "grade"}
#: Where query, document and score stand in a line of so many cells, where no header says it.
_PLACES = {4: (0, 2, 3), 3: (0, 1, 2)}
_OBJECT = re.compile(rb'\s*\{\s*["}]')
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_HINT = (
    "A line is `query 0 document score` (TREC), or follows a header such as "
    "`query-id corpus-id score`; see docs/data.md."
)


def read_judgements(path: Path, complain: Complain = stop) -> Rows:
    """Query id, document id and score of every judgement, be it JSON or text.

    A text file may hold either: qrels.txt is found in both forms. Of text the first line says how
    the others look.
    """
    first = next((line for _, line in lines(path)), b"")
    if ".jsonl" in path.suffixes or _OBJECT.match(first):
        return read_jsonl(path, JUDGEMENT, complain)
    judgements: list[tuple[str, str, int]] = []
    numbers: list[int] = []
    places: Sequence[int | None] = ()
    width, tabs = 4, False
    for number, raw in lines(path):
        where = Where(path, number)
        try:
            line = decoded(raw, str(where)).rstrip("\r\n")
            tabs = tabs if places else "\t" in line.strip()
            cells = [cell.strip() for cell in line.split("\t")] if tabs else line.split()
            if not places:
                header = _header(cells)
                places = header or _PLACES.get(len(cells), ())
                width = len(cells) if places else width
                if header:
                    continue
            judgements.append(_judgement(cells, places, width, str(where)))
            numbers.append(number)
        except DataError as error:
            complain(error, where, None)
    columns = {
        field.column: pa.array([row[at] for row in judgements], field.type)
        for at, field in enumerate(JUDGEMENT)
    }
    return Rows(columns, lambda row: Where(path, numbers[row]))


def _header(cells: Sequence[str]) -> Sequence[int | None]:
    """Where query, document and score stand, if these are names of columns."""
    names = [cell.lower() for cell in cells]
    query, document, score = (
        next((place for place, name in enumerate(names) if name in known), None)
        for known in (QUERY_NAMES, DOCUMENT_NAMES, SCORE_NAMES)
    )
    return () if query is None or document is None else (query, document, score)


def _judgement(
    cells: Sequence[str], places: Sequence[int | None], width: int, where: str
) -> tuple[str, str, int]:
    """The values of a line; without a place for the score, every row is positive."""
    if len(cells) != width:
        raise DataError(f"{where}: {plural(len(cells), 'field')}, expected {width}.\n{_HINT}")
    query, document, cell = ("1" if place is None else cells[place] for place in places)
    if not query or not document:
        what, place = ("document id", places[1]) if query else ("query id", places[0])
        raise DataError(f"{where}: the {what} (field {(place or 0) + 1}) is empty.\n{_HINT}")
    score = score_of(cell)
    if score is None:
        raise DataError(f"{where}: the score is {cell!r}, expected {NUMBER_WORDS}.\n{_HINT}")
    return query, document, score


def score_of(cell: str) -> int | None:
    """The whole number that a cell holds, or None."""
    return whole_number(float(cell)) if _NUMBER.fullmatch(cell.strip()) else None
