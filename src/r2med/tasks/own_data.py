"""Data of the user's own: every problem of a folder at once, and CSV or TSV files made into one.

Loading stops at the first problem, which is right for an evaluation and slow for whoever prepares
data. A check reads every line by the same rules and collects what is wrong. An import finds columns
by their usual names, or as the user maps them; where anything is wrong, nothing is written.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from r2med.atomic import atomic_folder
from r2med.errors import DataError, R2MedError, UsageError, nearest
from r2med.tasks.load import load_task
from r2med.tasks.reading.collection import PARTS, read_part
from r2med.tasks.reading.fields import NUMBER_WORDS, Rows, Where
from r2med.tasks.reading.jsonl import decoded, write_jsonl
from r2med.tasks.reading.judgements import DOCUMENT_NAMES, QUERY_NAMES, SCORE_NAMES, score_of
from r2med.tasks.reading.lines import MAX_LINE, blocks, limit
from r2med.tasks.reading.source import Source, find_source, split_selection
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

    folder: Path
    problems: tuple[Problem, ...]
    task: Task | None


def check(place: str | Path) -> Checked:
    """All problems of the task in a folder (`FOLDER#SPLIT` where it holds several)."""
    folder, split = split_selection(place)
    try:
        source = find_source(folder, split)
    except R2MedError as problem:
        if not folder.is_dir():
            raise
        return Checked(folder, (Problem(str(folder), None, None, str(problem)),), None)
    problems = _problems(source)
    try:
        return Checked(folder, tuple(problems), load_task(place, use_copy=False))
    except R2MedError as problem:
        problems = problems or [Problem(str(folder), None, None, str(problem))]
        return Checked(folder, tuple(problems), None)


_Note = Callable[[object, Where, object], None]
"""Takes what is wrong, where it stands, and the id there."""


def _problems(source: Source) -> list[Problem]:
    problems: list[Problem] = []

    def note(problem: object, where: Where, id: object) -> None:
        text = str(problem).partition("\n")[0].removeprefix(f"{where}: ")
        known = None if id is None else str(id)
        problems.append(Problem(str(where.file), where.number, known, text))

    parts: dict[str, Rows] = {}
    for part in PARTS:
        file, before = Where(getattr(source, part)[0]), len(problems)
        try:
            parts[part] = read_part(source, part, note)
            if not len(parts[part]) and len(problems) == before:
                note("the file holds nothing", file, None)
        except DataError as error:
            note(error, file, None)
    for part, what in (("corpus", "document"), ("queries", "query")):
        if part in parts:
            _check_texts(parts[part], what, note)
    if all(each.line is not None for each in problems):
        _check_pairs(parts["judgements"], _ids(parts["corpus"]), _ids(parts["queries"]), note)
    files = [str(file) for file in source.files]
    return sorted(problems, key=lambda each: (files.index(each.file), each.line or 0))


def _ids(rows: Rows) -> set[str]:
    return set(rows.columns["id"].to_pylist())


def _check_texts(rows: Rows, what: str, note: _Note) -> None:
    """Ids that were used before, and rows without text."""
    first: dict[str, int] = {}
    texts = rows.columns["text"].to_pylist()
    for row, (name, text) in enumerate(zip(rows.columns["id"].to_pylist(), texts, strict=True)):
        earlier = first.setdefault(name, row)
        if earlier != row:
            before = _seen_from(rows.where(row), rows.where(earlier))
            note(f"this {what} id was already used in {before}", rows.where(row), name)
        if not text.strip():
            note(f"the {what} has no text", rows.where(row), name)


def _seen_from(here: Where, place: Where) -> str:
    """A place as another names it: without the file where they share it."""
    return f"{place.unit} {place.number}" if place.file == here.file else str(place)


def _check_pairs(rows: Rows, documents: set[str], queries: set[str], note: _Note) -> None:
    """Unknown ids, contradictions, and queries without a positive."""
    first: dict[tuple[str, str], int] = {}
    columns = [rows.columns[name].to_pylist() for name in ("query", "document", "score")]
    for row, (query, document, score) in enumerate(zip(*columns, strict=True)):
        pair, where = f"{query} {document}", rows.where(row)
        if query not in queries:
            note(f'there is no query "{query}"', where, pair)
        if document not in documents:
            note(f'there is no document "{document}"', where, pair)
        earlier = first.setdefault((query, document), row)
        if score != columns[2][earlier]:
            before = f"{columns[2][earlier]} in {_seen_from(where, rows.where(earlier))}"
            note(f"judged {score} here, but {before}", where, pair)
    positive = {query for query, score in zip(columns[0], columns[2], strict=True) if score > 0}
    judged = {query: row for row, query in reversed(list(enumerate(columns[0])))}
    for query in sorted(queries & judged.keys() - positive):
        where = rows.where(judged[query])
        note("the query is judged, but has no positive document", where, query)


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
    tell: Callable[[str], None] | None = None,
) -> tuple[int, int, int]:
    """Write a task's folder from three tables; `columns` maps `corpus.text` to a column's name.

    A title is put before the text with a space, as BEIR's tools do. Judgements without a score
    count as 1, and `tell` hears which columns were not read for one. Returns how many
    documents, queries and judgements were written.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists, and nothing in it was touched. --force replaces it.")
    mapped = {_field(name): column for name, column in (columns or {}).items()}
    problems: list[str] = []
    files = {"corpus": corpus, "queries": queries, "qrels": qrels}
    headers = {role: _header(path) for role, path in files.items()}
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
    if "score" not in places["qrels"] and tell is not None:
        used = places["qrels"].values()
        unread = [name for place, name in enumerate(headers["qrels"]) if place not in used]
        tell(
            f"{qrels} has no column for qrels.score: every judgement counts as 1. "
            f"Not read: {', '.join(unread) or 'none'}; --column qrels.score=NAME maps one."
        )
    documents, asked, judged = (_table(files[role], places[role], problems) for role in files)
    scores = [score_of(row.get("score", "1")) for _, row in judged]
    problems.extend(
        f"{qrels}, line {line}: the score is {row['score']!r}, expected {NUMBER_WORDS}."
        for (line, row), score in zip(judged, scores, strict=True)
        if score is None
    )
    if problems:
        more = f"\nand {len(problems) - _SHOWN:,} more." if len(problems) > _SHOWN else ""
        raise DataError("\n".join(problems[:_SHOWN]) + more)
    with atomic_folder(out) as draft:
        texts = (
            {"id": row["id"], "text": " ".join(row[n] for n in ("title", "text") if n in row)}
            for _, row in documents
        )
        write_jsonl(draft / "corpus.jsonl", texts)
        write_jsonl(draft / "query.jsonl", ({"id": "", "text": "", **row} for _, row in asked))
        pairs = (
            {"q_id": row["query"], "p_id": row["document"], "score": score}
            for (_, row), score in zip(judged, scores, strict=True)
        )
        write_jsonl(draft / "qrels.jsonl", pairs)
    return len(documents), len(asked), len(judged)


def _field(name: str) -> str:
    """The field of a task that `corpus.text`, or a usual name as in `qrels.query-id`, means."""
    known = [f"{role}.{field}" for role, fields in KNOWN.items() for field in fields]
    if name in known:
        return name
    role, _, usual = name.partition(".")
    for field, names in KNOWN.get(role, {}).items():
        if usual in names:
            return f"{role}.{field}"
    raise UsageError(f"--column {name}: not a field of a task. {nearest(name, known)}")


def _cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file, each with the line it begins in; a quote that stays open is refused."""
    csv.field_size_limit(limit(MAX_LINE))
    reader = csv.reader(chain(_lines(path), [_END]), delimiter=_delimiter(path))
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


def _header(path: Path) -> list[str]:
    _, header = next(_cells(path), (0, []))
    if not header:
        raise DataError(f"{path} is empty, expected a line of column names and rows.")
    return [name.strip() for name in header]


def _table(
    path: Path, places: Mapping[str, int], problems: list[str]
) -> list[tuple[int, dict[str, str]]]:
    """The wanted columns of a file, row by row with the line each begins in.

    A wrong row is noted among the problems.
    """
    cells = _cells(path)
    _, header = next(cells)
    rows = []
    for where, row in cells:
        if not any(row):
            continue
        if len(row) != len(header):
            found = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            problems.append(f"{path}, line {where}: {found}, expected {len(header)}.")
            continue
        values = {name: row[place] for name, place in places.items() if row[place]}
        rows.append((where, values))
        problems.extend(
            f'{path}, line {where}: column "{header[places[name]]}" is empty.'
            for name in places
            if name not in values and name not in _OPTIONAL and name != "text"
        )
    return rows


def _places(
    path: Path, role: str, header: Sequence[str], mapped: Mapping[str, str]
) -> dict[str, int]:
    """Where each known column stands, by its mapping or a usual name."""
    lowered = [name.lower() for name in header]
    places: dict[str, int] = {}
    for name, usual in KNOWN[role].items():
        chosen = mapped.get(f"{role}.{name}")
        if chosen is not None and chosen not in header:
            raise UsageError(
                f"{path} has no column {chosen!r} ({role}.{name}). {nearest(chosen, header)}"
            )
        candidates = [lowered.index(each) for each in usual if each in lowered]
        if chosen is not None:
            places[name] = header.index(chosen)
        elif candidates:
            places[name] = candidates[0]
    return places


def _delimiter(path: Path) -> str:
    """By the name: .csv or .tsv, gzipped or not; in a .csv a header with ';' alone says so."""
    names = [suffix.lower() for suffix in path.suffixes]
    if ".tsv" in names or ".tab" in names:
        return "\t"
    if ".csv" not in names:
        raise UsageError(f"{path}: expected a file whose name ends in .csv or .tsv (or .gz).")
    first = next(_lines(path), "")
    return ";" if ";" in first and "," not in first else ","


def _lines(path: Path) -> Iterator[str]:
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            yield decoded(line, f"{path}, line {number}") + "\n"
