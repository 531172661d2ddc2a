"""Download tasks from the hub at the pinned revision, and verify them before they are used."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Iterable, Sequence
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

from r2med.errors import DataError, MissingError, R2MedError, UsageError
from r2med.paths import cache_folder
from r2med.storage import lock
from r2med.tasks.fetch.provenance import (
    Fetched,
    Origin,
    data_folder,
    files_by_part,
    install,
    is_generations,
    is_present,
    missing_part,
    origin_of,
    read_provenance,
    sha256_of,
    task_files,
)
from r2med.tasks.load import check_files
from r2med.tasks.registry import HubSource, TaskEntry, find_task

_INSTEAD = (
    "Without the hub: `r2med fetch --from ZIP|DIR` takes files you already have, "
    "and `--data-root DIR` reads them where they lie."
)
#: Reasons for some errors of the hub.
_REASONS = {
    GatedRepoError: "it is gated: its owners grant access on its page",
    RepositoryNotFoundError: "the dataset does not exist or is private",
    RevisionNotFoundError: "the revision does not exist",
}


def fetch(
    entries: Iterable[TaskEntry],
    *,
    generations: bool = False,
    force: bool = False,
) -> list[Fetched]:
    """Download the data of tasks, or their published generations; intact local files are kept.

    The generations of a Nano task are those of its full task, which has the same queries.
    `HF_ENDPOINT`, `HF_HUB_OFFLINE` and `HF_TOKEN` are respected; no other token is ever sent.
    """
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings are raised here
    needed = dict.fromkeys(_with_generations(entry) if generations else entry for entry in entries)
    return [_fetch_one(entry, generations=generations, again=force) for entry in needed]


def _with_generations(entry: TaskEntry) -> TaskEntry:
    if entry.hub is None:
        raise UsageError(f"{entry.name} has no published generations.")
    return entry if entry.split is None else find_task(entry.source)


def _find_local(entry: TaskEntry) -> Fetched | None:
    """Return the task that is already in the data folder; None if a file is missing or damaged."""
    folder = data_folder(entry)
    damaged = any(check.passed is False for check in check_files(entry, folder))
    if damaged or not is_present(entry):
        return None
    recorded = read_provenance(folder)
    commits = {recorded[path].commit for path in task_files(entry, folder) if path in recorded}
    return _describe(entry, 0, "files", commits.pop() if len(commits) == 1 else None)


def _describe(entry: TaskEntry, files: int, content: str, commit: str | None) -> Fetched:
    outcome = f"{files} {content} fetched" if files else f"{content} already here"
    at = f" at {commit[:12]}" if commit else ""
    return Fetched(entry.name, data_folder(entry), files, outcome + at, commit)


def _fetch_one(entry: TaskEntry, *, generations: bool, again: bool) -> Fetched:
    """Download one task under a lock, so that two processes do not download the same files."""
    hub, content = entry.hub, "generations" if generations else "files"
    if hub is None:
        return Fetched(entry.name, data_folder(entry), 0, "comes with r2med")
    if not (generations or again) and (local := _find_local(entry)):
        return local
    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise MissingError(
            f"Offline mode is on, so the {content} of {entry.name} cannot be fetched.\n{_INSTEAD}"
        )
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    client = huggingface_hub.HfApi(endpoint=endpoint, token=os.environ.get("HF_TOKEN") or False)
    folder, staged = data_folder(entry), cache_folder("data") / f".fetching-{entry.name}"
    try:
        with lock(staged.with_name(f"{staged.name}.lock")):
            revision = hub.revision or "main"
            commit = client.dataset_info(hub.repo, revision=revision).sha
            if commit is None:
                raise DataError(f"{hub.repo}: the hub names no commit for {revision}.")
            version: dict[str, Any] = {"repo_type": "dataset", "revision": commit}
            listed = client.list_repo_tree(hub.repo, recursive=True, **version)
            files = {item.path: item for item in listed if isinstance(item, RepoFile)}
            sound = {
                path
                for path, origin in ({} if again else read_provenance(folder)).items()
                if origin.commit == commit
                and (folder / path).is_file()
                and sha256_of(folder / path) == origin.sha256
            }
            origins = {}
            for path in _select_files(entry, hub, sorted(files), generations):
                if path not in sound:
                    client.hf_hub_download(hub.repo, path, local_dir=staged, **version)
                    origins[path] = origin_of(staged / path, f"hub:{hub.repo}", commit)
                    _check(entry, hub, files[path], origins[path], staged)
            if origins:
                install(staged, folder, origins)
            shutil.rmtree(staged, ignore_errors=True)
    except R2MedError:
        raise
    except Exception as error:
        raise _explain(error, hub, client.endpoint) from error
    return _describe(entry, len(origins), content, commit)


def _select_files(
    entry: TaskEntry, hub: HubSource, paths: Sequence[str], generations: bool
) -> list[str]:
    """Return the paths to download; DataError if the repository lacks a part of the task."""
    if generations:
        parts = {"generations": [path for path in paths if is_generations(path)]}
        missing = None if parts["generations"] else "generations"
    else:
        parts = files_by_part(entry.split, paths)
        missing = missing_part(entry.split, parts)
    if missing is not None:
        raise DataError(
            f"{hub.repo} holds no {missing} for {entry.name}; found "
            f"{', '.join(paths[:6]) or 'no file at all'}.\n{_INSTEAD}"
        )
    return [path for files in parts.values() for path in files]


def _check(entry: TaskEntry, hub: HubSource, file: RepoFile, origin: Origin, staged: Path) -> None:
    """Raise an error if the checksum of a download differs from the manifest or the hub."""
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


def _explain(error: Exception, hub: HubSource, endpoint: str) -> R2MedError:
    """Convert an error of the hub client to a message for users, without tokens."""
    cause: BaseException = error
    while isinstance(cause, LocalEntryNotFoundError):
        cause = cause.__cause__ or cause.__context__ or OSError(str(error))
    # the library that talks HTTP differs between versions of the client
    library = type(cause).__module__.partition(".")[0]
    if isinstance(cause, HfHubHTTPError):
        reasons = (
            f", {text}" for error_type, text in _REASONS.items() if isinstance(cause, error_type)
        )
        status, advice = cause.response.status_code, "Try again later."
        if status in (401, 403, 404):
            advice = (
                "The benchmark is public; where a dataset is not, HF_TOKEN must hold a valid token "
                "of an account with access."
            )
        return MissingError(
            f"{endpoint}/datasets/{hub.repo} at {hub.revision or 'main'}: "
            f"HTTP {status}{next(reasons, '')}.\n{advice} {_INSTEAD}"
        )
    if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return MissingError(
            f"{cause.filename or cache_folder('data')}: {cause.strerror}.\n"
            "Free some space there, or set R2MED_HOME to a folder on another disk."
        )
    if isinstance(cause, OSError) and cause.filename is not None:
        return MissingError(f"{cause.filename}: {cause.strerror}. Is there room to write?")
    if isinstance(cause, OSError) or library.startswith(("httpx", "httpcore", "requests")):
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return MissingError(
            f"The connection to {endpoint} failed while fetching {hub.repo}: {reason}\n"
            f"Run the same command again to go on from the files that are complete. {_INSTEAD}"
        )
    raise error
