"""Build a Nano folder from tasks, one split per task, and add candidates to it.

The folder holds Parquet configurations as on the hub, the tasks in the R2MED layout, and a record.
Equal content gives equal bytes: no file contains a time, a path or a host. A folder is replaced in
one step, so readers see either the old folder or the new one, complete.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from r2med.errors import DamagedError, DataError, MissingError, UsageError
from r2med.execution.resources import Resources, Warn
from r2med.nano.candidates import (
    BM25,
    DEFAULT_DENSE,
    CandidateList,
    make_candidates,
    run_retriever,
)
from r2med.nano.pool import NanoPool, Recipe, make_pool
from r2med.paths import require_empty
from r2med.runs import Run
from r2med.storage import atomic_folder, seal, unseal
from r2med.tasks.fetch.provenance import NANO_CONFIGS, sha256_of
from r2med.tasks.load import load_task, load_tasks
from r2med.tasks.reading.jsonl import write_jsonl
from r2med.tasks.registry import TaskEntry, resolve, suites
from r2med.tasks.task import Task

RECORD = "nano.json"
SCHEMA = 1
#: The subfolder of the R2MED layout: `<folder>/r2med/<split>/corpus.jsonl`, ...
R2MED_PART = "r2med"
_ROWS_PER_GROUP = 10_000
_LEAST_HARD_DEPTH = 100


@dataclass(frozen=True)
class BuiltTask:
    """How one task of a Nano folder was built."""

    source: str
    """The name of the task from which it was built."""
    suite: str | None
    hash: str
    recipe: Mapping[str, Any]
    report: Mapping[str, int]
    """Counts, as in `NanoPool`."""
    notices: tuple[str, ...]

    @property
    def contents(self) -> str:
        """A sentence that describes the pool."""
        return (
            "{queries:,} of {source_queries:,} queries and {documents:,} of {source_documents:,} "
            "documents ({positive_documents:,} positive, {judged_negative_documents:,} judged "
            "non-positive, {fill_documents:,} by {fill} fill)."
        ).format(**self.report, fill=self.recipe["fill"])


@dataclass(frozen=True)
class NanoRecord:
    """The record of a Nano folder: tasks by split, candidates by split, sha256 by file."""

    tasks: Mapping[str, BuiltTask]
    candidates: Mapping[str, Any]
    files: Mapping[str, str]


def build(
    tasks: Task | Iterable[Task],
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    force: bool = False,
    strict: bool = False,
    warn: Warn = lambda message: None,
) -> dict[str, BuiltTask]:
    """Build a Nano task from each task, all in one folder; return how each was built, by split.

    If `strict`, lost positives raise an error. Otherwise `warn` is called with a message about
    them, and the messages are recorded.
    """
    recipe, target = recipe or Recipe(), Path(out)
    _check_free(target, force=force)
    records = {}
    with replace_folder(target) as draft:
        for split, task in _splits([tasks] if isinstance(tasks, Task) else tasks).items():
            hard = None
            if recipe.fill == "hard":  # deep enough that the lists, which overlap, fill the pool
                share = 4 * recipe.documents // max(min(recipe.queries, len(task.queries)), 1)
                depth = min(len(task.corpus), max(_LEAST_HARD_DEPTH, share))
                hard = run_retriever(BM25, task, depth=depth)
            pool = make_pool(task, recipe, hard=hard)
            notices = tuple(pool.notices(recipe.documents))
            if strict and (lost := pool.positives_lost):
                raise DataError(
                    f"{task.name}: {lost:,} of {lost + len(pool.judgements):,} positives would be "
                    f"lost, and --strict forbids it. {' '.join(notices)}\nNothing was written."
                )
            for notice in notices:
                warn(f"{split}: {notice}")
            _write_task(pool, draft, split)
            source = (task.name, task.suite, task.hash)
            records[split] = BuiltTask(*source, asdict(recipe), pool.report, notices)
        _finish(draft, records, {})
    return records


def add_candidates(
    folder: str | Path,
    dense: str = DEFAULT_DENSE,
    *,
    force: bool = False,
    resources: Resources | None = None,
) -> dict[str, list[CandidateList]]:
    """Add the three candidate subsets to every task of a Nano folder; on failure, to none."""
    target = Path(folder)
    record = read_record(target)
    if not record.tasks:
        raise MissingError(
            f"{target} is not a folder that `r2med nano build` made: it has no nano.json.\n"
            "Build one first: r2med nano build TASK --out DIR."
        )
    if record.candidates and not force:
        raise UsageError(
            f"{target} has candidates already, and nothing was changed.\n--force replaces them."
        )
    lists_by_split = {
        split: make_candidates(load_task(f"{target.resolve()}#{split}"), dense, resources=resources)
        for split in sorted(record.tasks)
    }
    with replace_folder(target) as draft:
        for path in record.files:
            if path.startswith(("corpus/", "queries/", "qrels/", "r2med/")):
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target / path, draft / path)
        for split, lists in lists_by_split.items():
            for subset in lists:
                write_candidates(subset.run, draft, subset.config, split)
        _finish(draft, record.tasks, lists_by_split)
    return lists_by_split


def split_name(task: Task) -> str:
    """Return the split of a task: NanoR2MEDBiology for `Biology`, Nano + name for other data."""
    words = re.findall(r"[A-Za-z0-9]+", task.name)
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Task"
    return f"NanoR2MED{joined}" if task.suite == "full" else f"Nano{joined}"


def _splits(tasks: Iterable[Task]) -> dict[str, Task]:
    splits: dict[str, Task] = {}
    for task in tasks:
        first_task = splits.setdefault(split_name(task), task)
        if first_task is not task:
            raise UsageError(
                f"{first_task.name} and {task.name} would both become {split_name(task)}; "
                "build them into separate folders."
            )
    if not splits:
        raise UsageError("No task was named to build a Nano task from.")
    return splits


def task_group(
    names: Sequence[str], root: Path | None = None, local_tasks: Mapping[str, Path] | None = None
) -> tuple[str, Iterator[Task]]:
    """Return a title, and an iterator that loads the named tasks one at a time.

    A folder of `nano build` means all of its splits. `local_tasks` maps names of local tasks,
    as used in stored results, to their folders.
    """
    selections: list[str | Path] = []
    for item in resolve(",".join(names), local_tasks):
        if isinstance(item, TaskEntry):
            selections.append(item.name)
        elif (item / RECORD).is_file():
            selections += [f"{item.resolve()}#{split}" for split in sorted(read_record(item).tasks)]
        else:
            selections.append(item)
    titles = {suite.name: suite.title for suite in suites()}
    title = ", ".join(
        Path(name).resolve().name if Path(name).is_dir() else titles.get(name, name)
        for name in names
    )
    return title, load_tasks(selections, root=root, local_tasks=local_tasks)


def _check_free(target: Path, *, force: bool) -> None:
    """Raise UsageError if a folder cannot be replaced, or is not empty and `force` is not set."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"--out {target} is a file, expected a folder to write.")
    if target.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise UsageError(
            f"--out {target} is the folder you are in, or one above it, and a Nano folder is "
            "replaced as a whole. Name another folder."
        )
    require_empty(target, force=force)


@contextmanager
def replace_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it takes the place of `target` in one step.

    Files in `target` that its record does not list are kept.
    """
    recorded = {RECORD}
    with atomic_folder(target, keep=lambda path: path not in recorded) as draft:
        recorded |= read_record(target).files.keys()
        yield draft


def _shard(config: str, split: str) -> str:
    """Return the path of the Parquet file of one split of one configuration."""
    return f"{config}/{split}-00000-of-00001.parquet"


def write_candidates(run: Run, folder: Path, config: str, split: str) -> None:
    """Write the candidate lists as published: query ids and document ids, best first, no scores."""
    names = run.document_ids.take(pa.array(run.documents)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(run.offsets, pa.int32()), names)
    _write(folder / _shard(config, split), {"query-id": run.query_ids, "corpus-ids": lists})


def _write_task(pool: NanoPool, folder: Path, split: str) -> None:
    """Write one split in the hub layout, which has only positives, and in the R2MED layout.

    The R2MED layout has corpus.jsonl, query.jsonl with the source's annotations, and qrels.jsonl.
    """
    corpus, queries, judged = pool.corpus, pool.queries, pool.judgements
    _write(folder / _shard("corpus", split), {"_id": corpus.ids, "text": corpus.texts})
    _write(folder / _shard("queries", split), {"_id": queries.ids, "text": queries.texts})
    pairs = {"query-id": judged.query_ids, "corpus-id": judged.document_ids}
    _write(folder / _shard("qrels", split), pairs)

    target = folder / R2MED_PART / split
    documents = pa.table({"id": corpus.ids, "text": corpus.texts})
    write_jsonl(target / "corpus.jsonl", documents.to_pylist())
    notes = pa.table(
        {
            "answer": queries.answers,
            "body_system": queries.body_systems,
            "reasoning": queries.reasonings,
            "excluded_ids": queries.excluded_ids,
        }
    ).to_pylist()
    query_rows, positives = [], judged.by_query()
    for (query, text), row in zip(queries.items(), notes, strict=True):
        present = {name: note for name, note in row.items() if note is not None}
        if "excluded_ids" in present:
            present["excluded_ids"] = json.loads(present["excluded_ids"])
        query_rows.append({"id": query, "text": text, "doc_id": list(positives[query]), **present})
    write_jsonl(target / "query.jsonl", query_rows)
    rows = pa.table({"q_id": judged.query_ids, "p_id": judged.document_ids}).to_pylist()
    write_jsonl(target / "qrels.jsonl", ({**row, "score": 1} for row in rows))


def read_record(folder: Path) -> NanoRecord:
    """Return the record of a folder of `nano build`; empty if there is none."""
    path = folder / RECORD
    if not path.is_file():
        return NanoRecord({}, {}, {})
    try:
        content = unseal(path.read_bytes(), path)
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}, expected {SCHEMA}")
        tasks = {
            split: BuiltTask(
                **{
                    **row,
                    "report": {name: int(count) for name, count in row["report"].items()},
                    "notices": tuple(map(str, row["notices"])),
                }
            )
            for split, row in content["tasks"].items()
        }
        files = dict(content["files"])
        for name in map(PurePosixPath, files):
            if name.is_absolute() or ".." in name.parts:
                raise ValueError(f"{str(name)!r} is not a file of the folder")
        return NanoRecord(tasks, dict(content["candidates"]), files)
    except (DamagedError, UsageError, KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DamagedError(
            f"{path}: not a readable record of a Nano folder ({problem}).\n"
            "Remove the folder and build it again with `r2med nano build`."
        ) from problem


def _finish(
    draft: Path,
    tasks: Mapping[str, BuiltTask],
    lists_by_split: Mapping[str, Sequence[CandidateList]],
) -> None:
    """Write the README and, last, the record of the content, with sha256 of each file."""
    subsets = [subset.config for subset in next(iter(lists_by_split.values()), ())]
    readme = "\n".join(_readme([*NANO_CONFIGS, *subsets], tasks))
    (draft / "README.md").write_text(readme, encoding="utf-8")
    candidates = {
        split: {subset.config: subset.system for subset in lists}
        for split, lists in lists_by_split.items()
    }
    files = {
        path.relative_to(draft).as_posix(): sha256_of(path)
        for path in sorted(draft.rglob("*"))
        if path.is_file()
    }
    record = {"schema": SCHEMA, **asdict(NanoRecord(tasks, candidates, files))}
    (draft / RECORD).write_text(seal(record), encoding="utf-8")


def _readme(configs: Sequence[str], tasks: Mapping[str, BuiltTask]) -> Iterator[str]:
    """Return the dataset card: the front matter for the hub, and a description."""
    yield from ("---", "task_categories:", "- text-retrieval", "tags:", "- medical", "configs:")
    for config in configs:
        yield from (f"- config_name: {config}", "  data_files:")
        for split in sorted(tasks):
            yield from (f"  - split: {split}", f"    path: {_shard(config, split)}")
    yield from ("---", "", "# " + ", ".join(sorted(tasks)), "")
    yield (
        "Compact retrieval tasks by the recipe of NanoR2MED, made with `r2med nano build`. "
        "Judgements are binary. A research instrument, never a clinical decision system. "
        "`nano.json` holds every count, the recipe and the sha256 of each file.\n"
    )
    yield (
        "`corpus` and `queries` hold `{_id, text}`, `qrels` `{query-id, corpus-id}`: each row is a "
        "positive. Candidates, if present, are `{query-id, corpus-ids}`, best first: the "
        "first 500 of BM25 and of an encoder, and in `reranking_hybrid` the first 100 of their "
        "fusion, with a positive at rank 101 where those hold none.\n"
    )
    yield from ("| split | source | queries | documents | positives |", "|---|---|---:|---:|---:|")
    for split, task in sorted(tasks.items()):
        counts = (f"{task.report.get(name, 0):,}" for name in ("queries", "documents", "positives"))
        yield f"| {split} | {task.source} | {' | '.join(counts)} |"
    for split, task in sorted(tasks.items()):
        yield " ".join([f"\n**{split}**:", task.contents, *task.notices])
    yield ""


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
