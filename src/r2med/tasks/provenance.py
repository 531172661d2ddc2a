"""Where each file of a data folder came from: a small JSON beside the data, written last."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from r2med.atomic import atomic_file
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
        record = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return {path: Origin(**origin) for path, origin in record["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def install(staged: Path, folder: Path, origins: Mapping[str, Origin]) -> None:
    """Move checked files from a staging folder into place, then record where they came from.

    Each move is atomic, and another form of the same file (corpus.jsonl beside
    corpus.jsonl.gz) is retired, so that a reader never has two to choose from.
    """
    for path in origins:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (staged / path).replace(target)
        for other in _other_forms(path):
            (folder / other).unlink(missing_ok=True)
    kept = {p: o for p, o in read_provenance(folder).items() if (folder / p).is_file()}
    record = {"files": {p: asdict(o) for p, o in sorted({**kept, **origins}.items())}}
    with atomic_file(folder / FILE) as draft:
        draft.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _other_forms(path: str) -> list[str]:
    forms = next((names for names in R2MED_FILES.values() if path in names), ())
    return [name for name in forms if name != path]
