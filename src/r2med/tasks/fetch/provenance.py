"""The data folder of a registered task: its files, and the origin of each.

`provenance.json` beside the data records the origin of every file.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from r2med.errors import DamagedError
from r2med.paths import cache_folder
from r2med.storage import atomic_folder, seal, unseal
from r2med.tasks.reading.source import R2MED_FILES, split_of_shard
from r2med.tasks.registry import TaskEntry

DEMO = Path(__file__).parents[1] / "demo"
FILE = "provenance.json"

#: The configurations of the Nano layout without which a task cannot be scored.
NANO_CONFIGS = ("corpus", "queries", "qrels")

#: The published candidate lists beside them.
NANO_CANDIDATES = ("bm25", "harrier_oss_v1_270m", "reranking_hybrid")

#: What published generations are called, each in <method>/<llm>/ below its task.
GENERATIONS = "query_with_hydoc.jsonl"

_GENERATIONS = re.compile(rf"([A-Za-z0-9][A-Za-z0-9._-]*/){{2}}{re.escape(GENERATIONS)}")


def is_generations(path: str) -> bool:
    """Return whether a path has the form <method>/<llm>/query_with_hydoc.jsonl.

    The path is relative to the folder of a task.
    """
    return _GENERATIONS.fullmatch(path) is not None


def data_folder(entry: TaskEntry) -> Path:
    """Return the data folder of a task; all Nano tasks are splits in one shared folder."""
    if entry.suite == "demo":
        return DEMO / entry.name.removeprefix("demo/")
    if entry.split is not None:
        return cache_folder("data") / entry.suite
    return cache_folder("data") / entry.suite / entry.name


def is_present(entry: TaskEntry) -> bool:
    """Return whether every file that scoring needs exists; the content is not checked."""
    parts = files_by_part(entry.split, _paths(data_folder(entry)))
    return missing_part(entry.split, parts) is None


def task_files(entry: TaskEntry, folder: Path) -> dict[str, Path]:
    """Return the existing files of a task in a folder, by their paths relative to the folder."""
    parts = files_by_part(entry.split, _paths(folder))
    return {path: folder / path for files in parts.values() for path in files}


def files_by_part(split: str | None, paths: Collection[str]) -> dict[str, list[str]]:
    """Return those of the paths that are files of a task, by part; a part may have none.

    Without a split (R2MED tasks), a part has at most one file: if it exists in several forms, the
    one that would be read. With a split (Nano tasks), a part has all shards of the split.
    """
    if split is None:
        return {part: [n for n in names if n in paths][:1] for part, names in R2MED_FILES.items()}
    parquet_files = [
        path for path in map(PurePosixPath, sorted(paths)) if path.suffix == ".parquet"
    ]
    parquet_files = [path for path in parquet_files if split_of_shard(path.stem) == split]
    return {
        config: [str(path) for path in parquet_files if str(path.parent) == config]
        for config in (*NANO_CONFIGS, *NANO_CANDIDATES)
    }


def missing_part(split: str | None, parts: Mapping[str, Sequence[str]]) -> str | None:
    """Return the first part that scoring needs and that has no file; None if all have files."""
    needed = R2MED_FILES if split is None else NANO_CONFIGS
    return next((part for part in needed if not parts[part]), None)


def _paths(folder: Path) -> set[str]:
    files = (*folder.glob("*"), *folder.glob("*/*.parquet"))
    return {file.relative_to(folder).as_posix() for file in files if file.is_file()}


@dataclass(frozen=True)
class Fetched:
    """The outcome of fetching a task; `files` is 0 if all files existed already.

    `notices` say how the user's files differ from the published ones.
    """

    task: str
    folder: Path
    files: int
    outcome: str
    commit: str | None = None
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Origin:
    """The origin of an installed file; `commit` is set only if it came from the hub."""

    source: str
    sha256: str
    bytes: int
    commit: str | None = None


def origin_of(file: Path, source: str, commit: str | None = None) -> Origin:
    """Return the origin to be recorded for a file that is about to be installed."""
    return Origin(source, sha256_of(file), file.stat().st_size, commit)


def sha256_of(file: Path) -> str:
    """Return the sha256 of a file, the checksum that the manifests and the hub use."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_provenance(folder: Path) -> dict[str, Origin]:
    """Return the recorded origins by path; an unreadable record counts as empty."""
    try:
        record = unseal((folder / FILE).read_bytes(), folder / FILE)
        return {path: Origin(**origin) for path, origin in record["files"].items()}
    except (OSError, DamagedError, KeyError, TypeError, AttributeError):
        return {}


def install(staged: Path, folder: Path, origins: Mapping[str, Origin]) -> None:
    """Move checked files from a staging folder to the data folder, and record their origins.

    All files change in one step. Another form of an installed file (corpus.jsonl beside
    corpus.jsonl.gz) is removed, so that only one form exists.
    """
    forms = {name for names in R2MED_FILES.values() if {*names} & {*origins} for name in names}
    retired = {FILE, *forms}
    with atomic_folder(folder, keep=lambda path: path not in retired) as draft:
        for path in origins:
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(staged / path, draft / path)
        other_origins = {
            path: origin
            for path, origin in read_provenance(folder).items()
            if path not in retired and (folder / path).is_file()
        }
        files = {
            path: asdict(origin) for path, origin in sorted({**other_origins, **origins}.items())
        }
        (draft / FILE).write_text(seal({"files": files}), encoding="utf-8")
