"""Fetching tasks from the hub: at the pinned revision, checked, and in place only when whole."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils.tqdm import tqdm

from r2med.atomic import lock
from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.home import shelf
from r2med.tasks.fetch.provenance import (
    GENERATIONS,
    Fetched,
    Origin,
    data_folder,
    install,
    is_generations,
    is_present,
    missing_parts,
    origin_of,
    parts_of,
    read_provenance,
    sha256_of,
    task_files,
)
from r2med.tasks.registry import HubSource, TaskEntry, find_task
from r2med.tasks.verify import check_files

_INSTEAD = (
    "Without the hub: `r2med fetch --from ZIP|DIR` takes files you already have, "
    "and `--data-root DIR` reads them where they lie."
)


#: Hears of a file that is being downloaded: its label, how many bytes came, and of how many.
Progress = Callable[[str, int, int], None]


def fetch(
    entries: Iterable[TaskEntry],
    *,
    generations: bool = False,
    offline: bool = False,
    force: bool = False,
    progress: Progress = lambda label, done, total: None,
) -> list[Fetched]:
    """Bring the data of tasks, or their published generations; what is here and sound stays.

    A Nano task has the queries of its full task, and reads the generations of that.
    `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN` are respected; no other token is ever sent.
    """
    wanted = list(entries)
    if generations:
        for entry in wanted:
            if entry.hub is None:
                raise UsageError(f"{entry.name} has no published generations.")
        full = (entry if entry.split is None else find_task(entry.source) for entry in wanted)
        wanted = list(dict.fromkeys(full))
    again = generations or force
    done = {entry.name: None if again and entry.hub else _as_it_is(entry) for entry in wanted}
    missing = [entry.name for entry in wanted if done[entry.name] is None]
    chosen = os.environ.get("HF_HUB_OFFLINE", "").strip().upper()
    offline = offline or chosen in {"1", "ON", "YES", "TRUE"} or huggingface_hub.is_offline_mode()
    if missing and offline:
        what = "generations of " if generations else ""
        raise MissingError(
            f"Offline mode is on, so this cannot be fetched: {what}{', '.join(missing)}.\n"
            f"{_INSTEAD}"
        )
    return [
        done[entry.name]
        or _fetch_one(entry, generations=generations, again=force, progress=progress)
        for entry in wanted
    ]


def _as_it_is(entry: TaskEntry) -> Fetched | None:
    """The task as its folder holds it, or None where something is missing or damaged."""
    folder = data_folder(entry)
    if entry.hub is None:
        if not is_present(entry):
            raise MissingError(f"{entry.name} comes with r2med, but {folder} lacks its files.")
        return Fetched(entry, folder, 0, "comes with r2med")
    damaged = any(check.passed is False for check in check_files(entry, folder))
    if damaged or not is_present(entry):
        return None
    recorded = read_provenance(folder)
    commits = {recorded[path].commit for path in task_files(entry, folder) if path in recorded}
    return _fetched(entry, 0, "files", commits.pop() if len(commits) == 1 else None)


def _fetched(entry: TaskEntry, files: int, what: str, commit: str | None) -> Fetched:
    outcome = f"{files} {what} fetched" if files else f"{what} already here"
    at = f" at {commit[:12]}" if commit else ""
    return Fetched(entry, data_folder(entry), files, outcome + at, commit)


def _fetch_one(entry: TaskEntry, *, generations: bool, again: bool, progress: Progress) -> Fetched:
    """Download under a lock: who waited for another finds the files there."""
    hub = entry.hub
    assert hub is not None, entry.name
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    client = huggingface_hub.HfApi(endpoint=endpoint, token=os.environ.get("HF_TOKEN") or False)
    folder, staged = data_folder(entry), shelf("data") / f".fetching-{entry.name}"
    try:
        with _quiet(), lock(staged.with_name(f"{staged.name}.lock")):
            revision = hub.revision or "main"
            commit = client.dataset_info(hub.repo, revision=revision).sha
            if commit is None:
                raise DataError(f"{hub.repo}: the hub names no commit for {revision}.")
            place: dict[str, Any] = {"repo_type": "dataset", "revision": commit}
            listed = client.list_repo_tree(hub.repo, recursive=True, **place)
            files = {item.path: item for item in listed if isinstance(item, RepoFile)}
            here = {} if again else read_provenance(folder)
            sound = {
                path
                for path, origin in here.items()
                if origin.commit == commit
                and (folder / path).is_file()
                and sha256_of(folder / path) == origin.sha256
            }
            origins = {}
            for path in _wanted(entry, hub, sorted(files), generations):
                if path not in sound:
                    bar = _bar_class(progress, f"{entry.name} {path}", files[path].size)
                    client.hf_hub_download(
                        hub.repo, path, local_dir=staged, tqdm_class=bar, **place
                    )
                    origin = origin_of(staged / path, f"hub:{hub.repo}", commit)
                    _check(entry, hub, files[path], origin, staged)
                    origins[path] = origin
            if origins:
                install(staged, folder, origins)
            shutil.rmtree(staged, ignore_errors=True)
    except R2MedError:
        raise
    except Exception as error:
        raise _explained(error, hub, client.endpoint) from error
    return _fetched(entry, len(origins), "generations" if generations else "files", commit)


def _wanted(entry: TaskEntry, hub: HubSource, paths: Sequence[str], generations: bool) -> list[str]:
    """The paths to fetch; a repository that lacks any part is an error."""
    if generations:
        parts = {"generations": [path for path in paths if is_generations(path)]}
        expected = f"files named <method>/<llm>/{GENERATIONS}"
        missing = {} if parts["generations"] else {"generations": expected}
    else:
        parts = parts_of(entry.split, paths)
        missing = missing_parts(entry.split, parts)
    for part, expected in sorted(missing.items()):
        shown = ", ".join([*paths[:6], "..."][: len(paths)]) or "no file at all"
        raise DataError(
            f"{hub.repo} holds no {part} for {entry.name}: expected {expected}, found {shown}.\n"
            f"{_INSTEAD}"
        )
    return [path for files in parts.values() for path in files]


def _check(entry: TaskEntry, hub: HubSource, file: RepoFile, origin: Origin, staged: Path) -> None:
    """Refuse a download that is not what the manifest, or else the hub's listing, says."""
    expected, source = entry.files.get(file.path, {}).get("sha256"), "the manifest"
    if expected is None and file.lfs is not None:
        expected, source = file.lfs.sha256, "the hub's listing"
    if expected in (None, origin.sha256):
        return
    (staged / file.path).unlink()
    raise DataError(
        f"{hub.repo}, {file.path}: sha256 is {origin.sha256} ({origin.bytes:,} bytes), "
        f"expected {expected} as in {source}.\n"
        "The download was discarded and the data folder is unchanged. Try again; if it repeats, "
        "a proxy or mirror alters the file."
    )


def _bar_class(progress: Progress, label: str, total: int) -> type[tqdm]:
    """What the client calls a bar: it draws nothing itself and tells `progress`."""

    class Bar(tqdm):
        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            super().__init__(disable=True)  # type: ignore[no-untyped-call]
            self.done = initial
            progress(label, initial, total)

        def update(self, n: float | None = 1) -> None:
            self.done += int(n or 0)
            progress(label, self.done, total)

    return Bar


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


def _explained(error: Exception, hub: HubSource, endpoint: str) -> R2MedError:
    """The error a user should see for one that the client raised; never with a token in it."""
    cause: BaseException = error
    while isinstance(cause, LocalEntryNotFoundError):
        cause = cause.__cause__ or cause.__context__ or OSError(str(error))
    # the library that talks HTTP differs between versions of the client
    library = type(cause).__module__.partition(".")[0]
    status = int(cause.response.status_code) if isinstance(cause, HfHubHTTPError) else 0
    if isinstance(cause, GatedRepoError):
        message = (
            f"{hub.repo} is gated (HTTP {status}): its owners must grant access.\n"
            f"Accept the conditions at {endpoint}/datasets/{hub.repo}, then set HF_TOKEN to a "
            "token of that account."
        )
    elif isinstance(cause, RepositoryNotFoundError):
        message = (
            f"{hub.repo}: {endpoint} has no such dataset, or it is private "
            f"(HTTP {status}).\nIf it is private, set HF_TOKEN. {_INSTEAD}"
        )
    elif isinstance(cause, RevisionNotFoundError):
        revision = hub.revision or "main"
        message = (
            f"{hub.repo} has no revision {revision} at {endpoint} (HTTP {status}).\n{_INSTEAD}"
        )
    elif status in (401, 403):
        message = (
            f"{hub.repo}: {endpoint} refused access (HTTP {status}).\n"
            "Check the token in HF_TOKEN, or unset it: the benchmark is public."
        )
    elif status == 404:
        message = f"{hub.repo}: {endpoint} does not have it (HTTP 404).\n{_INSTEAD}"
    elif status:
        message = f"{endpoint} answered HTTP {status} for {hub.repo}. Try later.\n{_INSTEAD}"
    elif isinstance(cause, OSError) and cause.filename is not None:
        message = f"{cause.filename}: {cause.strerror}. Is there room to write?"
    elif isinstance(cause, OSError) or library.startswith(("httpx", "httpcore", "requests")):
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        message = (
            f"The connection to {endpoint} failed while fetching {hub.repo}: {reason}\n"
            f"Run the same command again to go on from the files that are complete. {_INSTEAD}"
        )
    else:
        raise error
    return MissingError(message)
