"""Where data and caches live: one folder, so that a user can see, move and clear it."""

from __future__ import annotations

import os
import re
import sys
from contextlib import suppress
from pathlib import Path

from r2med.errors import UsageError

#: The shelves of the home folder and what each holds; `r2med cache` lists exactly these.
SHELVES: dict[str, str] = {
    "data": "benchmark data fetched from the hub or unpacked from archives",
    "arrow": "columnar copies of task files, for instant loading",
    "indexes": "BM25 indexes",
    "embeddings": "vectors of encoded texts, by model",
    "rerank-scores": "scores of query and document pairs, by reranker",
    "rerank-traces": "what language models thought and answered as rerankers",
    "answers": "answers of language models, each kept as it arrived",
    "expansions": "finished generations for a task's queries, with agents' traces",
}
#: Characters of a text that a folder's name keeps.
_READABLE = 60
#: Shelves that may hold what a paid model answered; they are cleared only by name.
PAID = ("embeddings", "answers", "expansions")


def home() -> Path:
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
    where, shown = f"{option}: " if option else "", str(text)[:60]
    try:
        path = Path(text).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
            path.lstat()
        return path
    except RuntimeError:
        problem = f"there is no home folder of {Path(text).parts[0]!r} here; write the path in full"
    except (OSError, ValueError) as error:
        problem = f"no file can have this name ({error.args[-1]})"
    raise UsageError(f"{where}{shown!r}: {problem}.")


def shelf(name: str) -> Path:
    """The folder of one kind of cached thing; it may not exist yet."""
    assert name in SHELVES, name
    return home() / name


def slug(text: str) -> str:
    """A folder name that cannot leave its folder and reads like the text it stands for."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:_READABLE] or "system"
