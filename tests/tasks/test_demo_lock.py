"""The facts of the demo suite are measured, not published.

After a change of its data `python -m tests.tasks.test_demo_lock` writes them to
manifests/demo.lock.toml; the test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from r2med.tasks.fetch.provenance import data_folder, sha256_of, task_files
from r2med.tasks.load import load_task
from r2med.tasks.registry import MANIFESTS, TaskEntry, find_suite
from r2med.tasks.task import counts, statistics

LOCK = MANIFESTS / "demo.lock.toml"


def test_the_lock_file_tells_the_demo_data_as_it_lies() -> None:
    assert LOCK.read_text(encoding="utf-8") == sealed(), "run this file"


def sealed() -> str:
    """The text of the lock file."""
    entries = find_suite("demo").entries
    tables = [line for entry in entries for line in _table(f'"{entry.name}"', _facts(entry))]
    first = "# Written by `python -m tests.tasks.test_demo_lock`; do not edit."
    return "\n".join([first, *tables]) + "\n"


def _facts(entry: TaskEntry) -> dict[str, Any]:
    task = load_task(entry.name, use_copy=False)
    files = {
        path: {"sha256": sha256_of(file), "bytes": file.stat().st_size}
        for path, file in task_files(entry, data_folder(entry)).items()
    }
    sizes = {"counts": counts(task), "statistics": statistics(task)}
    return {"data": task.hash, **sizes, "files": files}


def _table(name: str, facts: Mapping[str, Any]) -> Iterator[str]:
    plain = {key: value for key, value in facts.items() if not isinstance(value, Mapping)}
    if plain:
        yield f"\n[{name}]"
        yield from (f"{key} = {json.dumps(value)}" for key, value in plain.items())
    for key, value in facts.items():
        if isinstance(value, Mapping):
            yield from _table(f"{name}.{json.dumps(key) if '.' in key else key}", value)


if __name__ == "__main__":
    LOCK.write_text(sealed(), encoding="utf-8")
