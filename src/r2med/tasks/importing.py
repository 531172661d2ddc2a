"""CSV and TSV files as a task's folder: columns by their usual names, or mapped by the user.

Everything that is wrong with the files is said at once; nothing is written then.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.atomic import atomic_folder
from r2med.errors import DataError, UsageError, nearest
from r2med.tasks.reading.fields import NUMBER_WORDS
from r2med.tasks.reading.jsonl import decoded, write_jsonl
from r2med.tasks.reading.judgements import DOCUMENT_NAMES, QUERY_NAMES, SCORE_NAMES, score_of
from r2med.tasks.reading.lines import MAX_LINE, blocks, limit

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


def import_tables(
    corpus: Path,
    queries: Path,
    qrels: Path,
    *,
    out: Path,
    columns: Mapping[str, str] | None = None,
    force: bool = False,
) -> Path:
    """Write a task's folder from three tables; `columns` maps `corpus.text` to a column's name.

    A title is put before the text with a space, as BEIR's tools do.
    """
    if out.exists() and not force:
        raise UsageError(f"{out} exists, and nothing in it was touched. --force replaces it.")
    mapped = _mapped(columns or {})
    tables = {
        "corpus": _Table.read(corpus, "corpus", mapped),
        "queries": _Table.read(queries, "queries", mapped),
        "qrels": _Table.read(qrels, "qrels", mapped),
    }
    judged = tables["qrels"]
    rows = [(line, row, score_of(row.get("score", "1"))) for line, row in judged.rows]
    judged.problems.extend(
        f"{qrels}, line {line}: the score is {row['score']!r}, expected {NUMBER_WORDS}."
        for line, row, score in rows
        if score is None
    )
    problems = [problem for table in tables.values() for problem in table.problems]
    if problems:
        more = f"\nand {len(problems) - _SHOWN:,} more." if len(problems) > _SHOWN else ""
        raise DataError("\n".join(problems[:_SHOWN]) + more)
    with atomic_folder(out) as draft:
        documents, asked = tables["corpus"].rows, tables["queries"].rows
        write_jsonl(draft / "corpus.jsonl", (_document(row) for _, row in documents))
        write_jsonl(draft / "query.jsonl", ({"id": "", "text": "", **row} for _, row in asked))
        pairs = (
            {"q_id": row["query"], "p_id": row["document"], "score": score}
            for _, row, score in rows
        )
        write_jsonl(draft / "qrels.jsonl", pairs)
    return out


@dataclass(frozen=True)
class _Table:
    """The wanted columns of a file, row by row with the line each begins in."""

    rows: list[tuple[int, dict[str, str]]]
    problems: list[str]

    @classmethod
    def read(cls, path: Path, role: str, mapped: Mapping[str, str]) -> _Table:
        """Read a table; a missing column is an error, a wrong row is noted among the problems."""
        csv.field_size_limit(limit(MAX_LINE))
        cells = csv.reader(_lines(path), delimiter=_delimiter(path))
        header = next(cells, None)
        if not header:
            raise DataError(f"{path} is empty, expected a line of column names and rows.")
        places = _places(path, role, [name.strip() for name in header], mapped)
        table, line = cls([], []), cells.line_num + 1
        for row in cells:
            where, line = line, cells.line_num + 1
            if not any(row):
                continue
            if len(row) != len(header):
                table.problems.append(
                    f"{path}, line {where}: {len(row)} cells, expected {len(header)}."
                )
                continue
            values = {name: row[place] for name, place in places.items() if row[place]}
            table.rows.append((where, values))
            table.problems.extend(
                f'{path}, line {where}: column "{header[places[name]]}" is empty.'
                for name in places
                if name not in values and name not in _OPTIONAL and name != "text"
            )
        return table


def _places(
    path: Path, role: str, header: Sequence[str], mapped: Mapping[str, str]
) -> dict[str, int]:
    """Where each wanted column stands; optional ones may be missing."""
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
        elif name not in _OPTIONAL:
            raise UsageError(
                f"{path} has no column for {role}.{name}: it has {', '.join(header)}, expected one "
                f"of {', '.join(usual)}.\nSay which it is: --column {role}.{name}=NAME."
            )
    return places


def _mapped(columns: Mapping[str, str]) -> Mapping[str, str]:
    known = [f"{role}.{name}" for role, names in KNOWN.items() for name in names]
    for name in columns:
        if name not in known:
            raise UsageError(f"--column {name}: not a column of a task. {nearest(name, known)}")
    return columns


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


def _document(row: Mapping[str, str]) -> dict[str, str]:
    parts = [row.get("title", ""), row.get("text", "")]
    return {"id": row["id"], "text": " ".join(filter(None, parts))}
