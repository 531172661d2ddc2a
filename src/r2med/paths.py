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
#: Characters of a text that a folder's name keeps.
_READABLE = 60
#: Folders that may contain answers of paid models; they are cleared only by name.
PAID_FOLDERS = ("embeddings", "answers", "expansions")


def home_folder() -> Path:
    """`R2MED_HOME`, or the cache folder of the user."""
    chosen = os.environ.get("R2MED_HOME")
    if chosen:
        return user_path(chosen, "R2MED_HOME")
    if sys.platform != "darwin" and (caches := os.environ.get("XDG_CACHE_HOME")):
        return Path(caches) / "r2med"
    try:
        usual = "Library/Caches" if sys.platform == "darwin" else ".cache"
        return Path.home() / usual / "r2med"
    except RuntimeError:
        raise UsageError(
            "This user has no home folder to keep data in. Set R2MED_HOME to a folder."
        ) from None


def user_path(text: str | Path, option: str = "") -> Path:
    """A path with a leading `~` or `~user` replaced by that user's home folder.

    A path that no file system could hold is a UsageError, like a home folder that is not there.
    """
    where, shortened = f"{option}: " if option else "", str(text)[:60]
    try:
        path = Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path
    except RuntimeError:
        problem = f"there is no home folder of {Path(text).parts[0]!r} here; write the path in full"
    except (OSError, ValueError) as error:
        problem = f"no file can have this name ({error.args[-1]})"
    raise UsageError(f"{where}{shortened!r}: {problem}.")


def cache_folder(name: str) -> Path:
    """A cache folder by name; it may not exist yet."""
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
    """A file name made from a text: readable, and without separators."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:_READABLE] or "system"
