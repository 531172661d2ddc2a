"""Files of generations, in the format of the R2MED reference implementation.

A file is `<method>/<llm>/query_with_hydoc.jsonl` with rows `{"id", "text", "hy_doc"}`. If there are
several samples, `hy_docs` lists all of them. Rows that r2med writes also have a `checksum`, and
`finish` if a generation was truncated, empty or refused.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from r2med.algorithms import TASK_SPECIFIC
from r2med.errors import DamagedError, DataError, MissingError
from r2med.expand.agents import Trace
from r2med.expand.answers import ExpandedQuery, Expansion, Outcome, Sample
from r2med.paths import slug, user_path
from r2med.remote.completions import replace_lone_surrogates
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
class StoredGenerations:
    """The generations of a file, for one task."""

    task: Task
    method: Method
    path: Path
    by_default: bool
    """Whether the file was found automatically instead of being chosen by the user."""

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that can change the expansion: the file's content and the combination."""
        return {TASK_SPECIFIC: {"generations": self._content_hash}, **self.method.identity}

    @cached_property
    def _content_hash(self) -> str:
        return sha256_of(self.path)

    @property
    def notices(self) -> tuple[str, ...]:
        """A notice if the file was found automatically; otherwise empty."""
        if not self.by_default:
            return ()
        return (
            f"{self.task.name}: generations of {self.method.prompts} by {self.method.llm} are "
            f"read from {self.path}; [generations=live] asks the model instead.",
        )

    def expand(self) -> Expansion:
        """Read the file and combine its texts with the queries.

        A generation is usable unless the file marks it otherwise (`finish`).
        """
        rows, traces = read_generations(self.path), read_traces(self.path)
        check_fit(rows, self.task, self.path)
        queries, count = [], self.method.n
        for query_id, query in self.task.queries.items():
            stored_samples = rows[query_id].samples
            if len(stored_samples) < count:
                raise DataError(
                    f"{self.path}: query {query_id!r} has {len(stored_samples)} generations, "
                    f"fewer than [n={count}] asks for."
                )
            samples = tuple(
                replace(sample, answer=self.method.extract_answer(sample.raw))
                for sample in stored_samples[:count]
            )
            queries.append(ExpandedQuery(query_id, query, samples, traces.get(query_id, ())))
        work = {"generations_from": str(self.path), "generations_sha256": self._content_hash}
        return self.method.expansion(tuple(queries), work)


def find_generations(task: Task, method: Method) -> StoredGenerations | None:
    """Return the generations that `[generations=...]` selects; None to call the model.

    The setting is `auto`, `live`, `published` or a path: of a file, of the folder with the file, or
    of a folder with task folders.
    """
    choice = method.generations
    if choice == "live":
        return None
    if choice in ("auto", "published"):
        entry, folder = task.entry, task.source
        if entry is not None and entry.split is not None:  # Nano tasks use the full task's queries
            folder = data_folder(find_task(entry.source))
        candidates = [generations_path(folder, method.prompts, method.llm)]
    else:
        path = user_path(choice)
        folders = [path, path / slug(task.name)]
        last_part = task.name.rpartition("/")[2]
        if last_part.isprintable() and last_part.strip("."):  # a valid folder name, and not `..`
            folders.append(path / last_part)
        in_folders = [generations_path(folder, method.prompts, method.llm) for folder in folders]
        candidates = [path, path / FILE, *in_folders]
    for candidate in candidates:
        if candidate.is_file():
            return StoredGenerations(task, method, candidate, choice == "auto")
    if choice == "auto":
        return None
    tried_paths = "\n  ".join(dict.fromkeys(map(str, candidates)))
    raise MissingError(
        f"[generations={choice}]: no generations of {method.prompts} by {method.llm} for "
        f"{task.name}. Tried:\n  {tried_paths}\nExpected live, published or a path. "
        "`r2med fetch TASK --generations` downloads published generations, which do not exist for "
        "every method and model."
    )


def generations_path(folder: Path, method: str, llm: str) -> Path:
    """Return the path of the generations of a method and a model, below a task's folder.

    Characters of the model's name that cannot be part of a folder name are percent-encoded; a name
    that is too long for a folder is a UsageError.
    """
    folder_name = quote(llm, safe=" !$&'()+,:;=@[]~")
    if not folder_name.strip("."):  # `.` and `..` are other folders
        folder_name = folder_name.replace(".", "%2E")
    return user_path(folder / method / folder_name / FILE)


def read_generations(path: Path) -> dict[str, ExpandedQuery]:
    """Read a file of generations by query id; answers are not extracted yet.

    If a row has no query text, its `query` is empty.
    """
    queries: dict[str, ExpandedQuery] = {}
    for row, location in _read_rows(path):
        query = _parse_row(row, location)
        if query.query_id in queries:
            raise DataError(
                f"{location}: query {query.query_id!r} already has a generation in an earlier line."
            )
        queries[query.query_id] = query
    return queries


def read_traces(path: Path) -> dict[str, tuple[Trace, ...]]:
    """Read the traces beside a file of generations, by query id; empty if there are none."""
    traces_path = path.with_name(TRACES)
    traces: dict[str, tuple[Trace, ...]] = {}
    if not traces_path.is_file():
        return traces
    for row, _ in _read_rows(traces_path, needs_checksum=True):
        query_id = str(row["id"])
        traces[query_id] = (*traces.get(query_id, ()), Trace.from_json(row))
    return traces


def write_generations(queries: Iterable[ExpandedQuery], path: Path) -> None:
    """Write a file of generations and, for agents, a file of traces in the same folder."""
    rows: list[Mapping[str, object]] = []
    traces: list[Mapping[str, object]] = []
    for query in queries:
        texts = [replace_lone_surrogates(sample.raw) for sample in query.samples]
        outcomes = [sample.outcome for sample in query.samples]
        row: dict[str, object] = {"id": query.query_id, "text": query.query, "hy_doc": texts[0]}
        if len(texts) > 1:
            row["hy_docs"] = texts
        if set(outcomes) != {"ok"}:
            row["finish"] = outcomes
        rows.append(row)
        traces += [
            {"id": query.query_id, "sample": sample, **asdict(trace)}
            for sample, trace in enumerate(query.traces)
        ]
    _write(path, rows)
    if traces:
        _write(path.with_name(TRACES), traces)


def check_fit(rows: Mapping[str, ExpandedQuery], task: Task, path: Path) -> None:
    """Raise DataError if queries of a task are missing, or have other texts in the file."""
    query_texts = dict(task.queries.items())
    missing = [query_id for query_id in query_texts if query_id not in rows]
    if missing:
        raise DataError(
            f"{path}: {len(missing)} of {len(query_texts)} queries of {task.name} have no "
            f"generation ({_list_some(missing)}).\nAdd them, or use another file."
        )
    different = []
    for query_id, query_text in query_texts.items():
        file_text = rows[query_id].query
        if file_text and file_text.split() != query_text.split():
            different.append(query_id)
    if different:
        raise DataError(
            f"{path}: {len(different)} of {len(query_texts)} queries have another text than in "
            f"{task.name} ({_list_some(different)}).\nThe file belongs to another task or another "
            "version of it."
        )


def _read_rows(path: Path, *, needs_checksum: bool = False) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the object and the location of each line; its checksum, if any, is verified."""
    for number, line in lines(path):
        location = f"{path}, line {number}"
        row = parse_object(line, location, _HINT)
        checksum = row.pop("checksum", None)
        if (needs_checksum or checksum is not None) and checksum != _checksum(row):
            raise DamagedError(
                f"{location}: the checksum is wrong, so the line was damaged or edited after it "
                "was written.\nGenerate it again (cached answers are not paid for again), or "
                f'delete "checksum" from a line of {FILE} to accept the line.'
            )
        yield row, location


def _checksum(row: Mapping[str, object]) -> str:
    content = json.dumps(row, sort_keys=True).encode()
    return f"{zlib.crc32(content):08x}"


def _parse_row(row: Mapping[str, Any], location: str) -> ExpandedQuery:
    query_id, query = row.get("id"), row.get("text")
    texts = row.get("hy_docs") or [row.get("hy_doc")]
    outcomes = row.get("finish") or []
    has_id = type(query_id) in (str, int) and query_id != ""
    has_texts = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    has_outcomes = isinstance(outcomes, list) and all(
        outcome in get_args(Outcome) for outcome in outcomes
    )
    if has_texts and row.get("hy_doc") not in (None, texts[0]):
        raise DataError(
            f'{location}: "hy_doc" differs from the first of "hy_docs", expected equal texts.\n'
            'Correct the wrong one, or leave "hy_doc" out.'
        )
    if not (has_id and has_texts and has_outcomes):
        raise DataError(
            f'{location}: expected an "id", a string "hy_doc" or a list of strings "hy_docs", and '
            f'optionally a list "finish" of {", ".join(get_args(Outcome))}.\n{_HINT}'
        )
    samples = tuple(
        Sample(replace_lone_surrogates(text), "", outcome)
        for text, outcome in zip(texts, chain(outcomes, repeat("ok")), strict=False)
    )
    return ExpandedQuery(str(query_id), query if isinstance(query, str) else "", samples)


def _write(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    with atomic_file(path) as draft:
        write_jsonl(draft, ({**row, "checksum": _checksum(row)} for row in rows))


def _list_some(ids: Sequence[str]) -> str:
    first_ids = ", ".join(repr(query_id) for query_id in ids[:3])
    return f"{first_ids}, ..." if len(ids) > 3 else first_ids
