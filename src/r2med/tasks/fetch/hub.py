"""Fetching tasks from the hub: at the pinned revision, checked, and in place only when whole."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import huggingface_hub
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
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
    Origin,
    data_folder,
    holds,
    install,
    is_generations,
    missing_parts,
    origin_of,
    parts_of,
    read_provenance,
    sha256_of,
    task_files,
)
from r2med.tasks.registry import HubSource, TaskEntry, find_task

_INSTEAD = (
    "Without the hub: `r2med fetch --from ZIP|DIR` takes files you already have, "
    "and `--data-root DIR` reads them where they lie."
)

#: From a task, its repository and the paths in it to those that are wanted.
_Select = Callable[[TaskEntry, HubSource, Sequence[str]], list[str]]


class Progress(Protocol):
    """Receives the course of a download; several files follow each other."""

    def begin(self, label: str, total: int) -> None:
        """A file of `total` bytes is next."""

    def advance(self, count: int) -> None:
        """So many bytes more have arrived; negative when a part must be fetched again."""


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
    done = {entry.name: None if force and entry.hub else _as_it_is(entry) for entry in wanted}
    _refuse_offline([entry for entry in wanted if done[entry.name] is None], "", offline=offline)
    return [
        done[entry.name] or _fetch_one(entry, progress, _select, again=force) for entry in wanted
    ]


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
    wanted: dict[str, TaskEntry] = {}
    for entry in entries:
        if entry.hub is None:
            raise UsageError(f"{entry.name} has no published generations.")
        full = entry if entry.split is None else find_task(entry.source)
        wanted.setdefault(full.name, full)
    _refuse_offline(list(wanted.values()), "generations of ", offline=offline)
    return [
        _fetch_one(entry, progress, _select_generations, again=force) for entry in wanted.values()
    ]


def _refuse_offline(missing: Sequence[TaskEntry], what: str, *, offline: bool) -> None:
    chosen = os.environ.get("HF_HUB_OFFLINE", "").strip().upper()
    known = chosen in {"1", "ON", "YES", "TRUE"} or huggingface_hub.is_offline_mode()
    if missing and (offline or known):
        names = ", ".join(entry.name for entry in missing)
        raise MissingError(
            f"Offline mode is on, so this cannot be fetched: {what}{names}.\n{_INSTEAD}"
        )


def _as_it_is(entry: TaskEntry) -> Fetched | None:
    """The task as its folder holds it, or None where something is missing or damaged."""
    folder = data_folder(entry)
    if not holds(entry, folder):
        if entry.hub is None:
            raise MissingError(f"{entry.name} comes with r2med, but {folder} lacks its files.")
        return None
    recorded = read_provenance(folder)
    paths = {file.relative_to(folder).as_posix(): file for file in task_files(entry, folder)}
    for path, file in paths.items():
        known = entry.files.get(path) or recorded.get(path)
        if entry.hub and known is not None and known.sha256 != sha256_of(file):
            return None
    commits = {recorded[path].commit for path in paths if path in recorded}
    return Fetched(entry, folder, 0, commits.pop() if len(commits) == 1 else None)


def _fetch_one(
    entry: TaskEntry, progress: Progress | None, select: _Select, *, again: bool
) -> Fetched:
    """Download under a lock: who waited for another finds the files there."""
    if entry.hub is None:
        raise UsageError(f"{entry.name} is not on the hub.")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    client = huggingface_hub.HfApi(endpoint=endpoint, token=os.environ.get("HF_TOKEN") or False)
    folder, staged = data_folder(entry), shelf("data") / f".fetching-{entry.name}"
    try:
        with _quiet(), lock(staged.with_name(f"{staged.name}.lock")):
            commit, files = _list(client, entry, entry.hub, select)
            here = set() if again else _sound(folder, commit)
            origins = {
                file.path: _download(client, entry.hub, commit, file, entry, staged, progress)
                for file in files
                if file.path not in here
            }
            if origins:
                install(staged, folder, origins)
            shutil.rmtree(staged, ignore_errors=True)
    except R2MedError:
        raise
    except Exception as error:
        raise _explained(error, entry.hub, client.endpoint) from error
    return Fetched(entry, folder, len(origins), commit)


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
    client: huggingface_hub.HfApi, entry: TaskEntry, hub: HubSource, select: _Select
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
    parts = parts_of(entry, paths)
    for part, expected in sorted(missing_parts(entry, parts).items()):
        raise _lacking(hub, f"{part} for {entry.name}", expected, paths)
    return [path for files in parts.values() for path in files]


def _select_generations(entry: TaskEntry, hub: HubSource, paths: Sequence[str]) -> list[str]:
    chosen = [path for path in paths if is_generations(path)]
    if not chosen:
        form = f"files named <method>/<llm>/{GENERATIONS}"
        raise _lacking(hub, f"generations for {entry.name}", form, paths)
    return chosen


def _lacking(hub: HubSource, what: str, expected: str, paths: Sequence[str]) -> DataError:
    shown = ", ".join([*paths[:6], "..."][: len(paths)]) or "no file at all"
    return DataError(f"{hub.repo} holds no {what}: expected {expected}, found {shown}.\n{_INSTEAD}")


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
        tqdm_class=_bar_class(progress, f"{entry.name} {file.path}", file.size),
    )
    origin = origin_of(staged / file.path, f"hub:{hub.repo}", commit)
    known = entry.files.get(file.path)
    listed = file.lfs.sha256 if file.lfs is not None else None
    expected, source = (known.sha256, "the manifest") if known else (listed, "the hub's listing")
    if expected in (None, origin.sha256):
        return origin
    (staged / file.path).unlink()
    raise DataError(
        f"{hub.repo}, {file.path}: sha256 is {origin.sha256} ({origin.bytes:,} bytes), "
        f"expected {expected} as in {source}.\n"
        "The download was discarded and the data folder is unchanged. Try again; if it repeats, "
        "a proxy or mirror alters the file."
    )


def _bar_class(progress: Progress | None, label: str, total: int) -> type[tqdm]:
    """What the client calls a bar: it draws nothing itself and tells `progress`."""

    class Bar(tqdm):
        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            super().__init__(disable=True)  # type: ignore[no-untyped-call]
            if progress is not None:
                progress.begin(label, total)
                progress.advance(initial)

        def update(self, n: float | None = 1) -> None:
            if progress is not None:
                progress.advance(int(n or 0))

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
    cause = next((e for e in _chain(error) if not isinstance(e, LocalEntryNotFoundError)), error)
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
    elif isinstance(cause, EntryNotFoundError):
        message = f"{hub.repo}: a listed file is gone from {endpoint}. Try again."
    elif isinstance(cause, OSError) and cause.filename is not None:
        message = f"{cause.filename}: {cause.strerror}. Is there room to write?"
    elif isinstance(cause, (OSError, OfflineModeIsEnabled)) or _is_transport(cause):
        reason = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        message = (
            f"The connection to {endpoint} failed while fetching {hub.repo}: {reason}\n"
            f"Run the same command again to go on from the files that are complete. {_INSTEAD}"
        )
    else:
        raise error
    return MissingError(message)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_transport(error: BaseException) -> bool:
    """Whether the HTTP library raised it; its name differs between versions of the client."""
    return type(error).__module__.split(".")[0].startswith(("httpx", "httpcore", "requests"))
