"""Upload a Nano folder to the hub, with the user's own token and nothing but the recorded files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # lazy exports
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)

from r2med.errors import DamagedError, MissingError, UsageError
from r2med.nano.staging import RECORD, recorded_files
from r2med.tasks.hub_errors import is_transport
from r2med.tasks.provenance import sha256_of


def push(folder: str | Path, repo: str, *, private: bool = True, message: str = "") -> str:
    """Upload the recorded files of a Nano folder and return the commit's address.

    The token is `HF_TOKEN`; a folder whose files were changed since it was built is refused.
    """
    source = Path(folder)
    files = _checked(source)
    token = os.environ.get("HF_TOKEN")
    if not token:
        raise MissingError(
            "HF_TOKEN is not set: uploading needs a token with the right to write.\n"
            "Make one in the settings of your hub account, then: export HF_TOKEN=..."
        )
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise UsageError(f"{repo!r} is not a dataset repository, expected owner/name.")
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or None
    client = huggingface_hub.HfApi(endpoint=endpoint, token=token)
    try:
        with _bars_on_a_terminal_only():
            client.create_repo(repo, repo_type="dataset", private=private, exist_ok=True)
            commit = client.upload_folder(
                repo_id=repo,
                repo_type="dataset",
                folder_path=source,
                allow_patterns=[*files, RECORD],
                commit_message=message or "Add Nano tasks",
            )
    except HfHubHTTPError as error:
        raise _refused(repo, client.endpoint, error.response.status_code) from error
    except Exception as error:
        if not (isinstance(error, OSError | RuntimeError) or is_transport(error)):
            raise
        raise MissingError(
            f"{repo}: the connection to {client.endpoint} failed while uploading "
            f"({_line(error)}). Run the same command again."
        ) from error
    return str(commit.commit_url)


@contextmanager
def _bars_on_a_terminal_only() -> Iterator[None]:
    """The client draws its progress into pipes, too, unless told not to."""
    silent = not sys.stderr.isatty() and not are_progress_bars_disabled()
    if silent:
        disable_progress_bars()
    try:
        yield
    finally:
        if silent:
            enable_progress_bars()


def _refused(repo: str, endpoint: str, status: int) -> MissingError:
    told = f"{repo}: {endpoint} refused the upload (HTTP {status})."
    if status in (401, 403, 404):
        owner = repo.partition("/")[0]
        return MissingError(
            f"{told}\nThe token in HF_TOKEN needs the right to write to {owner}'s repositories."
        )
    return MissingError(f"{told} Try later.")


def _checked(folder: Path) -> list[str]:
    files = recorded_files(folder)
    if not files:
        raise MissingError(
            f"{folder} is not a folder that `r2med nano build` made: it has no {RECORD}."
        )
    for path, digest in files.items():
        if not (folder / path).is_file():
            raise DamagedError(f"{folder / path}: missing, though {RECORD} names it.")
        if sha256_of(folder / path) != digest:
            raise DamagedError(
                f"{folder / path}: changed since the folder was built. Build it again with --force."
            )
    return sorted(files)


def _line(error: BaseException) -> str:
    """The innermost reason in one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
