"""What a task is called inside a table whose heading already names the suite."""

from __future__ import annotations

from r2med.errors import R2MedError
from r2med.tasks.registry import find_task


def task_label(name: str) -> str:
    """The R2MED task that a registered task stands for; a folder's own name as it is."""
    try:
        entry = find_task(name)
    except R2MedError:
        return name
    return entry.source if entry.name == name else name
