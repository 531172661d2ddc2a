"""A Nano folder: Parquet configurations as on the hub, the R2MED layout beside them, a record.

Equal content gives equal bytes: nothing written carries a time, a path or a host. A folder is
replaced in one step, so readers find the old one or the new one, whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r2med.atomic import atomic_folder, seal, unseal
from r2med.errors import DamagedError, UsageError
from r2med.nano.pool import Pool, PoolReport, Recipe
from r2med.runs import Run
from r2med.tasks.fetch.provenance import NANO_CONFIGS, sha256_of
from r2med.tasks.load import load_tasks
from r2med.tasks.reading.jsonl import write_jsonl
from r2med.tasks.registry import TaskEntry, find_suite, resolve
from r2med.tasks.task import Task

RECORD = "nano.json"
SCHEMA = 1
#: The subfolder of the R2MED layout: `<folder>/r2med/<split>/corpus.jsonl`, ...
R2MED_PART = "r2med"
_ROWS_PER_GROUP = 10_000


@dataclass(frozen=True)
class BuiltTask:
    """How one task of a Nano folder came about."""

    source: str
    """The name of the task it was built from."""
    suite: str | None
    hash: str
    recipe: Recipe
    report: PoolReport
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Record:
    """What a Nano folder holds: tasks by split, candidates by split, sha256 by file."""

    tasks: Mapping[str, BuiltTask]
    candidates: Mapping[str, Any]
    files: Mapping[str, str]


@dataclass(frozen=True)
class TaskGroup:
    """Tasks to load, and the title of the group they form."""

    names: tuple[str | Path, ...]
    title: str

    own: Mapping[str, Path] = field(default_factory=dict)
    """Folders that have their names already, as in stored results."""

    def load(self, root: Path | None = None) -> Iterator[Task]:
        """The tasks, each read when its turn comes."""
        return load_tasks(self.names, root=root, own=self.own)


def task_group(text: str, own: Mapping[str, Path] | None = None) -> TaskGroup:
    """The tasks in a comma-separated list; a folder of `nano build` stands for all its splits."""
    names: list[str | Path] = []
    items = resolve(text, own)
    for item in items:
        if isinstance(item, TaskEntry):
            names.append(item.name)
        elif (item / RECORD).is_file():
            names += [f"{item.resolve()}#{split}" for split in sorted(read_record(item).tasks)]
        else:
            names.append(item)
    return TaskGroup(tuple(names), _title(text, items), own or {})


def check_free(target: Path, *, force: bool) -> None:
    """Refuse a folder that cannot be replaced, or that holds something and is not to be."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"--out {target} is a file, expected a folder to write.")
    if target.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise UsageError(
            f"--out {target} is the folder you are in, or one above it, and a Nano folder is "
            "replaced whole. Name a folder of its own."
        )
    if target.is_dir() and any(target.iterdir()) and not force:
        raise UsageError(
            f"--out {target} is not empty, and nothing in it was touched.\n"
            "Choose another folder, or --force to replace the Nano task in it (other files stay)."
        )


@contextmanager
def replaced(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it takes the place of `target` in one step.

    Files of `target` that its record does not name stay.
    """
    recorded = {RECORD}
    with atomic_folder(target, keep=lambda path: path not in recorded) as draft:
        recorded |= read_record(target).files.keys()
        yield draft


def shard(config: str, split: str) -> str:
    """Where the rows of one split of one configuration lie."""
    return f"{config}/{split}-00000-of-00001.parquet"


def configs_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Configuration to splits, from the paths of a folder's files; the published order first."""
    splits: dict[str, list[str]] = {}
    for path in sorted(files):
        config, _, name = path.partition("/")
        if name.endswith(".parquet") and "/" not in name:
            splits.setdefault(config, []).append(name.removesuffix("-00000-of-00001.parquet"))
    first, last = (*NANO_CONFIGS, "bm25"), "reranking_hybrid"

    def place(config: str) -> tuple[int, bool, str]:
        at = first.index(config) if config in first else len(first)
        return at, config == last, config

    return {config: splits[config] for config in sorted(splits, key=place)}


def write_hub_layout(pool: Pool, folder: Path, split: str) -> None:
    """Corpus {_id, text}, queries {_id, text}, qrels {query-id, corpus-id}: all are positives."""
    _write(folder / shard("corpus", split), {"_id": pool.corpus.ids, "text": pool.corpus.texts})
    _write(folder / shard("queries", split), {"_id": pool.queries.ids, "text": pool.queries.texts})
    judged = pool.judgements
    columns = {"query-id": judged.query_ids, "corpus-id": judged.document_ids}
    _write(folder / shard("qrels", split), columns)


def write_candidates(run: Run, folder: Path, config: str, split: str) -> None:
    """{query-id, corpus-ids}: the lists alone, best first, as published."""
    names = run.document_ids.take(pa.array(run.documents)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(run.offsets, pa.int32()), names)
    _write(folder / shard(config, split), {"query-id": run.query_ids, "corpus-ids": lists})


def write_r2med_layout(pool: Pool, folder: Path, split: str) -> None:
    """corpus.jsonl, query.jsonl with the source's annotations, qrels.jsonl."""
    place = folder / R2MED_PART / split
    queries, positives = pool.queries, pool.judgements.by_query()
    notes = pa.table(
        {
            "answer": queries.answers,
            "body_system": queries.body_systems,
            "reasoning": queries.reasonings,
        }
    ).to_pylist()
    documents = pa.table({"id": pool.corpus.ids, "text": pool.corpus.texts})
    write_jsonl(place / "corpus.jsonl", documents.to_pylist())
    asked = []
    for (query, text), row in zip(queries.items(), notes, strict=True):
        own = {name: note for name, note in row.items() if note is not None}
        asked.append({"id": query, "text": text, "doc_id": list(positives[query]), **own})
    write_jsonl(place / "query.jsonl", asked)
    judged = {"q_id": pool.judgements.query_ids, "p_id": pool.judgements.document_ids}
    pairs = pa.table(judged).to_pylist()
    write_jsonl(place / "qrels.jsonl", ({**pair, "score": 1} for pair in pairs))


def write_record(
    folder: Path, *, tasks: Mapping[str, BuiltTask], candidates: Mapping[str, Any]
) -> None:
    """The record, with the sha256 of every other file; written last."""
    files = {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != RECORD
    }
    record = {"schema": SCHEMA, **asdict(Record(tasks, candidates, files))}
    (folder / RECORD).write_text(seal(record), encoding="utf-8")


def read_record(folder: Path) -> Record:
    """The record of a folder that `nano build` made; an empty one where there is none."""
    path = folder / RECORD
    if not path.is_file():
        return Record({}, {}, {})
    try:
        content = unseal(path.read_bytes(), path)
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, expected {SCHEMA}")
        tasks = {
            split: BuiltTask(
                **{
                    **row,
                    "recipe": Recipe(**row["recipe"]),
                    "report": PoolReport(**{n: int(c) for n, c in row["report"].items()}),
                    "notices": tuple(map(str, row["notices"])),
                }
            )
            for split, row in content["tasks"].items()
        }
        files = dict(content["files"])
        for name in map(PurePosixPath, files):
            if name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{str(name)!r} is no file of the folder")
        return Record(tasks, dict(content["candidates"]), files)
    except (DamagedError, UsageError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DamagedError(
            f"{path}: not a readable record of a Nano folder ({problem}).\n"
            "Remove the folder and build it again with `r2med nano build`."
        ) from problem


def _title(text: str, items: Sequence[TaskEntry | Path]) -> str:
    entries = [item for item in items if isinstance(item, TaskEntry)]
    if len(entries) == len(items) > 1:
        suites = {entry.suite for entry in entries}
        suite = find_suite(suites.pop()) if len(suites) == 1 else None
        if suite and len(suite.entries) == len(entries):
            return suite.title
    if len(items) == 1 and isinstance(items[0], Path):
        return items[0].resolve().name
    return text


def _write(path: Path, columns: Mapping[str, pa.Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: column.cast(pa.string()) if pa.types.is_large_string(column.type) else column
        for name, column in columns.items()
    }
    pq.write_table(
        pa.table(plain),
        path,
        compression="zstd",
        compression_level=3,
        version="2.6",
        data_page_version="1.0",
        row_group_size=_ROWS_PER_GROUP,
        store_schema=False,
    )
