"""Answers on disk: each is written the moment it arrives, so that nothing is asked or paid twice.

One folder per model, one file per process, one line per answer: `<checksum> <JSON>`. A kill loses
no whole line, and a damaged line is noticed, named and asked for again. A request under way is
locked, so that processes and threads which ask the same share the work.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from r2med.remote.completions import ChatAnswer
from r2med.storage import AppendFile

SUFFIX = ".calls"
#: Seconds after which written answers are brought to the disk itself, against a power cut.
_SYNC_EVERY = 0.5


class _Line(NamedTuple):
    path: Path
    start: int
    size: int
    written: float


class Answers:
    """The answers of one model with one set of parameters; threads may share it."""

    def __init__(
        self,
        root: Path,
        identity: Mapping[str, object],
        *,
        since: float = 0.0,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        text = json.dumps(identity, sort_keys=True)
        slug = re.sub(r"[^a-z0-9.]+", "-", str(identity.get("model", "")).lower()).strip("-")
        self.folder = root / f"{slug[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self._since = since
        self._tell = tell
        self._lines: dict[str, _Line] = {}
        self._read: dict[Path, int] = {}
        self._file = AppendFile(self.folder, SUFFIX, what="answers")
        self._synced = 0.0
        self._guard = threading.RLock()

    def get(self, key: str) -> ChatAnswer | None:
        """The newest answer to a request, unless it is too old."""
        with self._guard:
            line = self._lines.get(key)
            if line is None or line.written < self._since:
                return None
            with line.path.open("rb") as file:
                file.seek(line.start)
                row = self._row(file.read(line.size), line.path, line.start)
            return ChatAnswer(**row["answer"], cached=True) if row else None

    def put(self, key: str, answer: ChatAnswer) -> None:
        """Append an answer; once this returns, no end of the process loses it."""
        now = time.time()
        values = asdict(answer)
        del values["cached"]
        row = json.dumps({"key": key, "written": now, "answer": values}, ensure_ascii=False)
        data = row.encode("utf-8", "replace")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        with self._guard:
            path, start = self._file.append(line)
            self._lines[key] = _Line(path, start, len(line), now)
            self._read[path] = start + len(line)

    def reserve(self, key: str) -> bool:
        """Whether to ask now: nobody else, in this process or another one, is asking or did."""
        if not _asking(self.folder).add(key):
            return False
        self.refresh()
        if self.get(key) is None:
            return True
        self.release(key)
        return False

    def release(self, key: str) -> None:
        """Let others ask."""
        _asking(self.folder).discard(key)

    def sync(self, *, at_once: bool = False) -> None:
        """Bring what was written to the disk itself, unless that was just done."""
        if at_once or time.monotonic() - self._synced > _SYNC_EVERY:
            self._file.sync()
            self._synced = time.monotonic()

    def close(self) -> None:
        """End this process's file."""
        with self._guard:
            self._file.close()

    def refresh(self) -> None:
        """Learn what was written since, by this process or others."""
        with self._guard:
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                start = self._read.get(path, 0)
                if path.stat().st_size > start:
                    self._learn(path, start)

    def _learn(self, path: Path, start: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                row = self._row(line, path, start)
                if row is not None:
                    known = self._lines.get(row["key"])
                    if known is None or known.written <= row["written"]:
                        self._lines[row["key"]] = _Line(path, start, len(line), row["written"])
                start += len(line)
        self._read[path] = start

    def _row(self, line: bytes, path: Path, start: int) -> dict[str, Any] | None:
        """What a line holds; None, and a word about it, where it is not what was written."""
        checksum, _, data = line.rstrip(b"\n").partition(b" ")
        if checksum == b"%08x" % zlib.crc32(data):
            row: dict[str, Any] = json.loads(data)
            return row
        self._tell(
            f"{path}, byte {start}: a stored answer fails its checksum; it is asked for again."
        )
        return None


class _Asking:
    """The requests of one model that are under way, in this process and others.

    Each is a byte of one file that its process has locked; the system drops the locks of a process
    that ends. They belong to the process as a whole and go when it closes the file anywhere, so
    there is one such object per folder (see `_asking`), which stays.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        self._keys: set[str] = set()
        self._guard = threading.Lock()

    def add(self, key: str) -> bool:
        """Whether nobody was asking; a disk without locks knows of this process alone."""
        with self._guard:
            if key in self._keys:
                return False
            with suppress(OSError):
                try:
                    byte = zlib.crc32(key.encode())
                    fcntl.lockf(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                except (BlockingIOError, PermissionError):
                    return False
            self._keys.add(key)
            return True

    def discard(self, key: str) -> None:
        with self._guard, suppress(OSError):
            if key in self._keys:
                self._keys.remove(key)
                fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, zlib.crc32(key.encode()))


#: What this process is asking, by folder and process: a forked child has no part in it.
_UNDER_WAY: dict[tuple[Path, int], _Asking] = {}


def _asking(folder: Path) -> _Asking:
    """The one object of a folder: threads that make two at once both get the one that is kept.

    The file of the other stays open, since closing it would drop the locks of the process.
    """
    key = (folder, os.getpid())
    return _UNDER_WAY.get(key) or _UNDER_WAY.setdefault(key, _Asking(folder / "asking.lock"))
