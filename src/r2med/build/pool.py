"""Candidates for judging: several systems search with the query, the answer and the reasoning.

A pool of one system or one view favours the documents that this system or view finds, so several
systems of different families search with all three views. Documents that a source links to are
candidates too.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from r2med.audit.matching import words as split_words
from r2med.build.folder import BuildFolder, BuildRecord, hash_file, read_rows, write_rows
from r2med.build.items import BuildItem
from r2med.build.working_task import hash_inputs, load_working_task
from r2med.errors import DataError, UsageError, plural
from r2med.execution.resources import Resources
from r2med.judge.pool import texts_of
from r2med.paths import slug
from r2med.runs.run import sort_lists
from r2med.settings import setting, settings_identity
from r2med.systems.build import System
from r2med.systems.output import StageContext, run_member
from r2med.systems.registry import parts_of
from r2med.systems.stages import bind
from r2med.tasks.task import Queries, Task

View = Literal["query", "answer", "reasoning"]
VIEWS: tuple[View, ...] = get_args(View)
#: View and system under which documents that a source links to are listed.
LINKED = "reference"
#: Backend and family of systems that match words.
LEXICAL = "bm25"
#: Systems of different families below which a pool favours what few systems find.
FEWEST_FAMILIES = 3
#: Shorter passages may be part of a question by chance.
_FEWEST_WORDS = 8


@dataclass(frozen=True)
class PoolSettings:
    """The table `[pool]` of build.toml."""

    systems: tuple[str, ...] = ("bm25", "medcpt", "bge")
    """Systems that search; the default is the three that R2MED's authors name."""
    views: tuple[str, ...] = VIEWS
    depth: int = setting(default=20, least=1)
    """Documents per query, view and system; R2MED's depth is not published."""


@dataclass(frozen=True)
class Find:
    """How a candidate was found."""

    view: str
    system: str
    rank: int


@dataclass(frozen=True)
class Candidate:
    """A document that may support a query, with all the ways in which it was found."""

    query_id: str
    document_id: str
    found_by: tuple[Find, ...]


@dataclass(frozen=True)
class Coverage:
    """How many candidates a view or a system adds to the pool."""

    name: str
    found: int
    """Candidates that this view or system found."""
    unique: int
    """Candidates that only this view (or only this system) found."""


@dataclass(frozen=True)
class PoolOutcome:
    """The pool, and how many candidates each view and each system adds."""

    candidates: tuple[Candidate, ...]
    views: tuple[Coverage, ...]
    systems: tuple[Coverage, ...]
    record: BuildRecord


def build_pool(folder: BuildFolder, resources: Resources, *, force: bool = False) -> PoolOutcome:
    """Search with every system from every view, and write pool.jsonl.

    Finished lists are stored in the folder `runs`, so an interrupted command continues.

    Args:
        folder: The benchmark's folder.
        resources: Models, workers, and callbacks.
        force: Overwrite a pool.jsonl that was edited.

    Raises:
        UsageError: A view is not known, a system is named twice, or pool.jsonl was edited.
        DataError: No system found a document.
    """
    settings = folder.stage_settings("pool", PoolSettings)
    _check_settings(settings)
    with folder.hold("pool"):
        folder.check_unedited("pool", force=force)
        task, items = load_working_task(folder)
        families = {family_of(system) for system in settings.systems}
        if len(families) < FEWEST_FAMILIES:
            resources.warn(
                f"the pool has systems of {plural(len(families), 'family', 'families')} "
                f"({', '.join(sorted(families))}), expected at least {FEWEST_FAMILIES}: relevant "
                "documents that only others find stay unjudged. Add systems to [pool] systems."
            )
        finds: dict[tuple[str, str], list[Find]] = {}
        for view in settings.views:
            for system in settings.systems:
                lists = _search(folder, task, items, view, system, settings.depth, resources)
                _add_lists(finds, lists, view, system)
        _add_lists(finds, _linked_documents(folder, items), LINKED, LINKED)
        copies = _copies_of_questions(task, items, finds)
        for pair in copies:
            del finds[pair]
        if copies:
            resources.warn(
                f"{plural(len(copies), 'candidate')} repeat the question itself and are left out "
                f"of the pool; the first is passage {copies[0][1]} for {copies[0][0]}. Remove the "
                "source of the questions from the corpus."
            )
        order = {item.id: index for index, item in enumerate(items)}
        candidates = tuple(
            Candidate(query_id, document_id, tuple(finds[query_id, document_id]))
            for query_id, document_id in sorted(finds, key=lambda pair: (order[pair[0]], pair[1]))
        )
        if not candidates:
            raise DataError(
                f"{folder.path}: the pool is empty: no system found a passage for any of "
                f"{plural(len(items), 'query')}. Check the corpus and [pool] systems."
            )
        empty = [item.id for item in items if item.id not in {c.query_id for c in candidates}]
        if empty:
            resources.warn(f"{plural(len(empty), 'query')} without candidates: {empty[0]}, ...")
        write_rows(folder.pool_path, (_to_row(candidate) for candidate in candidates))
        views = _coverage(candidates, "view", (*settings.views, LINKED))
        systems = _coverage(candidates, "system", (*settings.systems, LINKED))
        record = BuildRecord(
            stage="pool",
            parameters=settings_identity(settings),
            models=tuple(settings.systems),
            inputs=hash_inputs(folder),
            counts_in={"queries": len(items), "passages": len(task.corpus)},
            counts_out={"candidates": len(candidates), "queries": len(items) - len(empty)},
            drops={
                reason: count
                for reason, count in (
                    ("query without candidates", len(empty)),
                    ("candidate repeats the question", len(copies)),
                )
                if count
            },
            outputs={folder.pool_path.name: hash_file(folder.pool_path)},
            figures={
                "views": [asdict(row) for row in views],
                "systems": [asdict(row) for row in systems],
            },
        )
        folder.write_record(record)
    return PoolOutcome(candidates, views, systems, record)


def load_pool(folder: BuildFolder) -> list[Candidate]:
    """Return the candidates of pool.jsonl.

    Raises:
        DataError: A row lacks a field; the message names the line.
    """
    path = folder.need(folder.pool_path, "pool")
    candidates = []
    for line, row in read_rows(path):
        try:
            found_by = tuple(Find(**find) for find in row["found_by"])
            candidates.append(Candidate(row["query_id"], row["document_id"], found_by))
        except (KeyError, TypeError) as problem:
            raise DataError(
                f"{path}, line {line}: expected query_id, document_id and found_by ({problem!r})."
            ) from None
    return candidates


def family_of(system: str) -> str:
    """Return a system's retrieval family: the checkpoints that retrieve, or the name of BM25."""
    names = set()
    for unit, entry in parts_of(system):
        if entry is None or entry.stage in ("fusion", "reranker"):
            continue
        checkpoint = str(dict(unit.options).get("checkpoint", entry.fields.get("checkpoint", "")))
        names.add(LEXICAL if entry.backend == LEXICAL else checkpoint or unit.name)
    return " + ".join(sorted(names)) or system


def view_texts(items: Sequence[BuildItem], view: str) -> dict[str, str]:
    """Return the text of a view (such as the answer) by item id; empty texts are left out."""
    texts = {item.id: str(getattr(item, view)) for item in items}
    return {item_id: text for item_id, text in texts.items() if text.strip()}


def _search(
    folder: BuildFolder,
    task: Task,
    items: Sequence[BuildItem],
    view: str,
    system: str,
    depth: int,
    resources: Resources,
) -> dict[str, list[str]]:
    """Return the documents that a system finds from a view, by query; stored lists are reused."""
    texts = view_texts(items, view)
    if not texts:
        return {}
    view_task = replace(task, queries=Queries.of(list(texts), list(texts.values())))
    stage = bind(System.from_spec(system, resources).stage, view_task, keep=False)
    identity = f"{view_task.hash}/{sorted(stage.identity(view_task).items())!r}/{depth}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    path = folder.path / "runs" / f"{view}-{slug(system)}-{key}.jsonl"
    if not path.is_file():
        output = stage.run(StageContext(view_task, run_member, warn=resources.warn))
        run = sort_lists(output.run, stage.ties(view_task)).truncate(depth)
        if family_of(system) == LEXICAL:  # documents that share no word have score 0
            run = run.take(np.flatnonzero(run.scores > 0))
        write_rows(path, ({"query_id": q, "documents": run.ranked_documents(q)} for q in texts))
    return {row["query_id"]: row["documents"] for _, row in read_rows(path)}


def _copies_of_questions(
    task: Task, items: Sequence[BuildItem], pairs: Iterable[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return candidates whose text is part of the question that they were found for."""
    found_pairs = sorted(pairs)
    texts = texts_of(task, {document_id for _, document_id in found_pairs})
    passages = {document_id: _comparable(text) for document_id, text in texts.items()}
    questions = {item.id: _comparable(item.question) for item in items}
    return [
        (query_id, document_id)
        for query_id, document_id in found_pairs
        if passages[document_id].count(" ") > _FEWEST_WORDS
        and passages[document_id] in questions[query_id]
    ]


def _comparable(text: str) -> str:
    return f" {' '.join(split_words(text))} "


def _linked_documents(folder: BuildFolder, items: Sequence[BuildItem]) -> dict[str, list[str]]:
    """Return, by item id, the passages of the documents that an item links to."""
    if not any(item.references for item in items) or not folder.passages_path.is_file():
        return {}
    by_source: dict[str, list[str]] = {}
    for _, row in read_rows(folder.passages_path):
        for name in _source_names(str(row.get("source", ""))):
            by_source.setdefault(name, []).append(str(row["id"]))
    return {
        item.id: list(
            dict.fromkeys(
                document_id
                for reference in item.references
                for document_id in by_source.get(_link_name(reference), ())
            )
        )
        for item in items
    }


def _source_names(source: str) -> set[str]:
    """Return the names by which an item may refer to a source: its path, file name and stem."""
    path = Path(source)
    return {_link_name(source), path.name.lower(), path.stem.lower()} - {""}


def _link_name(text: str) -> str:
    bare = text.strip().lower().partition("#")[0].rstrip("/")
    return bare.removeprefix("https://").removeprefix("http://").removeprefix("www.")


def _add_lists(
    finds: dict[tuple[str, str], list[Find]],
    lists: Mapping[str, Sequence[str]],
    view: str,
    system: str,
) -> None:
    for query_id, documents in lists.items():
        for rank, document_id in enumerate(documents, start=1):
            finds.setdefault((query_id, document_id), []).append(Find(view, system, rank))


def _coverage(
    candidates: Iterable[Candidate], attribute: Literal["view", "system"], names: Sequence[str]
) -> tuple[Coverage, ...]:
    finds: Counter[str] = Counter()
    unique: Counter[str] = Counter()
    for candidate in candidates:
        finders = {getattr(find, attribute) for find in candidate.found_by}
        finds.update(finders)
        if len(finders) == 1:
            unique.update(finders)
    return tuple(Coverage(name, finds[name], unique[name]) for name in names if name in finds)


def _to_row(candidate: Candidate) -> dict[str, Any]:
    return asdict(candidate)


def _check_settings(settings: PoolSettings) -> None:
    for view in settings.views:
        if view not in VIEWS:
            raise UsageError(f"[pool] views: {view!r} is not one of {', '.join(VIEWS)}.")
    if not settings.systems or not settings.views:
        raise UsageError("[pool] needs at least one system and one view.")
    if len(set(settings.systems)) < len(settings.systems):
        raise UsageError("[pool] systems: one system is named twice.")
