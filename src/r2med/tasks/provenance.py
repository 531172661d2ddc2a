"""Where each file of a data folder came from: a small JSON beside the data."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from r2med.atomic import atomic_folder, seal, unseal
from r2med.errors import DamagedError
from r2med.tasks.location import R2MED_FILES

FILE = "provenance.json"


@dataclass(frozen=True)
class Origin:
    """One file as it was when it was put in place; `commit` where it came from the hub."""

    source: str
    sha256: str
    bytes: int
    commit: str | None = None


def origin_of(file: Path, source: str, commit: str | None = None) -> Origin:
    """Describe a file that is about to be installed."""
    return Origin(source, sha256_of(file), file.stat().st_size, commit)


def sha256_of(file: Path) -> str:
    """The checksum the manifests and the hub use."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_provenance(folder: Path) -> dict[str, Origin]:
    """What is recorded, by path; an unreadable record counts as none, a new fetch rewrites it."""
    try:
        record = unseal((folder / FILE).read_bytes(), folder / FILE)
        return {path: Origin(**origin) for path, origin in record["files"].items()}
    except (OSError, DamagedError, KeyError, TypeError, AttributeError):
        return {}


def install(staged: Path, folder: Path, origins: Mapping[str, Origin]) -> None:
    """Put checked files from a staging folder into place, and record where they came from.

    All change in one step. Another form of the same file (corpus.jsonl beside corpus.jsonl.gz)
    is retired, so that a reader never has two to choose from.
    """
    retired = {FILE, *(other for path in origins for other in _other_forms(path))}
    with atomic_folder(folder, keep=lambda path: path not in retired) as draft:
        for path in origins:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(staged / path, draft / path)
        kept = {
            path: origin
            for path, origin in read_provenance(folder).items()
            if path not in retired and (folder / path).is_file()
        }
        files = {path: asdict(o) for path, o in sorted({**kept, **origins}.items())}
        (draft / FILE).write_text(seal({"files": files}), encoding="utf-8")


def _other_forms(path: str) -> list[str]:
    forms = next((names for names in R2MED_FILES.values() if path in names), ())
    return [name for name in forms if name != path]
