"""Fetching tasks from the hub: at the pinned revision, checked, and in place only when whole."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import huggingface_hub
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import WeakFileLock  # type: ignore[attr-defined]  # lazy export

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.home import shelf
from r2med.tasks.hub_errors import INSTEAD, explain
from r2med.tasks.hub_progress import Progress, bar_class
from r2med.tasks.location import (
    GENERATIONS,
    NANO_CANDIDATES,
    NANO_CONFIGS,
    R2MED_FILES,
    data_folder,
    holds,
    is_generations,
    task_files,
)
from r2med.tasks.provenance import Origin, install, origin_of, read_provenance, sha256_of
from r2med.tasks.registry import HubSource, TaskEntry, find_task

#: From a task, its repository and the paths in it to those that are wanted.
Select = Callable[[TaskEntry, HubSource, Sequence[str]], list[str]]


@dataclass(frozen=True)
class Fetched:
    """What became of one task: its folder, and how many files were downloaded (0: all here)."""

    entry: TaskEntry
    folder: Path
    downloaded: int
    commit: str | None


def fetch(
    entries: Iterable[TaskEntry],
    *,
    offline: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Fetched]:
    """Bring the data of the entries into their folders; what is here and sound is left alone.

    `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN` are respected; no other token is ever sent.
    """
    wanted = list(entries)
    done = {entry.name: _as_it_is(entry) for entry in wanted if not force or entry.hub is None}
    missing = [entry for entry in wanted if done.get(entry.name) is None]
    if missing and (offline or _offline_mode()):
        names = ", ".join(entry.name for entry in missing)
        raise MissingError(f"Offline mode is on, so this cannot be fetched: {names}.\n{INSTEAD}")
    for entry in missing:
        done[entry.name] = _fetch_one(entry, progress, _select)
    return [found for entry in wanted if (found := done[entry.name]) is not None]


def fetch_generations(
    entries: Iterable[TaskEntry],
    *,
    offline: bool = False,
    force: bool = False,
    progress: Progress | None = None,
) -> list[Fetched]:
    """Bring the published generations of tasks into their folders; what is here and sound stays.

    A Nano task has the queries of its full task, and reads the generations of that.
    """
    wanted = list(dict.fromkeys(_with_generations(entry) for entry in entries))
    if wanted and (offline or _offline_mode()):
        names = ", ".join(entry.name for entry in wanted)
        raise MissingError(
            f"Offline mode is on, so generations of {names} cannot be fetched.\n{INSTEAD}"
        )
    return [_fetch_one(entry, progress, _select_generations, again=force) for entry in wanted]


def _with_generations(entry: TaskEntry) -> TaskEntry:
    full = find_task(entry.source)
    if entry.hub is None or full.hub is None:
        raise UsageError(f"{entry.name} has no published generations.")
    return full if entry.split is not None else entry


def _as_it_is(entry: TaskEntry) -> Fetched | None:
    folder = data_folder(entry)
    if entry.hub is None:
        if not holds(entry, folder):
            raise MissingError(f"{entry.name} comes with r2med, but {folder} lacks its files.")
        return Fetched(entry, folder, 0, None)
    if not holds(entry, folder):
        return None
    recorded = read_provenance(folder)
    paths = {file.relative_to(folder).as_posix(): file for file in task_files(entry, folder)}
    for path, file in paths.items():
        known = entry.files.get(path) or recorded.get(path)
        if known is not None and known.sha256 != sha256_of(file):
            return None
    commits = {recorded[path].commit for path in paths if path in recorded}
    return Fetched(entry, folder, 0, commits.pop() if len(commits) == 1 else None)


def _fetch_one(
    entry: TaskEntry, progress: Progress | None, select: Select, *, again: bool = True
) -> Fetched:
    if entry.hub is None:
        raise UsageError(f"{entry.name} is not on the hub.")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    client = huggingface_hub.HfApi(endpoint=endpoint, token=os.environ.get("HF_TOKEN") or False)
    staged = shelf("data") / f".fetching-{entry.name}"
    try:
        staged.parent.mkdir(parents=True, exist_ok=True)
        with _quiet(), WeakFileLock(staged.with_suffix(".lock")):
            commit, files = _list(client, entry, entry.hub, select)
            here = set() if again else _sound(data_folder(entry), commit)
            origins = {
                file.path: _download(client, entry.hub, commit, file, entry, staged, progress)
                for file in files
                if file.path not in here
            }
            install(staged, data_folder(entry), origins)
            shutil.rmtree(staged, ignore_errors=True)
    except R2MedError:
        raise
    except Exception as error:
        raise explain(error, entry.hub, client.endpoint) from error
    return Fetched(entry, data_folder(entry), len(origins), commit)


def _sound(folder: Path, commit: str) -> set[str]:
    """The recorded files of a commit that are still as they came."""
    return {
        path
        for path, origin in read_provenance(folder).items()
        if origin.commit == commit
        and (folder / path).is_file()
        and sha256_of(folder / path) == origin.sha256
    }


def _list(
    client: huggingface_hub.HfApi, entry: TaskEntry, hub: HubSource, select: Select
) -> tuple[str, list[RepoFile]]:
    info = client.dataset_info(hub.repo, revision=hub.revision or "main")
    if info.sha is None:
        raise DataError(f"{hub.repo}: the hub names no commit for {hub.revision or 'main'}.")
    tree = client.list_repo_tree(
        hub.repo, repo_type="dataset", revision=info.sha, recursive=True, expand=False
    )
    files = {item.path: item for item in tree if isinstance(item, RepoFile)}
    return info.sha, [files[path] for path in select(entry, hub, sorted(files))]


def _select(entry: TaskEntry, hub: HubSource, paths: Sequence[str]) -> list[str]:
    if entry.split is None:
        groups = {role: list(names) for role, names in R2MED_FILES.items()}
        found = {role: [n for n in names if n in paths][:1] for role, names in groups.items()}
        required = set(R2MED_FILES)
    else:
        configs = (*NANO_CONFIGS, *NANO_CANDIDATES)
        stems = {c: f"{c}/{entry.split}" for c in configs}
        groups = {c: [f"{stem}-*.parquet", f"{stem}.parquet"] for c, stem in stems.items()}
        found = {
            c: [p for p in paths if any(fnmatchcase(p, pattern) for pattern in patterns)]
            for c, patterns in groups.items()
        }
        required = set(NANO_CONFIGS)
    for group in sorted(required):
        if not found[group]:
            raise DataError(
                f"{hub.repo} holds no {group} for {entry.name}: expected "
                f"{' or '.join(groups[group])}, found {_some(paths)}.\n{INSTEAD}"
            )
    return [path for files in found.values() for path in files]


def _select_generations(entry: TaskEntry, hub: HubSource, paths: Sequence[str]) -> list[str]:
    found = [path for path in paths if is_generations(path)]
    if not found:
        raise DataError(
            f"{hub.repo} holds no generations for {entry.name}: expected files named "
            f"<method>/<llm>/{GENERATIONS}, found {_some(paths)}.\n{INSTEAD}"
        )
    return found


def _some(paths: Sequence[str]) -> str:
    shown = ", ".join(paths[:6]) or "no file at all"
    return f"{shown} and {len(paths) - 6} more" if len(paths) > 6 else shown


def _download(
    client: huggingface_hub.HfApi,
    hub: HubSource,
    commit: str,
    file: RepoFile,
    entry: TaskEntry,
    staged: Path,
    progress: Progress | None,
) -> Origin:
    client.hf_hub_download(
        hub.repo,
        file.path,
        repo_type="dataset",
        revision=commit,
        local_dir=staged,
        tqdm_class=bar_class(progress, f"{entry.name} {file.path}", file.size),
    )
    origin = origin_of(staged / file.path, f"hub:{hub.repo}", commit)
    _check(entry, hub, file, origin, staged)
    return origin


def _check(entry: TaskEntry, hub: HubSource, file: RepoFile, origin: Origin, staged: Path) -> None:
    known = entry.files.get(file.path)
    listed = file.lfs.sha256 if file.lfs is not None else None
    expected, source = (known.sha256, "the manifest") if known else (listed, "the hub's listing")
    if expected is None or expected == origin.sha256:
        return
    (staged / file.path).unlink()
    raise DataError(
        f"{hub.repo}, {file.path}: sha256 is {origin.sha256} ({origin.bytes:,} bytes), "
        f"expected {expected} as in {source}.\n"
        "The download was discarded and the data folder is unchanged. Try again; if it repeats, "
        "a proxy or mirror alters the file."
    )


def _offline_mode() -> bool:
    chosen = os.environ.get("HF_HUB_OFFLINE", "").strip().upper()
    return chosen in {"1", "ON", "YES", "TRUE"} or huggingface_hub.is_offline_mode()


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the client's own warnings: what matters of them is raised as an error here."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
