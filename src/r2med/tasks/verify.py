"""Is the data what the manifest says? One check per fact, open where the manifest has none.

The facts of the demo suite are measured, not published: run `python -m r2med.tasks.verify` after
changing its data, which writes manifests/demo.lock.toml; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_file
from r2med.tasks.fetch.provenance import (
    data_folder,
    is_present,
    read_provenance,
    sha256_of,
    task_files,
)
from r2med.tasks.load import Check, checked, compared, load_task
from r2med.tasks.registry import MANIFESTS, TaskEntry, find_suite
from r2med.tasks.task import counts, statistics

LOCK = MANIFESTS / "demo.lock.toml"


def verify(entry: TaskEntry, *, root: Path | None = None) -> list[Check]:
    """Compare counts, text statistics and checksums of a task with the manifest.

    With `root` the data is taken from <root>/<task>, as `load_task` does.
    """
    task = load_task(entry.name, root=root, use_copy=False)
    return [*compared(task, entry), *check_files(entry, task.source)]


def check_files(entry: TaskEntry, folder: Path) -> list[Check]:
    """Checksums: against the manifest, else against what was recorded when it was fetched."""
    recorded = read_provenance(folder)
    checks = []
    for path, file in task_files(entry, folder).items():
        label, expected = path, entry.files.get(path, {}).get("sha256")
        if expected is None and path in recorded:
            label, expected = f"{path} (as fetched)", recorded[path].sha256
        checks.append(checked(entry, "sha256", label, expected, sha256_of(file)))
    return checks


def sealed() -> str:
    """The text of the lock file for the demo tasks whose data is here."""
    present = [entry for entry in find_suite("demo").entries if is_present(entry)]
    tables = [line for entry in present for line in _table(f'"{entry.name}"', _facts(entry))]
    return "\n".join(["# Written by `python -m r2med.tasks.verify`; do not edit.", *tables]) + "\n"


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
    with atomic_file(LOCK) as draft:
        draft.write_text(sealed(), encoding="utf-8")
