"""Make a Nano folder from tasks, one split per task, and add candidates to one.

A folder is written whole or not at all.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from r2med.errors import DataError, MissingError, UsageError
from r2med.nano.candidates import (
    BM25,
    DEFAULT_DENSE,
    FIRST_DEPTH,
    HYBRID_DEPTH,
    Candidates,
    make_candidates,
    retrieved,
)
from r2med.nano.folder import (
    BuiltTask,
    check_free,
    configs_of,
    read_record,
    replaced,
    shard,
    write_candidates,
    write_hub_layout,
    write_r2med_layout,
    write_record,
)
from r2med.nano.pool import Pool, Recipe, make_pool
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.fusion import NANO_K
from r2med.runs import Run
from r2med.tasks.load import load_task
from r2med.tasks.task import Task

Layout = Literal["both", "hub", "r2med"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
_LEAST_HARD_DEPTH = 100


@dataclass(frozen=True, eq=False)
class Built:
    """One task of a new Nano folder."""

    split: str
    folder: Path
    source: Task
    pool: Pool
    notices: tuple[str, ...]


def build(
    tasks: Task | Sequence[Task],
    out: str | Path,
    recipe: Recipe | None = None,
    *,
    layout: Layout = "both",
    force: bool = False,
    strict: bool = False,
    tell: Callable[[str], None] = lambda message: None,
) -> list[Built]:
    """Make a Nano task of every task and write them into one folder.

    `strict` fails where positives are lost; otherwise `tell` names them, and
    they are recorded.
    """
    sources = [tasks] if isinstance(tasks, Task) else list(tasks)
    recipe, target = recipe or Recipe(), Path(out)
    if layout not in LAYOUTS:
        raise UsageError(f"--layout {layout!r} is not known; expected {', '.join(LAYOUTS)}.")
    check_free(target, force=force)
    built = []
    for split, task in _splits(sources).items():
        pool = make_pool(task, recipe, hard=_hard_run(task, recipe))
        report, notices = pool.report, pool.report.notices(recipe.documents)
        if strict and report.positives_lost:
            lost, offered = report.positives_lost, report.positives_lost + report.positives
            raise DataError(
                f"{task.name}: {lost:,} of {offered:,} positives would be lost, and --strict "
                f"forbids it. {' '.join(notices)}\nNothing was written."
            )
        built.append(Built(split, target, task, pool, tuple(notices)))
    records = {}
    with replaced(target) as draft:
        for one in built:
            for notice in one.notices:
                tell(f"{one.split}: {notice}")
            if layout in ("both", "hub"):
                write_hub_layout(one.pool, draft, one.split)
            if layout in ("both", "r2med"):
                write_r2med_layout(one.pool, draft, one.split)
            source = (one.source.name, one.source.suite, one.source.hash)
            records[one.split] = BuiltTask(*source, recipe, one.pool.report, one.notices)
        _finish(draft, records, {})
    return built


def add_candidates(
    folder: str | Path,
    dense: str = DEFAULT_DENSE,
    *,
    force: bool = False,
    conditions: Conditions | None = None,
) -> dict[str, Candidates]:
    """Give every task of a Nano folder its three subsets; all of them appear, or none."""
    target = Path(folder)
    record = read_record(target)
    if not record.tasks:
        raise MissingError(
            f"{target} is not a folder that `r2med nano build` made: it has no nano.json.\n"
            "Build one first: r2med nano build TASK --out DIR."
        )
    splits = configs_of(record.files).get("corpus", [])
    if not splits:
        raise MissingError(
            f"{target} holds the R2MED layout only, which has no place for candidates.\n"
            "Build it with --layout both or --layout hub."
        )
    if record.candidates and not force:
        raise UsageError(
            f"{target} has candidates already, and nothing was touched.\n--force replaces them."
        )
    made = {
        split: make_candidates(
            load_task(f"{target.resolve()}#{split}"), dense, split=split, conditions=conditions
        )
        for split in splits
    }
    with replaced(target) as draft:
        for path in record.files:
            if path.startswith(("corpus/", "queries/", "qrels/", "r2med/")):
                (draft / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(target / path, draft / path)
        for split, lists in made.items():
            for subset in lists.lists():
                write_candidates(subset.run, draft, subset.config, split)
        described = {split: _candidates_record(lists) for split, lists in made.items()}
        _finish(draft, record.tasks, described)
    return made


def split_name(task: Task) -> str:
    """`Biology` becomes NanoR2MEDBiology; data of the user's own, and the demo, Nano + name."""
    words = re.findall(r"[A-Za-z0-9]+", task.name)
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Task"
    return f"NanoR2MED{joined}" if task.suite == "full" else f"Nano{joined}"


def _splits(tasks: Sequence[Task]) -> dict[str, Task]:
    splits: dict[str, Task] = {}
    for task in tasks:
        other = splits.setdefault(split_name(task), task)
        if other is not task:
            raise UsageError(
                f"{other.name} and {task.name} would both become {split_name(task)}; "
                "build them into folders of their own."
            )
    if not splits:
        raise UsageError("No task was named to build a Nano task from.")
    return splits


def _hard_run(task: Task, recipe: Recipe) -> Run | None:
    """Deep enough that the lists, which overlap, can fill the pool."""
    if recipe.fill != "hard":
        return None
    share = 4 * recipe.documents // max(min(recipe.queries, len(task.queries)), 1)
    depth = min(len(task.corpus), max(_LEAST_HARD_DEPTH, share))
    return retrieved(recipe.hard_from, task, depth=depth)


def _candidates_record(lists: Candidates) -> dict[str, object]:
    return {
        "bm25": {"system": BM25, "depth": FIRST_DEPTH},
        "dense": {"config": lists.dense_config, "system": lists.dense_system, "depth": FIRST_DEPTH},
        "reranking_hybrid": {
            "k": NANO_K,
            "depth": HYBRID_DEPTH,
            "safeguards": len(lists.safeguards),
        },
    }


def _finish(draft: Path, tasks: Mapping[str, BuiltTask], candidates: Mapping[str, Any]) -> None:
    """Write the README and, last, the record of what the folder holds."""
    files = [file.relative_to(draft).as_posix() for file in draft.rglob("*.parquet")]
    (draft / "README.md").write_text("\n".join(_readme(configs_of(files), tasks)), encoding="utf-8")
    write_record(draft, tasks=tasks, candidates=candidates)


_CONFIGS = {
    "corpus": "`{_id, text}`: the documents",
    "queries": "`{_id, text}`",
    "qrels": "`{query-id, corpus-id}`: every row is a positive",
    "bm25": "`{query-id, corpus-ids}`: candidates of BM25, best first, 500 per query",
    "reranking_hybrid": "`{query-id, corpus-ids}`: reciprocal rank fusion of the two others, cut "
    "at 100; a positive stands at rank 101 where those hold none",
}
_DENSE = "`{query-id, corpus-ids}`: candidates of an encoder, best first, 500 per query"
_FILLS = {
    "source": "the corpus in source order, as published",
    "random": "documents by a seeded hash of their ids",
    "hard": "what a retriever ranks highest for the queries",
}
_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))


def _readme(configs: Mapping[str, Sequence[str]], tasks: Mapping[str, BuiltTask]) -> Iterator[str]:
    """The dataset card: front matter that the hub reads, and the facts that a reader needs."""
    documents = sum(task.report.documents for task in tasks.values())
    size = next((name for limit, name in _SIZES if documents < limit), "100K<n<1M")
    yield from ("---", "task_categories:", "- text-retrieval", "tags:", "- medical", "- retrieval")
    yield from ("size_categories:", f"- {size}", "configs:")
    for config, splits in configs.items():
        yield from (f"- config_name: {config}", "  data_files:")
        for split in splits:
            yield from (f"  - split: {split}", f"    path: {shard(config, split)}")
    yield from ("---", "")
    yield from (f"# {next(iter(tasks)) if len(tasks) == 1 else 'NanoR2MED tasks'}", "")
    yield (
        "Compact retrieval tasks by the recipe of NanoR2MED, made with `r2med nano build`. "
        "Judgements are binary. A research instrument, never a clinical decision system.\n"
    )
    yield from ("| split | queries | documents | positives | source |", "|---|---:|---:|---:|---|")
    for split, task in sorted(tasks.items()):
        report = task.report
        counts = f"{report.queries:,} | {report.documents:,} | {report.positives:,}"
        yield f"| {split} | {counts} | {task.source} |"
    yield from ("", "| config | what it holds |", "|---|---|")
    yield from (f"| {config} | {_CONFIGS.get(config, _DENSE)} |" for config in configs)
    yield ""
    for split, task in sorted(tasks.items()):
        report, notices = task.report, "".join(f" {notice}" for notice in task.notices)
        yield (
            f"**{split}**: {report.positive_documents:,} positive documents, "
            f"{report.judged_negative_documents:,} judged non-positives, "
            f"{report.fill_documents:,} to fill ({_FILLS[task.recipe.fill]}).{notices}\n"
        )
    yield "`nano.json` holds every count, the recipe and the sha256 of each file.\n"
