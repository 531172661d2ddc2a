"""Verify a folder that has only some files of a task."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from pathlib import Path

from r2med.tasks.load import Check, make_check
from r2med.tasks.registry import TaskEntry


def find_partial_folder(entry: TaskEntry, root: Path | None) -> Path | None:
    """Return a task's folder under a data root if some, but not all, files of the task exist."""
    if root is None or not entry.files:
        return None
    folders = [folder for folder in (root / entry.name, root) if _count_files(entry, folder)]
    if not folders or _count_files(entry, folders[0]) == len(entry.files):
        return None
    return folders[0]


def check_partial_files(entry: TaskEntry, folder: Path) -> list[Check]:
    """Compare the checksums of the files in a folder with the manifest.

    Compressed files are compared by their uncompressed content.
    """
    checks = []
    for name, facts in entry.files.items():
        path = _find_file(folder, name)
        actual_hash = _content_hash(path) if path else None
        checks.append(make_check(entry, "sha256", name, facts.get("sha256"), actual_hash))
    return checks


def describe_partial_checks(task: str, checks: Sequence[Check]) -> str:
    """Describe which files were verified, and which facts were not checked."""
    of_task = [check for check in checks if check.task == task]
    verified = [check.fact for check in of_task if check.passed]
    differing = [check.fact for check in of_task if check.passed is False]
    missing = [check.fact for check in of_task if check.found is None]
    parts = []
    if verified:
        parts.append(f"verified: {', '.join(verified)}")
    if differing:
        parts.append(f"different: {', '.join(differing)}")
    parts.append(f"not verified, because missing: {', '.join(missing)}")
    return f"{'; '.join(parts)}. Counts and text statistics need all files and were not checked."


def _count_files(entry: TaskEntry, folder: Path) -> int:
    return sum(_find_file(folder, name) is not None for name in entry.files)


def _find_file(folder: Path, name: str) -> Path | None:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    return None


def _content_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
