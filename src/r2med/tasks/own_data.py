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

from r2med.atomic import atomic_folder
from r2med.errors import DataError, R2MedError, UsageError, nearest, plural
from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import contradictions, read_part, repeated_ids, unknown
from r2med.tasks.reading.fields import NUMBER_WORDS, Rows, Where
from r2med.tasks.reading.jsonl import decoded, write_jsonl
from r2med.tasks.reading.judgements import DOCUMENT_NAMES, QUERY_NAMES, SCORE_NAMES, score_of
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


@dataclass(frozen=True)
class Checked:
    """What a check of one folder found; `task` is None where the data cannot be loaded."""

    problems: tuple[Problem, ...]
    task: Task | None = None


def check(place: str | Path) -> Checked:
    """All problems of the task in a folder (`FOLDER#SPLIT` where it holds several)."""
    folder, split = split_selection(place)
    problems: list[Problem] = []
    try:
        problems = _problems(find_source(folder, split))
        return Checked(tuple(problems), load_task(place, use_copy=False))
    except R2MedError as problem:
        if not folder.is_dir():
            raise
        return Checked(tuple(problems) or (Problem(str(folder), None, None, str(problem)),))


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
        ids = judged.columns["query"]
        answered = ids.filter(pc.greater(judged.columns["score"], 0)).to_pylist()
        first = {query: row for row, query in reversed([*enumerate(ids.to_pylist())])}
        asked = first.keys() & {*queries.columns["id"].to_pylist()}
        for query in sorted(asked.difference(answered)):
            where = judged.where(first[query])
            note("the query is judged, but has no positive document", where, query)
    files = [str(file) for file in source.files]
    return sorted(problems, key=lambda each: (files.index(each.file), each.line or 0))


#: The names under which a column is looked for when it is not mapped, the most usual first.
_ID = ("id", "_id")
_TEXT = ("text", "body", "content", "passage", "abstract")
KNOWN: Mapping[str, Mapping[str, Sequence[str]]] = {
    "corpus": {
        "id": (*_ID, *sorted(DOCUMENT_NAMES - {"document", "doc"})),
        "text": (*_TEXT, "document", "doc"),
        "title": ("title",),
    },
    "queries": {
        "id": (*_ID, *sorted(QUERY_NAMES - {"query"})),
        "text": (*_TEXT, "query", "question"),
        "answer": ("answer",),
        "body_system": ("body_system",),
        "reasoning": ("reasoning",),
    },
    "qrels": {
        "query": sorted(QUERY_NAMES),
        "document": sorted(DOCUMENT_NAMES),
        "score": sorted(SCORE_NAMES),
    },
}
#: What --column may name: each field of a task, also by a usual name of its column.
_FIELDS = {
    f"{role}.{name}": (role, field)
    for role, fields in KNOWN.items()
    for field, names in fields.items()
    for name in (field, *names)
}
_OPTIONAL = ("title", "answer", "body_system", "reasoning", "score")
_SHOWN = 20
#: Stands after the last line of a table; no text that was decoded can hold it.
_END = "\udcff"


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
    count as 1, and `tell` hears which columns were not read for one. Returns how many
    documents, queries and judgements were written.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists, and nothing in it was touched. --force replaces it.")
    for name in columns or {}:
        if name not in _FIELDS:
            raise UsageError(f"--column {name}: not a field of a task. {nearest(name, _FIELDS)}")
    mapped = {_FIELDS[name]: column for name, column in (columns or {}).items()}
    files = {"corpus": corpus, "queries": queries, "qrels": qrels}
    tables = {role: _cells(path) for role, path in files.items()}
    headers = {role: [name.strip() for name in next(tables[role])[1]] for role in files}
    places = {role: _places(files[role], role, headers[role], mapped) for role in files}
    missing = [
        (role, name)
        for role, wanted in KNOWN.items()
        for name in wanted
        if name not in places[role] and name not in _OPTIONAL
    ]
    if missing:
        lines = [
            f"{files[role]} has no column for {role}.{name}: it has {', '.join(headers[role])}, "
            f"expected one of {', '.join(KNOWN[role][name])}."
            for role, name in missing
        ]
        options = " ".join(f"--column {role}.{name}=NAME" for role, name in missing)
        raise UsageError("\n".join([*lines, f"Say which they are: {options}"]))
    if "score" not in places["qrels"]:
        used = places["qrels"].values()
        unread = [name for place, name in enumerate(headers["qrels"]) if place not in used]
        tell(
            f"{qrels} has no column for qrels.score: every judgement counts as 1. "
            f"Not read: {', '.join(unread) or 'none'}; --column qrels.score=NAME maps one."
        )
    problems: list[str] = []
    documents, asked, judged = (
        [*_rows(files[role], tables[role], headers[role], places[role], problems)] for role in files
    )
    if problems:
        more = f"\nand {len(problems) - _SHOWN:,} more." if len(problems) > _SHOWN else ""
        raise DataError("\n".join(problems[:_SHOWN]) + more)
    for row in documents:
        row["text"] = " ".join(row.pop(name) for name in ("title", "text") if name in row)
    pairs = (
        {"q_id": row["query"], "p_id": row["document"], "score": score_of(row.get("score", "1"))}
        for row in judged
    )
    with atomic_folder(out) as draft:
        write_jsonl(draft / "corpus.jsonl", documents)
        write_jsonl(draft / "query.jsonl", ({"id": "", "text": "", **row} for row in asked))
        write_jsonl(draft / "qrels.jsonl", pairs)
    return len(documents), len(asked), len(judged)


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file, each with the line it begins in; a quote that stays open is refused.

    The name says what separates cells: .csv or .tsv, gzipped or not; in a .csv a header with ';'
    alone says so.
    """
    names = [suffix.lower() for suffix in path.suffixes]
    if not {".csv", ".tsv", ".tab"} & {*names}:
        raise UsageError(f"{path}: expected a file whose name ends in .csv or .tsv (or .gz).")
    lines = _lines(path)
    first = next(lines, "")
    if not first.strip():
        raise DataError(f"{path} is empty, expected a line of column names and rows.")
    separator = ";" if ";" in first and "," not in first else ","
    csv.field_size_limit(limit(MAX_LINE))
    delimiter = "\t" if {".tsv", ".tab"} & {*names} else separator
    reader = csv.reader(chain([first], lines, [_END]), delimiter=delimiter)
    line = 1
    try:
        for row in reader:
            if row == [_END]:
                return
            if row and row[-1].endswith(_END):
                raise csv.Error("a quote is opened in this row and never closed")
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


def _places(
    path: Path, role: str, header: Sequence[str], mapped: Mapping[tuple[str, str], str]
) -> dict[str, int]:
    """Where each known column stands, by its mapping or a usual name."""
    lowered = [name.lower() for name in header]
    places: dict[str, int] = {}
    for name, usual in KNOWN[role].items():
        chosen = mapped.get((role, name))
        candidates = [lowered.index(each) for each in usual if each in lowered]
        if chosen is not None and chosen not in header:
            raise UsageError(
                f"{path} has no column {chosen!r} ({role}.{name}). {nearest(chosen, header)}"
            )
        if chosen is not None or candidates:
            places[name] = candidates[0] if chosen is None else header.index(chosen)
    return places


def _rows(
    path: Path,
    cells: Iterable[tuple[int, list[str]]],
    header: Sequence[str],
    places: Mapping[str, int],
    problems: list[str],
) -> Iterator[dict[str, str]]:
    """The wanted columns of a file, row by row; what is wrong is noted among the problems."""
    for line, row in cells:
        if not any(row):
            continue
        if len(row) != len(header):
            problems.append(
                f"{path}, line {line}: {plural(len(row), 'cell')}, expected {len(header)}."
            )
            continue
        values = {name: row[place] for name, place in places.items() if row[place]}
        yield values
        problems.extend(
            f'{path}, line {line}: column "{header[places[name]]}" is empty.'
            for name in places
            if name not in values and name not in _OPTIONAL and name != "text"
        )
        if score_of(values.get("score", "1")) is None:
            score = values["score"]
            problems.append(
                f"{path}, line {line}: the score is {score!r}, expected {NUMBER_WORDS}."
            )
