"""Writes manifests/demo.lock.toml: counts, statistics and checksums of the demo data as it lies.

Run `python -m r2med.tasks.seal` after changing the demo data; a test compares the two.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from r2med.atomic import atomic_file
from r2med.tasks.load import load_task
from r2med.tasks.location import data_folder, is_present, task_files
from r2med.tasks.provenance import sha256_of
from r2med.tasks.registry import MANIFESTS, TaskEntry, find_suite
from r2med.tasks.statistics import counts, statistics

LOCK = MANIFESTS / "demo.lock.toml"


def sealed() -> str:
    """The text of the lock file for the demo tasks whose data is here."""
    present = [entry for entry in find_suite("demo").entries if is_present(entry)]
    tables = [line for entry in present for line in _table(f'"{entry.name}"', _facts(entry))]
    return "\n".join(["# Written by `python -m r2med.tasks.seal`; do not edit.", *tables]) + "\n"


def _facts(entry: TaskEntry) -> dict[str, Any]:
    task = load_task(entry.name, use_copy=False)
    files = {
        file.name: {"sha256": sha256_of(file), "bytes": file.stat().st_size}
        for file in task_files(entry, data_folder(entry))
    }
    return {"counts": counts(task), "statistics": statistics(task), "files": files}


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
