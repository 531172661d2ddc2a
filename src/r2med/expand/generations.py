"""Generations on disk: where a system finds them, and the reference's file format.

A file is `<method>/<llm>/query_with_hydoc.jsonl`, each row `{"id", "text", "hy_doc"}`. Several
samples add `hy_docs`, the list of all of them. Rows of our own add a `checksum`, and `finish` where
a generation was cut, empty or refused, so that it stays so when the file is read again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from r2med.algorithms import TASK_SPECIFIC
from r2med.errors import DamagedError, DataError, MissingError
from r2med.expand.agents import Trace
from r2med.expand.answers import Expanded, Expansion, Outcome, Sample
from r2med.paths import slug, user_path
from r2med.remote.completions import encodable
from r2med.storage import atomic_file
from r2med.tasks.fetch.provenance import GENERATIONS as FILE
from r2med.tasks.fetch.provenance import data_folder, sha256_of
from r2med.tasks.reading.jsonl import parse_object, write_jsonl
from r2med.tasks.reading.lines import lines
from r2med.tasks.registry import find_task
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.expand.expander import Method

TRACES = "traces.jsonl"
_HINT = (
    f'A line of {FILE} is {{"id": "...", "text": "...", "hy_doc": "..."}}; see docs/generation.md.'
)


@dataclass(frozen=True)
class FromFile:
    """Generations that were made before, here or elsewhere, bound to a task."""

    task: Task
    method: Method
    path: Path
    by_default: bool
    """Whether the file was taken because it was there, not because it was named."""

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The file's content, and how its texts are stripped and combined."""
        return {TASK_SPECIFIC: {"generations": self._content_hash}, **self.method.identity}

    @cached_property
    def _content_hash(self) -> str:
        return sha256_of(self.path)

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader of the scores must know of the file."""
        notice = (
            f"{self.task.name}: generations of {self.method.prompts} by {self.method.llm} are "
            f"read from {self.path}; [generations=live] asks the model instead."
        )
        return (notice,) if self.by_default else ()

    def expand(self) -> Expansion:
        """Read, strip and combine; texts count as they stand, unless `finish` says otherwise."""
        rows, traces = read_generations(self.path), read_traces(self.path)
        check_fit(rows, self.task, self.path)
        queries, count = [], self.method.n
        for query_id, query in self.task.queries.items():
            made = rows[query_id].samples
            if len(made) < count:
                raise DataError(
                    f"{self.path}: query {query_id!r} has {len(made)} generations, "
                    f"[n={count}] asks for more."
                )
            samples = tuple(replace(s, answer=self.method.answer_in(s.raw)) for s in made[:count])
            queries.append(Expanded(query_id, query, samples, traces.get(query_id, ())))
        work = {"generations_from": str(self.path), "generations_sha256": self._content_hash}
        return self.method.expansion(tuple(queries), work)


def find_file(task: Task, method: Method) -> FromFile | None:
    """The generations to read, or None when a model is to be asked.

    The method's `generations` is `auto`, `live`, `published` or a path: of a file, of a folder that
    holds it, or of a root that holds task folders.
    """
    choice = method.generations
    if choice == "live":
        return None
    if choice in ("auto", "published"):
        entry, home = task.entry, task.source
        if entry is not None and entry.split is not None:  # a Nano task has its full task's queries
            home = data_folder(find_task(entry.source))
        tried = [file_in(home, method.prompts, method.llm)]
    else:
        path = user_path(choice)
        folders = [path, path / slug(task.name)]
        last_part = task.name.rpartition("/")[2]
        if last_part.isprintable() and last_part.strip("."):  # never `..` or what no file can be
            folders.append(path / last_part)
        inside = (file_in(folder, method.prompts, method.llm) for folder in folders)
        tried = [path, path / FILE, *inside]
    for candidate in tried:
        if candidate.is_file():
            return FromFile(task, method, candidate, choice == "auto")
    if choice == "auto":
        return None
    tried_paths = "\n  ".join(dict.fromkeys(map(str, tried)))
    raise MissingError(
        f"[generations={choice}]: no generations of {method.prompts} by {method.llm} for "
        f"{task.name}. Looked for\n  {tried_paths}\nIt is live, published or a path; "
        "`r2med fetch TASK --generations` downloads what was published, which is not every method "
        "of every model."
    )


def file_in(folder: Path, method: str, llm: str) -> Path:
    """Where a task's folder holds the generations of a method and model.

    A model's name is one folder's name: what would lead elsewhere is escaped as in an address, and
    a name that no folder could have is a UsageError.
    """
    name = quote(llm, safe=" !$&'()+,:;=@[]~")
    escaped = name if name.strip(".") else name.replace(".", "%2E")
    return user_path(folder / method / escaped / FILE)


def read_generations(path: Path) -> dict[str, Expanded]:
    """The rows of a file by query id, unstripped; the query is empty where a row has no text."""
    rows: dict[str, Expanded] = {}
    for row, where in _json_lines(path):
        expanded = _row(row, where)
        if expanded.query_id in rows:
            raise DataError(
                f"{where}: query {expanded.query_id!r} has a generation already, further up."
            )
        rows[expanded.query_id] = expanded
    return rows


def read_traces(path: Path) -> dict[str, tuple[Trace, ...]]:
    """The traces beside a file of generations, by query; none where there is no such file."""
    beside = path.with_name(TRACES)
    traces: dict[str, tuple[Trace, ...]] = {}
    for row, _ in _json_lines(beside, sealed=True) if beside.is_file() else ():
        query_id = str(row["id"])
        traces[query_id] = (*traces.get(query_id, ()), Trace.from_json(row))
    return traces


def write_generations(queries: Iterable[Expanded], path: Path) -> None:
    """Write the file, and the agents' traces beside it."""
    rows: list[Mapping[str, object]] = []
    traces: list[Mapping[str, object]] = []
    for query in queries:
        raws = [encodable(sample.raw) for sample in query.samples]
        outcomes = [sample.outcome for sample in query.samples]
        several = {"hy_docs": raws} if len(raws) > 1 else {}
        finish = {"finish": outcomes} if set(outcomes) != {"ok"} else {}
        row = {"id": query.query_id, "text": query.query, "hy_doc": raws[0]}
        rows.append({**row, **several, **finish})
        traces += [
            {"id": query.query_id, "sample": sample, **asdict(trace)}
            for sample, trace in enumerate(query.traces)
        ]
    _write(path, rows)
    if traces:
        _write(path.with_name(TRACES), traces)


def check_fit(rows: Mapping[str, Expanded], task: Task, path: Path) -> None:
    """Refuse a file that lacks queries of a task, or has other texts under their ids."""
    query_texts = dict(task.queries.items())
    missing = [query_id for query_id in query_texts if query_id not in rows]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(query_texts)} queries of {task.name} have no "
            f"generation ({_some(missing)}).\nAdd them, or take another file."
        )
    texts = {query_id: rows[query_id].query for query_id in query_texts}
    different = [n for n, text in texts.items() if text and text.split() != query_texts[n].split()]
    if different:
        raise DataError(
            f"{path}: the text of {len(different)} of {len(query_texts)} queries is not that of "
            f"{task.name} ({_some(different)}).\nThe file belongs to another task or version of it."
        )


def _json_lines(path: Path, *, sealed: bool = False) -> Iterator[tuple[dict[str, Any], str]]:
    """Each line's object and where it stands.

    Its checksum is tested where it has one; a file of lines that only we write must have them.
    """
    for number, line in lines(path):
        where = f"{path}, line {number}"
        row = parse_object(line, where, _HINT)
        checksum = row.pop("checksum", None)
        if (sealed or checksum is not None) and checksum != _checksum(row):
            raise DamagedError(
                f"{where}: the checksum does not fit, so the line was damaged or edited since it "
                "was written.\nGenerate it again (answers are kept, none is paid twice), or delete "
                f'"checksum" from a line of {FILE} to take it as it stands.'
            )
        yield row, where


def _checksum(row: Mapping[str, object]) -> str:
    content = json.dumps(row, sort_keys=True).encode()
    return f"{zlib.crc32(content):08x}"


def _row(row: Mapping[str, Any], where: str) -> Expanded:
    query_id, text = row.get("id"), row.get("text")
    raws, marks = row.get("hy_docs") or [row.get("hy_doc")], row.get("finish") or []
    known = type(query_id) in (str, int) and query_id != ""
    listed = isinstance(raws, list) and all(isinstance(raw, str) for raw in raws)
    marked = isinstance(marks, list) and all(mark in get_args(Outcome) for mark in marks)
    if listed and row.get("hy_doc") not in (None, raws[0]):
        raise DataError(
            f'{where}: "hy_doc" is not the first of "hy_docs", expected them equal.\n'
            'Correct the one that is wrong, or leave "hy_doc" out.'
        )
    if not (known and listed and marked):
        raise DataError(
            f'{where}: expected an "id", a string "hy_doc" or a list of strings "hy_docs", and if '
            f'any a list "finish" of {", ".join(get_args(Outcome))}.\n{_HINT}'
        )
    outcomes = [*marks, *["ok"] * len(raws)]
    samples = (Sample(encodable(raw), "", mark) for raw, mark in zip(raws, outcomes, strict=False))
    return Expanded(str(query_id), text if isinstance(text, str) else "", tuple(samples))


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with atomic_file(path) as draft:
        write_jsonl(draft, ({**row, "checksum": _checksum(row)} for row in rows))


def _some(ids: Sequence[str]) -> str:
    tried_paths = ", ".join(repr(query_id) for query_id in ids[:3])
    return f"{tried_paths}, ..." if len(ids) > 3 else tried_paths
