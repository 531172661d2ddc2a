"""Items and passages as a task without judgements, which pool, judge and review work on."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from r2med.build.folder import BuildFolder, Stage, hash_file
from r2med.build.items import BuildItem, load_items
from r2med.errors import DataError, UsageError
from r2med.tasks.reading.collection import read_part
from r2med.tasks.reading.source import TaskFiles
from r2med.tasks.task import Corpus, Judgements, Queries, Task


def load_working_task(folder: BuildFolder) -> tuple[Task, list[BuildItem]]:
    """Return the task of a build, and its items in the order of the queries.

    Raises:
        MissingError: Items or corpus were not made yet.
        DataError: A file cannot be read, or a passage id repeats.
    """
    items = load_items(folder)
    path = folder.need(folder.corpus_path, "corpus")
    rows = read_part(TaskFiles(folder.corpus_folder, "r2med", {"corpus": (path,)}), "corpus")
    corpus = Corpus(rows.columns["id"], rows.columns["text"])
    if not len(corpus):
        raise DataError(f"{path} has no passages. Run: r2med build corpus {folder.path}")
    if len(corpus.document_ids) < len(corpus):
        raise DataError(f"{path}: {len(corpus) - len(corpus.document_ids):,} passage ids repeat.")
    task = Task(
        name=folder.benchmark.name,
        suite=None,
        corpus=corpus,
        queries=make_queries(items),
        judgements=Judgements.none(),
        source=folder.path,
    )
    return task, items


def make_queries(items: Sequence[BuildItem]) -> Queries:
    """Return items as queries with answer and reasoning."""

    def column(values: Sequence[str | None]) -> pa.LargeStringArray:
        return pa.array(values, pa.large_string())

    return Queries(
        ids=column([item.id for item in items]),
        texts=column([item.query for item in items]),
        answers=column([item.answer for item in items]),
        body_systems=pa.nulls(len(items), pa.large_string()),
        reasonings=column([item.reasoning or None for item in items]),
        excluded_ids=pa.nulls(len(items), pa.large_string()),
    )


def hash_inputs(folder: BuildFolder) -> dict[str, str]:
    """Return the hashes of items and corpus, by the name of their file."""
    paths = (folder.items_path, folder.corpus_path)
    return {str(path.relative_to(folder.path)): hash_file(path) for path in paths}


def check_current(folder: BuildFolder, stage: Stage) -> None:
    """Raise UsageError if items, corpus or pool changed since a stage read them."""
    record = folder.record(stage)
    if record is None:
        raise UsageError(
            f"{folder.path}: `build {stage}` has not finished. Run: r2med build {stage} "
            f"{folder.path}"
        )
    current_hashes = hash_inputs(folder)
    if folder.pool_path.name in record.inputs:
        current_hashes[folder.pool_path.name] = hash_file(folder.need(folder.pool_path, "pool"))
    for name, current_hash in current_hashes.items():
        if record.inputs.get(name) != current_hash:
            raise UsageError(
                f"{folder.path / name} changed after `build {stage}` read it. Run it again: "
                f"r2med build {stage} {folder.path} (unchanged work is taken from caches)."
            )
