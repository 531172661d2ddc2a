"""Answers on disk: each is written the moment it arrives, so that nothing is asked or paid twice.

A folder a model, a file a process, a line an answer: `<checksum> <JSON>`. Appending needs no lock,
a kill loses no whole line, and a damaged line is noticed and asked for again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from r2med.atomic import atomic_file
from r2med.errors import MissingError
from r2med.remote.exchange import ChatAnswer, ChatRequest

SUFFIX = ".calls"
MODEL_FILE = "model.json"
#: Seconds after which written answers are brought to the disk itself, against a power cut.
_SYNC_EVERY = 0.5


@dataclass(frozen=True)
class _Place:
    path: Path
    start: int
    size: int
    written: float


class Calls:
    """The answers of one model with one set of parameters."""

    def __init__(self, root: Path, identity: Mapping[str, object]) -> None:
        told = json.dumps(identity, sort_keys=True)
        slug = re.sub(r"[^a-z0-9.]+", "-", str(identity.get("model", "")).lower()).strip("-")
        self.folder = root / f"{slug[:40]}-{hashlib.sha256(told.encode()).hexdigest()[:16]}"
        self.damaged = 0
        self._identity = identity
        self._places: dict[str, _Place] = {}
        self._read: dict[Path, int] = {}
        self._file: int | None = None
        self._path = self.folder
        self._synced = 0.0
        self.refresh()

    def key(self, request: ChatRequest) -> str:
        """The address of a request: its conversation, sample number and own limits."""
        told = json.dumps(asdict(request), sort_keys=True)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def get(self, key: str, *, since: float = 0.0) -> ChatAnswer | None:
        """The newest answer to a request, unless it is older than `since`."""
        place = self._places.get(key)
        if place is None or place.written < since:
            return None
        with place.path.open("rb") as file:
            file.seek(place.start)
            row = _row(file.read(place.size))
        if row is None:
            self.damaged += 1
            del self._places[key]
            return None
        return ChatAnswer(**{**row["answer"], "cached": True})

    def put(self, key: str, answer: ChatAnswer) -> None:
        """Append an answer; once this returns, no end of the process loses it."""
        now = time.time()
        told = asdict(answer)
        del told["cached"]
        row = json.dumps({"key": key, "written": now, "answer": told}, ensure_ascii=False)
        data = row.encode("utf-8", "replace")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        try:
            file = self._open()
            start = os.lseek(file, 0, os.SEEK_END)
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError as problem:
            raise MissingError(
                f"{self._path}: an answer cannot be written ({problem.strerror}).\n"
                "Make room there, or set R2MED_HOME to a folder with more; what is written is kept."
            ) from None
        self._places[key] = _Place(self._path, start, len(line), now)
        self._read[self._path] = start + len(line)
        if now - self._synced > _SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Bring what was written to the disk itself."""
        if self._file is not None:
            os.fsync(self._file)
            self._synced = time.time()

    def close(self) -> None:
        """End this process's file."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None

    def refresh(self) -> None:
        """Learn what other processes have written since."""
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
                row = _row(line)
                if row is None:
                    self.damaged += 1
                else:
                    self._remember(row, _Place(path, start, len(line), row["written"]))
                start += len(line)
        self._read[path] = start

    def _remember(self, row: Mapping[str, Any], place: _Place) -> None:
        key = str(row["key"])
        known = self._places.get(key)
        if known is None or known.written <= place.written:
            self._places[key] = place

    def _open(self) -> int:
        if self._file is None:
            told = self.folder / MODEL_FILE
            if not told.exists():
                with atomic_file(told) as draft:
                    draft.write_text(json.dumps(self._identity, indent=2) + "\n", encoding="utf-8")
            self._path = self.folder / f"{time.time_ns():020d}-{os.getpid()}{SUFFIX}"
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
            self._file = os.open(self._path, flags, 0o666)
        return self._file


def _row(line: bytes) -> dict[str, Any] | None:
    checksum, _, data = line.rstrip(b"\n").partition(b" ")
    try:
        if int(checksum, 16) != zlib.crc32(data):
            return None
        row: dict[str, Any] = json.loads(data)
    except ValueError:
        return None
    return row
