"""Where data and caches live: one folder, so that a user can see, move and clear it."""

from __future__ import annotations

import os
import re
import sys
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
#: What common file systems allow, in bytes.
_LONGEST_NAME = 255
_LONGEST_PATH = 4095
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
    where = f"{option}: " if option else ""
    longest = max((len(os.fsencode(part)) for part in Path(text).parts), default=0)
    if longest > _LONGEST_NAME or len(os.fsencode(text)) > _LONGEST_PATH or "\0" in str(text):
        raise UsageError(
            f"{where}{str(text)[:60]!r}...: no file can have this name: it holds a zero byte, or "
            f"is longer than {_LONGEST_NAME} bytes ({_LONGEST_PATH} for a whole path)."
        )
    try:
        return Path(text).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{where}{text}: there is no home folder of {Path(text).parts[0]!r} here. "
            "Write the path in full."
        ) from None


def shelf(name: str) -> Path:
    """The folder of one kind of cached thing; it may not exist yet."""
    assert name in SHELVES, name
    return home() / name


def slug(text: str) -> str:
    """A folder name that cannot leave its folder and reads like the text it stands for."""
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-.")[:_READABLE] or "system"
