"""Put several files into a folder together: all are written elsewhere first, then moved in."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_folder
from r2med.errors import DataError, R2MedError, UsageError


class WriteError(R2MedError):
    """A file could not be written, and nothing was left behind."""


RECORD = "nano.json"


def check_free(target: Path, *, force: bool) -> None:
    """Refuse a folder that holds something, unless told to write into it."""
    if target.exists() and not target.is_dir():
        raise UsageError(f"--out {target} is a file, expected a folder to write.")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise UsageError(
            f"--out {target} is not empty, and nothing in it was touched.\n"
            "Choose another folder, or --force to replace the Nano task in it (other files stay)."
        )


@contextmanager
def staged(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; on success its files take their places in `target`.

    A new folder appears whole. In an existing one the record of its files is removed first and
    written last, and files of the former record that are no longer made are removed.
    """
    try:
        if not target.is_dir() or not any(target.iterdir()):
            with atomic_folder(target) as draft:
                yield draft
            return
        draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.resolve().parent))
        try:
            yield draft
            _move_in(draft, target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as problem:
        raise WriteError(
            f"{target}: could not be written ({problem.strerror or problem}).\n"
            "Nothing half-written was left; make room and run the command again."
        ) from problem


def recorded_files(folder: Path) -> dict[str, str]:
    """Path and sha256 of every file that a Nano folder's record names."""
    return dict(read_record(folder)["files"]) if (folder / RECORD).is_file() else {}


def read_record(folder: Path) -> dict[str, dict[str, Any]]:
    """The record of a folder that `nano build` made; {} parts where there is none."""
    path = folder / RECORD
    if not path.is_file():
        return {"tasks": {}, "candidates": {}, "files": {}}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {part: dict(record[part]) for part in ("tasks", "candidates", "files")}
    except (ValueError, KeyError, TypeError) as problem:
        raise DataError(
            f"{path}: not a readable record of a Nano folder ({problem}).\n"
            "Build the folder again with `r2med nano build ... --force`."
        ) from problem


def _move_in(draft: Path, target: Path) -> None:
    made = [file for file in sorted(draft.rglob("*")) if file.is_file()]
    names = [file.relative_to(draft) for file in made]
    stale = set(recorded_files(target)) - {name.as_posix() for name in names}
    (target / RECORD).unlink(missing_ok=True)
    for path in sorted(stale):
        if (target / path).resolve().is_relative_to(target.resolve()):
            (target / path).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: (name.as_posix() == RECORD, name)):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (draft / name).replace(target / name)
