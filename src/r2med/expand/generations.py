"""Generations on disk in the reference layout: `<method>/<llm>/query_with_hydoc.jsonl`.

A row is `{"id", "text", "hy_doc"}`. Several samples add `hy_docs`, the list of all of them, and
rows of our own add `finish`, so that a refusal stays one when the file is read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, get_args

from r2med.atomic import atomic_file
from r2med.errors import DataError, MissingError
from r2med.expand.expanded import Expanded, Outcome
from r2med.expand.trace import Trace
from r2med.tasks.location import GENERATIONS
from r2med.tasks.reading.exact import described, json_object
from r2med.tasks.reading.lines import lines
from r2med.tasks.task import Task

FILE = GENERATIONS
TRACES = "traces.jsonl"
_OUTCOMES = get_args(Outcome)
_ROW_HINT = 'Each line is {"id": "...", "text": "...", "hy_doc": "..."}; see docs/generation.md.'
_TRACE_HINT = "Each line is the trace of an agent; see docs/generation.md."


@dataclass(frozen=True)
class Generated:
    """What a file holds for one query: texts as models wrote them, with what became of each."""

    text: str | None
    raws: tuple[str, ...]
    outcomes: tuple[Outcome, ...] = ()


def place(folder: Path, method: str, llm: str) -> Path:
    """Where a task's folder holds the generations of a method and model."""
    return folder / method / llm / FILE


def read_generations(path: Path) -> dict[str, Generated]:
    """The rows of a file by query id; an error names file, line and field."""
    rows: dict[str, Generated] = {}
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        query_id, row = _row(line, where)
        if query_id in rows:
            raise DataError(f"{where}: query {query_id!r} has a generation already, further up.")
        rows[query_id] = row
    return rows


def file_hash(path: Path) -> str:
    """Identity of a file's content."""
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def fitted(rows: Mapping[str, Generated], task: Task, path: Path) -> tuple[str, ...]:
    """Hold a file against a task's queries: lacking ones are an error, others are told."""
    wanted = dict(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True))
    lacking = [query_id for query_id in wanted if query_id not in rows]
    extra = [query_id for query_id in rows if query_id not in wanted]
    if lacking:
        also = f" It holds {len(extra)} for other queries." if extra else ""
        raise DataError(
            f"{path}: {len(lacking)} of {len(wanted)} queries of {task.name} have no generation "
            f"({_some(lacking)}).{also}\nGenerate them, take another file, or evaluate with "
            "[generations=live]."
        )
    other = [
        query_id
        for query_id, text in wanted.items()
        if rows[query_id].text is not None and not _same(rows[query_id].text, text)
    ]
    if other:
        raise DataError(
            f"{path}: the text of {len(other)} of {len(wanted)} queries is not that of "
            f"{task.name} ({_some(other)}).\nThe file belongs to another task or version of it."
        )
    if not extra:
        return ()
    return (
        f"{path} holds {len(extra)} generations for queries that {task.name} has not "
        f"({_some(extra)}); they are left out.",
    )


def write_generations(queries: Iterable[Expanded], path: Path) -> None:
    """Write the file, and the agents' traces beside it."""
    expanded = list(queries)
    _write(path, [_as_row(query) for query in expanded])
    traces = [
        {"id": query.query_id, "sample": sample, **trace.to_json()}
        for query in expanded
        for sample, trace in enumerate(query.traces)
    ]
    if traces:
        _write(path.with_name(TRACES), traces)


def read_traces(path: Path) -> dict[str, tuple[Trace, ...]]:
    """The traces beside a file of generations, by query; none where there is no such file."""
    beside = path.with_name(TRACES)
    if not beside.is_file():
        return {}
    found: dict[str, list[Trace]] = {}
    for number, line in lines(beside):
        where = f"{beside}, line {number}"
        row = json_object(line, where, _TRACE_HINT)
        found.setdefault(str(row.get("id")), []).append(Trace.from_json(row, where))
    return {query_id: tuple(traces) for query_id, traces in found.items()}


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    if not path.exists():
        raise MissingError(f"{path} does not exist.")
    return lines(path)


def _row(line: bytes, where: str) -> tuple[str, Generated]:
    row = json_object(line, where, _ROW_HINT)
    query_id, text = row.get("id"), row.get("text")
    if not isinstance(query_id, str | int) or isinstance(query_id, bool) or query_id == "":
        _refuse(where, "id", _found(row, "id"), "a string or an integer")
    raws, finish = _raws(row, where), _members(row.get("finish", []), where, "finish")
    for word in finish:
        if word not in _OUTCOMES:
            _refuse(where, "finish", f"holds {described(word)}", " or ".join(_OUTCOMES))
    own = text if isinstance(text, str) else None
    return str(query_id), Generated(own, raws, tuple(finish))


def _raws(row: Mapping[str, object], where: str) -> tuple[str, ...]:
    one, several = row.get("hy_doc"), row.get("hy_docs")
    if several is None:
        if not isinstance(one, str):
            _refuse(where, "hy_doc", _found(row, "hy_doc"), "a string")
        return (one,)
    texts = _members(several, where, "hy_docs")
    if not texts:
        _refuse(where, "hy_docs", "is empty", "a list of strings")
    for text in texts:
        if not isinstance(text, str):
            _refuse(where, "hy_docs", f"holds {described(text)}", "strings")
    if one not in (None, texts[0]):
        raise DataError(
            f'{where}: field "hy_doc" is not the first of "hy_docs", expected them equal.\n'
            'Correct the one that is wrong, or leave "hy_doc" out.'
        )
    return tuple(texts)


def _members(value: object, where: str, name: str) -> list[Any]:
    if not isinstance(value, list):
        _refuse(where, name, f"is {described(value)}", "a list of strings")
    return value


def _found(row: Mapping[str, object], name: str) -> str:
    if name not in row:
        return "is missing"
    return "is empty" if row[name] == "" else f"is {described(row[name])}"


def _refuse(where: str, name: str, found: str, expected: str) -> NoReturn:
    raise DataError(f'{where}: field "{name}" {found}, expected {expected}.\n{_ROW_HINT}')


def _as_row(query: Expanded) -> dict[str, object]:
    raws = [sample.raw for sample in query.samples]
    row: dict[str, object] = {
        "id": query.query_id,
        "text": query.query,
        "hy_doc": raws[0] if raws else "",
    }
    if len(raws) > 1:
        row["hy_docs"] = raws
    if any(sample.outcome != "ok" for sample in query.samples):
        row["finish"] = [sample.outcome for sample in query.samples]
    return row


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with atomic_file(path) as draft:
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")


def _same(one: str | None, other: str) -> bool:
    return one is not None and one.split() == other.split()


def _some(ids: Sequence[str]) -> str:
    shown = ", ".join(repr(query_id) for query_id in ids[:3])
    return f"{shown}, ..." if len(ids) > 3 else shown
