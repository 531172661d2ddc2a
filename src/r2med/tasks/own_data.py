"""Check the user's own data for all problems at once, and import CSV or TSV files as a task.

Loading stops at the first problem, which is right for an evaluation and slow for preparing data. A
check reads every line by the same rules and collects all problems. An import finds columns by their
usual names, or as the user maps them; if there is any problem, nothing is written.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow.compute as pc

from r2med.errors import DataError, R2MedError, UsageError, nearest, plural
from r2med.paths import require_empty
from r2med.storage import atomic_folder
from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import (
    DOCUMENT_NAMES,
    QUERY_NAMES,
    SCORE_NAMES,
    contradictions,
    find_unknown,
    parse_score,
    read_part,
    repeated_ids,
)
from r2med.tasks.reading.fields import NUMBER_WORDS, Location, Rows
from r2med.tasks.reading.jsonl import decode_line, write_jsonl
from r2med.tasks.reading.lines import MAX_LINE, blocks, limit
from r2med.tasks.reading.source import PARTS, TaskFiles, find_source, split_selection
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Problem:
    """A problem in the data that an evaluation would refuse, drop, or measure wrongly."""

    file: str
    line: int | None
    """The number of the line, or of the row in Parquet; None for the whole file."""
    id: str | None
    problem: str


def check(path: str | Path) -> tuple[list[Problem], Task | None]:
    """Return all problems of the task in a folder, and the task; None if it cannot be loaded.

    Write `FOLDER#SPLIT` for a folder with several splits.
    """
    folder, split = split_selection(path)
    problems: list[Problem] = []
    try:
        problems = _problems(find_source(folder, split))
        return problems, load_task(path, use_copy=False)
    except R2MedError as problem:
        if not folder.is_dir():
            raise
        return problems or [Problem(str(folder), None, None, str(problem))], None


def _problems(source: TaskFiles) -> list[Problem]:
    problems: list[Problem] = []

    def note(problem: object, where: Location, id: object) -> None:
        text = str(problem).partition("\n")[0].removeprefix(f"{where}: ")
        row_id = None if id is None else str(id)
        problems.append(Problem(str(where.file), where.number, row_id, text))

    parts: dict[str, Rows] = {}
    rejected: dict[str, set[str | None]] = {}
    for part in PARTS:
        file, before = Location(source.parts[part][0]), len(problems)
        try:
            parts[part] = read_part(source, part, note)
            if not len(parts[part]) and len(problems) == before:
                note("the file is empty", file, None)
        except DataError as error:
            note(error, file, None)
        rejected[part] = {problem.id for problem in problems[before:]}
    for part, noun in (("corpus", "document"), ("queries", "query")):
        if rows := parts.get(part):
            blank = pc.equal(pc.utf8_trim_whitespace(rows.columns["text"]), "")
            wrong = [(row, f"this {noun} id {problem}") for row, problem in repeated_ids(rows)]
            wrong += [(r, f"the {noun} has no text") for r in pc.indices_nonzero(blank).to_pylist()]
            for row, problem in wrong:
                note(problem, rows.locate(row), rows.columns["id"][row])
    if all(problem_found.line is not None for problem_found in problems):
        judged, documents, queries = (parts[part] for part in ("judgements", "corpus", "queries"))
        wrong = list(contradictions(judged))
        sides = (("query", queries, "queries"), ("document", documents, "corpus"))
        for noun, ids_table, part in sides:
            if rejected[part] & {None, ""}:  # a line without a readable id may have the unknown one
                continue
            strange = find_unknown(
                judged, noun, ids_table.columns["id"], np.arange(len(judged))
            ).tolist()
            for row in strange:
                name = str(judged.columns[noun][row])
                if name not in rejected[part]:
                    wrong.append((row, f'there is no {noun} "{name}"'))
        for row, problem in wrong:
            pair = " ".join(str(judged.columns[name][row]) for name in ("query", "document"))
            note(problem, judged.locate(row), pair)
        ids, query_ids = judged.columns["query"], queries.columns["id"]
        positive = ids.filter(pc.greater(judged.columns["score"], 0))
        answered = pc.is_in(query_ids, value_set=positive)
        hopeless = pc.and_not(pc.is_in(query_ids, value_set=ids), answered)
        # A judgement that could not be read may be the positive of a query.
        without_positive = (
            [] if rejected["judgements"] else pc.indices_nonzero(hopeless).to_pylist()
        )
        for row in without_positive:
            note("the query is judged, but has no positive", queries.locate(row), query_ids[row])
    files = [str(file) for file in source.files]
    return sorted(
        problems,
        key=lambda problem_found: (files.index(problem_found.file), problem_found.line or 0),
    )


_TEXT = ("text", "body", "content", "passage", "abstract")
_NOTES = {name: (name,) for name in ("answer", "body_system", "reasoning", "excluded_ids")}
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
    warn: Callable[[str], None] = lambda message: None,
) -> tuple[int, int, int]:
    """Write the folder of a task from three CSV or TSV files.

    `columns` maps fields such as `corpus.text` to names of columns. A title is put before the text
    with a space, as in BEIR's tools. Judgements without a score count as 1, with a warning if no
    column has scores. Returns how many documents, queries and judgements were written.
    """
    require_empty(out, force=force)
    field_names = [f"{table}.{name}" for table, names in FIELDS.items() for name in names]
    mapped = columns or {}
    for name in mapped:
        if name not in field_names:
            raise UsageError(
                f"--column {name}: not a field of a task. {nearest(name, field_names)}"
            )
    files = {"corpus": corpus, "queries": queries, "qrels": qrels}
    cells = {table: _cells(path) for table, path in files.items()}
    headers = {table: [name.strip() for name in next(rows)[1]] for table, rows in cells.items()}
    missing: dict[str, str] = {}
    column_indices = {
        table: _places(table, path, headers[table], mapped, missing)
        for table, path in files.items()
    }
    if missing:
        options = " ".join(f"--column {name}=NAME" for name in missing)
        raise UsageError("\n".join([*missing.values(), f"Say which they are: {options}"]))
    if "score" not in column_indices["qrels"]:
        warn(
            f"{qrels} has no column for qrels.score: every judgement counts as 1. It has "
            f"{', '.join(headers['qrels'])}; --column qrels.score=NAME maps one."
        )
    wrong: list[str] = []
    rows = {
        table: _rows(path, cells[table], headers[table], column_indices[table], wrong)
        for table, path in files.items()
    }
    documents = (
        {"id": row["id"], "text": " ".join(filter(None, (row.get("title"), row["text"])))}
        for row in rows["corpus"]
    )
    judged = (
        {
            "q_id": row["query"],
            "p_id": row["document"],
            "score": parse_score(row.get("score") or "1"),
        }
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
    column_indices: Mapping[str, int],
    wrong: list[str],
) -> Iterator[dict[str, str]]:
    """Yield the fields of each row; invalid rows are left out and reported in `wrong`."""
    for line, row in cells:
        if not any(row):
            continue
        problem = ""
        values = {name: row[index] for name, index in column_indices.items() if index < len(row)}
        empty = [name for name in ("id", "query", "document") if values.get(name) == ""]
        if len(row) != len(header):
            problem = f"{plural(len(row), 'cell')}, expected {len(header)}"
        elif empty:
            problem = f'column "{header[column_indices[empty[0]]]}" is empty'
        elif parse_score(score := values.get("score") or "1") is None:
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
    """Return the index of each field's column, found by the user's mapping or a usual name.

    Problems are added to `missing`, by field.
    """
    lowered = [name.lower() for name in header]
    column_indices: dict[str, int] = {}
    for name, usual in FIELDS[table].items():
        field = f"{table}.{name}"
        chosen = mapped.get(field)
        names = header if chosen in header else lowered
        candidates = usual if chosen is None else [chosen if chosen in header else chosen.lower()]
        index = next(
            (names.index(candidate) for candidate in candidates if candidate in names), None
        )
        if index is not None:
            column_indices[name] = index
        elif chosen is not None or name not in _OPTIONAL:
            missing[field] = (
                f"{path} has no column for {field}: it has {', '.join(header)}, expected one of "
                f"{', '.join(usual if chosen is None else [chosen])}."
            )
    return column_indices


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row of a CSV or TSV file, with the number of the row's first line.

    The name of the file (.csv or .tsv, gzipped or not) decides what separates cells. The separator
    of a .csv is ';' if the first line has ';' and no comma.
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
            yield decode_line(line, f"{path}, line {number}") + "\n"
