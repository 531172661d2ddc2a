"""The cache of model answers: each answer is written when it arrives and never paid for twice.

There is one folder per model, one file per process and one line per answer: `<checksum> <JSON>`.
A killed process loses no complete line. A damaged line is reported and its request is sent again.
Requests in progress are locked, so that threads and processes never send the same request twice.
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
#: Seconds between two calls of fsync, which protects written answers against a power cut.
_SYNC_EVERY = 0.5


class _Line(NamedTuple):
    """The position of an answer in a file, and the time when it was written."""

    path: Path
    start: int
    size: int
    written: float


class Answers:
    """The cached answers of one model with one set of parameters; safe to share among threads.

    Answers written before `since` (seconds since the epoch) are ignored.
    """

    def __init__(
        self,
        root: Path,
        identity: Mapping[str, object],
        *,
        since: float = 0.0,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        text = json.dumps(identity, sort_keys=True)
        slug = re.sub(r"[^a-z0-9.]+", "-", str(identity.get("model", "")).lower()).strip("-")
        self.folder = root / f"{slug[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self._since = since
        self._warn = warn
        self._lines: dict[str, _Line] = {}
        self._bytes_read: dict[Path, int] = {}
        self._file = AppendFile(self.folder, SUFFIX, content="answers")
        self._last_sync = 0.0
        self._guard = threading.RLock()

    def get(self, key: str) -> ChatAnswer | None:
        """Return the newest answer to a request; None if there is none or it is too old."""
        with self._guard:
            line = self._lines.get(key)
            if line is None or line.written < self._since:
                return None
            with line.path.open("rb") as file:
                file.seek(line.start)
                row = self._parse_line(file.read(line.size), line.path, line.start)
            return ChatAnswer(**row["answer"], cached=True) if row else None

    def put(self, key: str, answer: ChatAnswer) -> None:
        """Store an answer; once this returns, a killed process does not lose it."""
        now = time.time()
        values = asdict(answer)
        del values["cached"]
        row = json.dumps({"key": key, "written": now, "answer": values}, ensure_ascii=False)
        data = row.encode("utf-8", "replace")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        with self._guard:
            path, start = self._file.append(line)
            self._lines[key] = _Line(path, start, len(line), now)
            self._bytes_read[path] = start + len(line)

    def reserve(self, key: str) -> bool:
        """Lock a request and return True; return False if it has an answer or is locked."""
        requests = _find_requests_in_progress(self.folder)
        if not requests.lock(key):
            return False
        self.refresh()
        if self.get(key) is None:
            return True
        requests.unlock(key)
        return False

    def release(self, key: str) -> None:
        """Unlock a request."""
        _find_requests_in_progress(self.folder).unlock(key)

    def sync(self, *, at_once: bool = False) -> None:
        """Flush and fsync this process's file, at most twice a second unless `at_once`."""
        if at_once or time.monotonic() - self._last_sync > _SYNC_EVERY:
            self._file.sync()
            self._last_sync = time.monotonic()

    def close(self) -> None:
        """Close this process's file."""
        with self._guard:
            self._file.close()

    def refresh(self) -> None:
        """Read the lines that any process has written since the last refresh."""
        with self._guard:
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                start = self._bytes_read.get(path, 0)
                if path.stat().st_size > start:
                    self._read_new_lines(path, start)

    def _read_new_lines(self, path: Path, start: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                row = self._parse_line(line, path, start)
                if row is not None:
                    newest = self._lines.get(row["key"])
                    if newest is None or newest.written <= row["written"]:
                        self._lines[row["key"]] = _Line(path, start, len(line), row["written"])
                start += len(line)
        self._bytes_read[path] = start

    def _parse_line(self, line: bytes, path: Path, start: int) -> dict[str, Any] | None:
        """Return the JSON object of a line; None, with a warning, if its checksum is wrong."""
        checksum, _, data = line.rstrip(b"\n").partition(b" ")
        if checksum == b"%08x" % zlib.crc32(data):
            row: dict[str, Any] = json.loads(data)
            return row
        self._warn(
            f"{path}, byte {start}: a stored answer fails its checksum; the request is sent again."
        )
        return None


class _RequestsInProgress:
    """Locks for the requests to one model that are in progress, in any process.

    A lock is one locked byte of a shared file; the operating system drops the locks of a process
    that ends. POSIX drops all locks of a process as soon as it closes any handle of the file, so
    there is one such object per folder, and it is never closed.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o666)
        self._keys: set[str] = set()
        self._guard = threading.Lock()

    def lock(self, key: str) -> bool:
        """Lock a request; return False if it is locked already.

        On a file system without locks, requests of other processes are not noticed.
        """
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

    def unlock(self, key: str) -> None:
        with self._guard, suppress(OSError):
            if key in self._keys:
                self._keys.remove(key)
                fcntl.lockf(self._handle, fcntl.LOCK_UN, 1, zlib.crc32(key.encode()))


#: By folder and process id, because a forked child does not inherit the locks of its parent.
_IN_PROGRESS: dict[tuple[Path, int], _RequestsInProgress] = {}


def _find_requests_in_progress(folder: Path) -> _RequestsInProgress:
    """Return the object that locks requests in a folder for this process.

    If two threads create it at the same time, both get the first object. The file of the second
    object stays open, since closing it would drop the locks of the process.
    """
    key = (folder, os.getpid())
    existing = _IN_PROGRESS.get(key)
    if existing is not None:
        return existing
    return _IN_PROGRESS.setdefault(key, _RequestsInProgress(folder / "asking.lock"))
