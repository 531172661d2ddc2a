"""Generations on disk in the reference layout: `<method>/<llm>/query_with_hydoc.jsonl`.

A row is `{"id", "text", "hy_doc"}`. Several samples add `hy_docs`, the list of all of them, and
rows of our own add `finish`, so that a refusal stays one when the file is read again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from r2med.atomic import atomic_file
from r2med.errors import DataError, MissingError
from r2med.expand.expanded import Expanded, Outcome
from r2med.expand.trace import Trace
from r2med.tasks.location import GENERATIONS
from r2med.tasks.task import Task

FILE = GENERATIONS
TRACES = "traces.jsonl"
_OUTCOMES: frozenset[str] = frozenset({"ok", "truncated", "empty", "refused"})


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
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
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
    for number, line in enumerate(_lines(beside), start=1):
        if not line.strip():
            continue
        where = f"{beside}, line {number}"
        row = _object(line, where)
        found.setdefault(str(row.get("id")), []).append(Trace.from_json(row, where))
    return {query_id: tuple(traces) for query_id, traces in found.items()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        raise MissingError(f"{path} does not exist.") from None
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: this is not UTF-8 text ({problem.reason}).") from None
    except OSError as problem:
        raise DataError(f"{path} cannot be read: {problem.strerror}.") from None


def _object(line: str, where: str) -> dict[str, object]:
    try:
        row = json.loads(line)
    except ValueError as problem:
        raise DataError(f"{where}: this is not JSON ({problem}).") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: found a {type(row).__name__}, expected an object.")
    return row


def _row(line: str, where: str) -> tuple[str, Generated]:
    row = _object(line, where)
    query_id, text = row.get("id"), row.get("text")
    if not isinstance(query_id, str | int) or isinstance(query_id, bool) or query_id == "":
        raise DataError(_wrong(where, "id", query_id, "a string"))
    raws = _raws(row, where)
    finish = row.get("finish", [])
    if not isinstance(finish, list) or any(word not in _OUTCOMES for word in finish):
        known = ", ".join(sorted(_OUTCOMES))
        raise DataError(_wrong(where, "finish", finish, f"a list of {known}"))
    own = text if isinstance(text, str) else None
    return str(query_id), Generated(own, raws, tuple(finish))


def _raws(row: Mapping[str, object], where: str) -> tuple[str, ...]:
    several = row.get("hy_docs")
    if several is not None:
        if not isinstance(several, list) or not all(isinstance(text, str) for text in several):
            raise DataError(_wrong(where, "hy_docs", several, "a list of strings"))
        return tuple(several)
    one = row.get("hy_doc")
    if not isinstance(one, str):
        raise DataError(_wrong(where, "hy_doc", one, "a string"))
    return (one,)


def _wrong(where: str, name: str, value: object, expected: str) -> str:
    found = "is missing" if value is None else f"is a {type(value).__name__}"
    return (
        f'{where}: field "{name}" {found}, expected {expected}.\n'
        'Each line is {"id": "...", "text": "...", "hy_doc": "..."}; see docs/generation.md.'
    )


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
