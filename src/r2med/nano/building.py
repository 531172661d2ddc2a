"""Build a Nano folder from tasks: one split a task, written whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from r2med.errors import DataError, UsageError
from r2med.nano.dataset_card import dataset_card
from r2med.nano.folder import write_hub_layout, write_r2med_layout, write_record
from r2med.nano.pool import Pool, Recipe, make_pool
from r2med.nano.retrieval import retrieved
from r2med.nano.staging import check_free, staged
from r2med.runs import Run
from r2med.tasks.task import Task

Layout = Literal["both", "hub", "r2med"]
LAYOUTS: tuple[Layout, ...] = ("both", "hub", "r2med")
_LEAST_HARD_DEPTH = 100


@dataclass(frozen=True, eq=False)
class Built:
    """One task of a new Nano folder."""

    split: str
    folder: Path
    source: Task
    pool: Pool
    notices: tuple[str, ...]


def split_name(task: Task) -> str:
    """`Biology` becomes NanoR2MEDBiology; data of the user's own, and the demo, Nano + name."""
    words = re.findall(r"[A-Za-z0-9]+", task.name)
    joined = "".join(word[:1].upper() + word[1:] for word in words) or "Task"
    return f"NanoR2MED{joined}" if task.suite == "full" else f"Nano{joined}"


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

    `strict` fails where positives are lost; otherwise the losses are told and recorded.
    """
    sources = [tasks] if isinstance(tasks, Task) else list(tasks)
    recipe, target = recipe or Recipe(), Path(out)
    if layout not in LAYOUTS:
        raise UsageError(f"--layout {layout!r} is not known; expected {', '.join(LAYOUTS)}.")
    check_free(target, force=force)
    built = [_built(split, task, target, recipe) for split, task in _splits(sources).items()]
    for one in built:
        _check(one, recipe, strict=strict)
        for notice in one.notices:
            tell(f"{one.split}: {notice}")
    with staged(target) as draft:
        for one in built:
            if layout in ("both", "hub"):
                write_hub_layout(one.pool, draft, one.split)
            if layout in ("both", "r2med"):
                write_r2med_layout(one.pool, draft, one.split)
        finish_folder(draft, {one.split: _task_record(one, recipe) for one in built}, {})
    return built


def _built(split: str, task: Task, target: Path, recipe: Recipe) -> Built:
    pool = make_pool(task, recipe, hard=_hard_run(task, recipe))
    return Built(split, target, task, pool, tuple(pool.report.notices(recipe.documents)))


def finish_folder(draft: Path, tasks: dict[str, Any], candidates: dict[str, Any]) -> None:
    """Write the README and, last, the record of what the folder holds."""
    files = [file.relative_to(draft).as_posix() for file in draft.rglob("*.parquet")]
    title = next(iter(tasks)) if len(tasks) == 1 else "NanoR2MED tasks"
    (draft / "README.md").write_text(dataset_card(title, files, tasks), encoding="utf-8")
    write_record(draft, {"tasks": tasks, "candidates": candidates})


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


def _check(built: Built, recipe: Recipe, *, strict: bool) -> None:
    report = built.pool.report
    if strict and report.positives_lost:
        told = " ".join(report.notices(recipe.documents))
        raise DataError(
            f"{built.source.name}: {report.positives_lost:,} of "
            f"{report.positives_lost + report.positives:,} positives would be lost, and --strict "
            f"forbids it. {told}\nNothing was written."
        )


def _task_record(built: Built, recipe: Recipe) -> dict[str, object]:
    source = built.source
    return {
        "source": {"name": source.name, "suite": source.suite, "hash": source.hash},
        "recipe": asdict(recipe),
        "report": asdict(built.pool.report),
        "notices": list(built.notices),
    }
