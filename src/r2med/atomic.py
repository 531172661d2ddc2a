"""Writes that are whole or absent: a kill at any moment leaves no half-written entry."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path beside `target` to write to; it takes the target's place on success only."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        _sync(draft)
        draft.chmod(0o666 & ~_umask())
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder to fill; it becomes `target`, replacing what was there, on success.

    Two writers of the same content-addressed entry may race: the last one to finish stays.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        yield draft
        for file in draft.rglob("*"):
            if file.is_file():
                _sync(file)
        draft.chmod(0o777 & ~_umask())
        _replace_folder(draft, target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace_folder(draft: Path, target: Path) -> None:
    retired = draft.with_name(draft.name + ".old")
    with suppress(FileNotFoundError):
        target.replace(retired)
    try:
        draft.replace(target)
    finally:
        shutil.rmtree(retired, ignore_errors=True)


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
