"""Where a system's generations come from: a file in the task's folder, another, or a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from r2med.errors import MissingError, UsageError
from r2med.expand.generations import FILE, place
from r2med.home import user_path
from r2med.tasks.location import data_folder
from r2med.tasks.registry import find_task
from r2med.tasks.task import Task


@dataclass(frozen=True)
class FileSource:
    """A file of generations, and whether it was chosen because it was there."""

    path: Path
    by_default: bool


def find_file(task: Task, method: str, llm: str, choice: str) -> FileSource | None:
    """The file to read, or None when a model is to be asked.

    `choice` is `auto`, `live`, `published` or a path: of a file, of a folder that holds it, or of
    a root that holds task folders.
    """
    if choice == "live":
        return None
    if choice in ("auto", "published"):
        found = _beside(task, method, llm)
        if found:
            return FileSource(found, choice == "auto")
        if choice == "auto":
            return None
        raise MissingError(_not_here(task, method, llm))
    return FileSource(_under(user_path(choice), task, method, llm), False)


def _beside(task: Task, method: str, llm: str) -> Path | None:
    return next((path for path in _places(task, method, llm) if path.is_file()), None)


def _places(task: Task, method: str, llm: str) -> Iterator[Path]:
    """The task's own folder; a Nano task has the queries of its full task, so that one's too."""
    if task.entry is None or task.entry.split is None:
        yield place(task.source, method, llm)
    else:
        yield place(data_folder(find_task(task.entry.source)), method, llm)


def _under(path: Path, task: Task, method: str, llm: str) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise UsageError(
            f"[generations={path}]: there is no such file or folder. Expected live, published, or "
            f"the path of a {FILE}."
        )
    tried = [
        path / FILE,
        place(path, method, llm),
        place(path / task.name, method, llm),
        place(path / task.name.rpartition("/")[2], method, llm),
    ]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    shown = "\n  ".join(str(candidate) for candidate in tried[:3])
    raise MissingError(
        f"[generations={path}]: no generations for {task.name}. Looked for\n  {shown}"
    )


def _not_here(task: Task, method: str, llm: str) -> str:
    where = next(_places(task, method, llm))
    entry = task.entry
    told = f"{task.name} has no published generations of {method} by {llm}: expected {where}."
    if entry is None or entry.hub is None:
        return told
    return (
        f"{told}\nFetch what the benchmark published with `r2med fetch {entry.source} "
        "--generations`; not every pair of method and model was published."
    )
