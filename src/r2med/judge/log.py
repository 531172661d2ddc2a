"""Append-only logs of JSON records, one checksummed line each.

Every process appends to a separate file and flushes it to disk before `append` returns, so a
kill at any moment loses no record that was acknowledged, and writers never wait for each other.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from r2med.storage import AppendFile

Warn = Callable[[str], None]


class RecordLog:
    """The records of one folder, from all processes that write there.

    Not thread-safe: callers that share a log between threads need a lock.
    """

    def __init__(self, folder: Path, suffix: str, *, content: str, warn: Warn) -> None:
        self.folder = folder
        self._suffix = suffix
        self._warn = warn
        self._file = AppendFile(folder, suffix, content=content)
        self._sizes: dict[Path, int] = {}
        self._records: list[dict[str, Any]] = []

    def append(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Write records and flush them to disk."""
        if not records:
            return
        self._file.append(b"".join(_to_line(record) for record in records))
        self._file.sync()

    def read(self) -> list[dict[str, Any]]:
        """Return all records, oldest first, including those of other processes.

        A damaged line is reported and left out; an unfinished last line is a write in progress.
        """
        added = False
        for path in sorted(self.folder.glob(f"*{self._suffix}")):
            start = self._sizes.get(path, 0)
            if path.stat().st_size > start:
                added |= self._read_from(path, start)
        if added:
            self._records.sort(key=lambda record: int(record["written"]))
        return self._records

    def close(self) -> None:
        """Close this process's file; a later `append` starts a new file."""
        self._file.close()

    def _read_from(self, path: Path, start: int) -> bool:
        with path.open("rb") as file:
            file.seek(start)
            content = file.read()
        finished = content.rpartition(b"\n")[0]
        for line in finished.split(b"\n") if finished else ():
            record = _from_line(line)
            if record is None:
                self._warn(
                    f"{path}, byte {start}: a stored record fails its checksum and is left out."
                )
            else:
                self._records.append(record)
            start += len(line) + 1
        self._sizes[path] = start
        return bool(finished)


def _to_line(record: Mapping[str, Any]) -> bytes:
    stamped = {**record, "written": time.time_ns()}
    data = json.dumps(stamped, ensure_ascii=False).encode("utf-8", "replace")
    return b"%08x %s\n" % (zlib.crc32(data), data)


def _from_line(line: bytes) -> dict[str, Any] | None:
    checksum, _, data = line.partition(b" ")
    if checksum != b"%08x" % zlib.crc32(data):
        return None
    try:
        record = json.loads(data)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "written" in record else None
