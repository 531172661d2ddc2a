"""Judgements as text columns: TREC qrels, tab-separated files with a header, and mixtures."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from r2med.errors import DataError
from r2med.tasks.reading.fields import JUDGEMENT, NUMBER_WORDS, Complain, Rows, Where, stop
from r2med.tasks.reading.jsonl import decoded, read_jsonl, whole_number
from r2med.tasks.reading.lines import lines

QUERY_NAMES = {"query-id", "query_id", "q_id", "qid", "query"}
DOCUMENT_NAMES = {
    *("corpus-id", "corpus_id", "p_id", "pid", "doc-id", "doc_id", "docid", "docno", "document_id"),
    *("document", "doc", "passage_id"),
}
SCORE_NAMES = {"score", "relevance", "rel", "label"}
_OBJECT = re.compile(rb'\s*\{\s*["}]')
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_HINT = (
    "A line is `query 0 document score` (TREC), or follows a header such as "
    "`query-id corpus-id score`; see docs/data.md."
)


@dataclass(frozen=True)
class _Shape:
    """Where in a line the three values stand; no score means that every row is positive."""

    width: int
    query: int
    document: int
    score: int | None
    tabs: bool

    def cells(self, line: str) -> list[str]:
        return [cell.strip() for cell in line.split("\t")] if self.tabs else line.split()


def read_judgements(path: Path, complain: Complain = stop) -> Rows:
    """Query id, document id and score of every judgement, be it JSON or text.

    A text file may hold either: qrels.txt is found in both forms.
    """
    first = next((line for _, line in lines(path)), b"")
    if ".jsonl" in path.suffixes or _OBJECT.match(first):
        return read_jsonl(path, JUDGEMENT, complain)
    return read_judgement_lines(path, complain)


def read_judgement_lines(path: Path, complain: Complain = stop) -> Rows:
    """Query id, document id and score of every line; the first says how the others look."""
    queries: list[str] = []
    documents: list[str] = []
    scores: list[int] = []
    numbers: list[int] = []
    shape: _Shape | None = None
    for number, raw in lines(path):
        where = Where(path, number)
        try:
            line = decoded(raw, str(where)).rstrip("\r\n")
            if shape is None:
                shape, header = _shape(line, str(where))
                if header:
                    continue
            cells = _cells(line, shape, str(where))
            score = 1 if shape.score is None else _score(cells[shape.score], str(where))
        except DataError as error:
            complain(error, where, None)
            continue
        queries.append(cells[shape.query])
        documents.append(cells[shape.document])
        scores.append(score)
        numbers.append(number)
    columns = {
        "query": pa.array(queries, pa.large_string()),
        "document": pa.array(documents, pa.large_string()),
        "score": pa.array(scores, pa.int32()),
    }
    return Rows(columns, lambda row: Where(path, numbers[row]))


def _shape(line: str, where: str) -> tuple[_Shape, bool]:
    """The shape of the file, and whether this first line is a header that tells it."""
    tabs = "\t" in line.strip()
    cells = _Shape(0, 0, 0, None, tabs).cells(line)
    names = [cell.lower() for cell in cells]
    query, document = _position(names, QUERY_NAMES), _position(names, DOCUMENT_NAMES)
    if query is not None and document is not None:
        return _Shape(len(cells), query, document, _position(names, SCORE_NAMES), tabs), True
    if len(cells) == 4:
        return _Shape(4, 0, 2, 3, tabs), False
    if len(cells) == 3:
        return _Shape(3, 0, 1, 2, tabs), False
    raise DataError(f"{where}: {_fields(len(cells))}, expected 4.\n{_HINT}")


def _position(names: list[str], wanted: set[str]) -> int | None:
    return next((place for place, name in enumerate(names) if name in wanted), None)


def _cells(line: str, shape: _Shape, where: str) -> list[str]:
    cells = shape.cells(line)
    if len(cells) != shape.width:
        raise DataError(f"{where}: {_fields(len(cells))}, expected {shape.width}.\n{_HINT}")
    for name, position in (("query id", shape.query), ("document id", shape.document)):
        if not cells[position]:
            raise DataError(f"{where}: the {name} (field {position + 1}) is empty.\n{_HINT}")
    return cells


def score_of(cell: str) -> int | None:
    """The whole number that a cell holds, or None."""
    return whole_number(float(cell)) if _NUMBER.fullmatch(cell.strip()) else None


def _score(cell: str, where: str) -> int:
    score = score_of(cell)
    if score is None:
        raise DataError(f"{where}: the score is {cell!r}, expected {NUMBER_WORDS}.\n{_HINT}")
    return score


def _fields(count: int) -> str:
    return "1 field" if count == 1 else f"{count} fields"
