"""Paths: the home folder with all caches, and paths and names that users type."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from r2med.errors import UsageError

#: The cache folders in the home folder and their content, as `r2med cache` lists them.
CACHE_FOLDERS: dict[str, str] = {
    "data": "benchmark data fetched from the hub or unpacked from archives",
    "arrow": "columnar copies of task files, for instant loading",
    "indexes": "BM25 indexes, and indexes of results folders",
    "embeddings": "vectors of encoded texts, by model",
    "rerank-scores": "scores of query and document pairs, by reranker",
    "rerank-traces": "reasoning and answers of language models as rerankers",
    "answers": "answers of language models",
    "expansions": "finished generations for a task's queries, with agents' traces",
}
#: The longest name that `slug` returns.
_MOST_CHARACTERS = 60
#: Folders that may contain answers of paid models; they are cleared only by name.
PAID_FOLDERS = ("embeddings", "answers", "expansions")


def home_folder() -> Path:
    """Return `R2MED_HOME`, or a folder in the user's cache folder."""
    configured = os.environ.get("R2MED_HOME")
    if configured:
        return user_path(configured, "R2MED_HOME")
    if sys.platform != "darwin" and (caches := os.environ.get("XDG_CACHE_HOME")):
        return Path(caches) / "r2med"
    try:
        cache = "Library/Caches" if sys.platform == "darwin" else ".cache"
        return Path.home() / cache / "r2med"
    except RuntimeError:
        raise UsageError(
            "This user has no home folder for data. Set R2MED_HOME to a folder."
        ) from None


def user_path(text: str | Path, option: str = "") -> Path:
    """Return a path with a leading `~` or `~user` replaced by that user's home folder.

    Raises UsageError if the path is not valid on this file system or the user is unknown.
    """
    prefix, shortened = f"{option}: " if option else "", str(text)[:60]
    try:
        path = Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path
    except RuntimeError:
        problem = f"the home folder of {Path(text).parts[0]!r} is not known; write the whole path"
    except (OSError, ValueError) as error:
        problem = f"this is not a valid path ({error.args[-1]})"
    raise UsageError(f"{prefix}{shortened!r}: {problem}.")


def cache_folder(name: str) -> Path:
    """Return the path of a cache folder by name; the folder may not exist yet."""
    assert name in CACHE_FOLDERS, name
    return home_folder() / name


def require_empty(target: Path, option: str = "--out", *, force: bool | None = None) -> None:
    """Raise UsageError if `target` is a file or a folder with content, unless `force`.

    `force=None` means that the command has no `--force`, so the message does not offer it.
    """
    if force or not target.exists():
        return
    if target.is_file() or any(target.iterdir()):
        force_hint = "" if force is None else ", or use --force to overwrite it"
        raise UsageError(
            f"{option} {target} is not empty; nothing was changed. Choose another name{force_hint}."
        )


def slug(text: str) -> str:
    """Return a text as a readable file name without separators."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:_MOST_CHARACTERS] or "system"
