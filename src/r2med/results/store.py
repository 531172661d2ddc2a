"""The results folder: one folder a result, written whole or not at all, checked when read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from r2med.atomic import atomic_folder
from r2med.errors import DamagedError
from r2med.measure import Scores
from r2med.results.record import Record, result_key
from r2med.results.result import RECORD_FILE, RUN_FILE, SCORES_FILE, Result
from r2med.runs import Run

DEFAULT_FOLDER = Path("r2med-results")
_FINGERPRINT = 12


class Store:
    """Results under one root, addressed by what they are results of."""

    def __init__(self, root: str | Path = DEFAULT_FOLDER) -> None:
        self.root = Path(root)

    def place(self, task: str, suite: str | None, system: str, key: str) -> Path:
        """Where a result lives: readable names for people, the key's head for identity."""
        named = f"{_slug(system)}-{key[:_FINGERPRINT]}"
        return self.root / _slug(suite or "local") / _slug(task) / named

    def write(self, record: Record, run: Run, scores: Scores) -> Result:
        """Store a result atomically, with checksums of its tables."""
        folder = self._folder(record)
        with atomic_folder(folder) as draft:
            run.to_parquet(draft / RUN_FILE)
            pq.write_table(scores.to_arrow(), draft / SCORES_FILE)
            sums = {name: _sha256(draft / name) for name in (RUN_FILE, SCORES_FILE)}
            record = replace(record, files=sums)
            (draft / RECORD_FILE).write_text(record.to_json(), encoding="utf-8")
        return Result(folder, record)

    def read(self, folder: Path) -> Result:
        """Read a stored result; DamagedError says which file is wrong and how."""
        try:
            record = Record.from_json((folder / RECORD_FILE).read_text(encoding="utf-8"))
        except (OSError, KeyError, TypeError, ValueError, AttributeError) as problem:
            raise DamagedError(
                f"{folder / RECORD_FILE}: not a readable result ({problem})."
            ) from None
        for name, expected in record.files.items():
            file = folder / Path(name).name
            if not file.is_file():
                raise DamagedError(f"{file}: missing from a stored result.")
            if _sha256(file) != expected:
                raise DamagedError(f"{file}: its checksum differs from the one in {RECORD_FILE}.")
        return Result(folder, record, reused=True)

    def folders(self) -> Iterator[Path]:
        """Every folder that holds, or claims to hold, a result."""
        pattern = f"*/*/*/{RECORD_FILE}"
        return (path.parent for path in sorted(self.root.glob(pattern)) if _visible(path))

    def _folder(self, record: Record) -> Path:
        key = result_key(record.task.hash, record.system.identity, record.system.ties)
        return self.place(record.task.name, record.task.suite, record.system.spec, key)


def _visible(path: Path) -> bool:
    return not path.parent.name.startswith(".")


def _sha256(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _slug(text: str) -> str:
    """A folder name that cannot leave its folder and reads like the text it stands for."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:80] or "system"
