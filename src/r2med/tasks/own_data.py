"""Data of the user's own: every problem of a folder at once, and CSV or TSV files made into one.

Loading stops at the first problem, which is right for an evaluation and slow for whoever prepares
data. A check reads every line by the same rules and collects what is wrong. An import finds columns
by their usual names, or as the user maps them; where anything is wrong, nothing is written.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from r2med.atomic import atomic_folder, check_free
from r2med.errors import DataError, R2MedError, UsageError, nearest, plural
from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import (
    DOCUMENT_NAMES,
    QUERY_NAMES,
    SCORE_NAMES,
    contradictions,
    read_part,
    repeated_ids,
    score_of,
    unknown,
)
from r2med.tasks.reading.fields import NUMBER_WORDS, Rows, Where
from r2med.tasks.reading.jsonl import decoded, write_jsonl
from r2med.tasks.reading.lines import MAX_LINE, blocks, limit
from r2med.tasks.reading.source import PARTS, Source, find_source, split_selection
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """Something that an evaluation would refuse, drop, or be wrong about."""

    file: str
    line: int | None
    """The line, in Parquet the row; None where it is the whole file."""
    id: str | None
    problem: str


def check(place: str | Path) -> tuple[list[Problem], Task | None]:
    """All problems of the task in a folder (`FOLDER#SPLIT` where it holds several).

    The task comes with them unless the data cannot be loaded.
    """
    folder, split = split_selection(place)
    problems: list[Problem] = []
    try:
        problems = _problems(find_source(folder, split))
        return problems, load_task(place, use_copy=False)
    except R2MedError as problem:
        if not folder.is_dir():
            raise
        return problems or [Problem(str(folder), None, None, str(problem))], None


def _problems(source: Source) -> list[Problem]:
    problems: list[Problem] = []

    def note(problem: object, where: Where, id: object) -> None:
        text = str(problem).partition("\n")[0].removeprefix(f"{where}: ")
        known = None if id is None else str(id)
        problems.append(Problem(str(where.file), where.number, known, text))

    parts: dict[str, Rows] = {}
    for part in PARTS:
        file, before = Where(source.parts[part][0]), len(problems)
        try:
            parts[part] = read_part(source, part, note)
            if not len(parts[part]) and len(problems) == before:
                note("the file holds nothing", file, None)
        except DataError as error:
            note(error, file, None)
    for part, what in (("corpus", "document"), ("queries", "query")):
        if rows := parts.get(part):
            blank = pc.equal(pc.utf8_trim_whitespace(rows.columns["text"]), "")
            wrong = [(row, f"this {what} id {problem}") for row, problem in repeated_ids(rows)]
            wrong += [(r, f"the {what} has no text") for r in pc.indices_nonzero(blank).to_pylist()]
            for row, problem in wrong:
                note(problem, rows.where(row), rows.columns["id"][row])
    if all(each.line is not None for each in problems):
        judged, documents, queries = (parts[part] for part in ("judgements", "corpus", "queries"))
        wrong = list(contradictions(judged))
        for what, known in (("query", queries), ("document", documents)):
            strange = unknown(judged, what, known.columns["id"], np.arange(len(judged))).tolist()
            wrong += [(row, f'there is no {what} "{judged.columns[what][row]}"') for row in strange]
        for row, problem in wrong:
            pair = " ".join(str(judged.columns[name][row]) for name in ("query", "document"))
            note(problem, judged.where(row), pair)
        ids, asked = judged.columns["query"], queries.columns["id"]
        positive = ids.filter(pc.greater(judged.columns["score"], 0))
        answered = pc.is_in(asked, value_set=positive)
        hopeless = pc.and_not(pc.is_in(asked, value_set=ids), answered)
        for row in pc.indices_nonzero(hopeless).to_pylist():
            note("the query is judged, but has no positive", queries.where(row), asked[row])
    files = [str(file) for file in source.files]
    return sorted(problems, key=lambda each: (files.index(each.file), each.line or 0))


_TEXT = ("text", "body", "content", "passage", "abstract")
_NOTES = {name: (name,) for name in ("answer", "body_system", "reasoning")}
#: The fields of each table, and the names under which their columns are looked for.
FIELDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "corpus": {
        "id": ("id", "_id", *sorted(DOCUMENT_NAMES - {"document", "doc"})),
        "text": (*_TEXT, "document", "doc"),
        "title": ("title",),
    },
    "queries": {
        "id": ("id", "_id", *sorted(QUERY_NAMES - {"query"})),
        "text": (*_TEXT, "query", "question"),
        **_NOTES,
    },
    "qrels": {
        "query": sorted(QUERY_NAMES),
        "document": sorted(DOCUMENT_NAMES),
        "score": sorted(SCORE_NAMES),
    },
}
_OPTIONAL = ("title", "score", *_NOTES)
#: Wrong rows that an error lists.
_SHOWN = 20


def import_tables(
    corpus: Path,
    queries: Path,
    qrels: Path,
    *,
    out: Path,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> tuple[int, int, int]:
    """Write a task's folder from three tables; `columns` maps `corpus.text` to a column's name.

    A title is put before the text with a space, as BEIR's tools do. Judgements without a score
    count as 1, and `tell` hears where no column has them. Returns how many documents, queries and
    judgements were written.
    """
    check_free(out, force=force)
    known = [f"{table}.{name}" for table, names in FIELDS.items() for name in names]
    mapped = columns or {}
    for name in mapped:
        if name not in known:
            raise UsageError(f"--column {name}: not a field of a task. {nearest(name, known)}")
    files = {"corpus": corpus, "queries": queries, "qrels": qrels}
    cells = {table: _cells(path) for table, path in files.items()}
    headers = {table: [name.strip() for name in next(rows)[1]] for table, rows in cells.items()}
    missing: dict[str, str] = {}
    places = {
        table: _places(table, path, headers[table], mapped, missing)
        for table, path in files.items()
    }
    if missing:
        options = " ".join(f"--column {name}=NAME" for name in missing)
        raise UsageError("\n".join([*missing.values(), f"Say which they are: {options}"]))
    if "score" not in places["qrels"]:
        tell(
            f"{qrels} has no column for qrels.score: every judgement counts as 1. It has "
            f"{', '.join(headers['qrels'])}; --column qrels.score=NAME maps one."
        )
    wrong: list[str] = []
    rows = {
        table: _rows(path, cells[table], headers[table], places[table], wrong)
        for table, path in files.items()
    }
    documents = (
        {"id": row["id"], "text": " ".join(filter(None, (row.get("title"), row["text"])))}
        for row in rows["corpus"]
    )
    judged = (
        {"q_id": row["query"], "p_id": row["document"], "score": score_of(row.get("score") or "1")}
        for row in rows["qrels"]
    )
    with atomic_folder(out) as draft:
        written = (
            write_jsonl(draft / "corpus.jsonl", documents),
            write_jsonl(draft / "query.jsonl", rows["queries"]),
            write_jsonl(draft / "qrels.jsonl", judged),
        )
        if wrong:
            more = f"\nand {len(wrong) - _SHOWN:,} more." if len(wrong) > _SHOWN else ""
            raise DataError("\n".join(wrong[:_SHOWN]) + more)
    return written


def _rows(
    path: Path,
    cells: Iterable[tuple[int, list[str]]],
    header: Sequence[str],
    places: Mapping[str, int],
    wrong: list[str],
) -> Iterator[dict[str, str]]:
    """The fields of a table, row by row; rows that are `wrong` are added there and left out."""
    for line, row in cells:
        if not any(row):
            continue
        problem = ""
        values = {name: row[place] for name, place in places.items() if place < len(row)}
        empty = [name for name in ("id", "query", "document") if values.get(name) == ""]
        if len(row) != len(header):
            problem = f"{plural(len(row), 'cell')}, expected {len(header)}"
        elif empty:
            problem = f'column "{header[places[empty[0]]]}" is empty'
        elif score_of(score := values.get("score") or "1") is None:
            problem = f"the score is {score!r}, expected {NUMBER_WORDS}"
        if problem:
            wrong.append(f"{path}, line {line}: {problem}.")
        else:
            yield values


def _places(
    table: str,
    path: Path,
    header: Sequence[str],
    mapped: Mapping[str, str],
    missing: dict[str, str],
) -> dict[str, int]:
    """Where the column of each field stands, by its mapping or a usual name.

    What is wrong is added to `missing`, by field.
    """
    lowered = [name.lower() for name in header]
    places: dict[str, int] = {}
    for name, usual in FIELDS[table].items():
        field = f"{table}.{name}"
        chosen = mapped.get(field)
        names = header if chosen in header else lowered
        wanted = usual if chosen is None else [chosen if chosen in header else chosen.lower()]
        place = next((names.index(each) for each in wanted if each in names), None)
        if place is not None:
            places[name] = place
        elif chosen is not None or name not in _OPTIONAL:
            missing[field] = (
                f"{path} has no column for {field}: it has {', '.join(header)}, expected one of "
                f"{', '.join(usual if chosen is None else [chosen])}."
            )
    return places


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file, each with the line it begins in.

    The name says what separates cells: .csv or .tsv, gzipped or not; in a .csv a header with ';'
    alone says so.
    """
    names = {suffix.lower() for suffix in path.suffixes}
    if not {".csv", ".tsv"} & names:
        raise UsageError(f"{path}: expected a file whose name ends in .csv or .tsv (or .gz).")
    lines = _lines(path)
    first = next(lines, "")
    if not first.strip():
        raise DataError(f"{path} is empty, expected a line of column names and rows.")
    separator = ";" if ";" in first and "," not in first else ","
    csv.field_size_limit(limit(MAX_LINE))
    delimiter = "\t" if ".tsv" in names else separator
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    line = 1
    try:
        for row in reader:
            yield line, row
            line = reader.line_num + 1
    except csv.Error as problem:
        raise DataError(
            f"{path}, line {line}: {problem}.\nClose every quote that opens a cell; quotes within "
            'such a cell are doubled, as in "a ""quoted"" word".'
        ) from None


def _lines(path: Path) -> Iterator[str]:
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield decoded(line, f"{path}, line {number}") + "\n"
