"""Files that only grow, one per process: no lock is needed, and a kill loses no whole record."""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path

from r2med.errors import MissingError


class AppendFile:
    """A file of this process alone; it is made when the first record is written."""

    def __init__(
        self, folder: Path, suffix: str, *, what: str, elsewhere: str = "set R2MED_HOME"
    ) -> None:
        self.folder = folder
        self.suffix = suffix
        self.what = what
        self.elsewhere = elsewhere
        self._handle: int | None = None
        self._path = folder
        self._size = 0

    def append(self, record: bytes) -> tuple[Path, int]:
        """Write a record and say where it begins; once this returns, a kill cannot lose it.

        A record that could not be written whole ends the file: the next one begins another, so
        that half a record never stands in the middle of a file.
        """
        start = self._size
        try:
            handle = self._handle if self._handle is not None else self._create()
            rest = memoryview(record)
            while rest:
                rest = rest[os.write(handle, rest) :]
        except OSError as problem:
            self._abandon()
            raise MissingError(
                f"{self._path}: the {self.what} cannot be written ({problem.strerror}).\n"
                f"Make room, or {self.elsewhere} to a folder with more; what was written is kept."
            ) from None
        except BaseException:
            self._abandon()
            raise
        self._size = start + len(record)
        return self._path, start

    def sync(self) -> None:
        """Bring what was written to the disk itself, against a power cut."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """End the file; a later record begins another."""
        self.sync()
        self._abandon()

    def _create(self) -> int:
        name = f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}{self.suffix}"
        self._path = self.folder / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        return self._handle

    def _abandon(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle, self._size = None, 0
