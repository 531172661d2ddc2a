"""Join the strings of many Arrow chunks in one column, without having every text in memory twice.

Concatenating chunks needs memory for the chunks and for the result. Here each chunk is copied and
freed at once. Large columns are written to a file without a name beside the Arrow copies. This file
is mapped into memory, so that its pages can be released.
"""

from __future__ import annotations

from contextlib import suppress
from typing import IO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.paths import cache_folder
from r2med.storage import map_file

#: Texts of more bytes are written to a file and mapped, not held in memory.
LARGE_BYTES = 1 << 28


class TextColumn:
    """Builds a column of strings from chunks without nulls."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0
        self._offsets: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]

    def append(self, chunk: pa.LargeStringArray) -> None:
        """Append the strings of a chunk, which must have no nulls."""
        if not len(chunk):
            return
        _, offsets_buffer, data_buffer = chunk.buffers()
        offsets = np.frombuffer(offsets_buffer, dtype=np.int64)
        offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
        self._offsets.append(offsets[1:] - offsets[0] + self._size)
        if data_buffer is not None:
            self._write(memoryview(data_buffer)[int(offsets[0]) : int(offsets[-1])])

    def finish(self) -> pa.LargeStringArray:
        """Return the whole column; call this after the last `append`."""
        offsets = np.concatenate(self._offsets)
        data = pa.py_buffer(self._buffer)
        if self._file is not None:
            with self._file:
                data = map_file(self._file)
        return pa.LargeStringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), data)

    def _write(self, data: memoryview) -> None:
        if self._file is None and self._size + len(data) > LARGE_BYTES:
            self._move_to_file()
        if self._file is not None:
            try:
                self._file.write(data)
            except OSError:
                self._move_to_memory()
        if self._file is None:
            self._buffer += data
        self._size += len(data)

    def _move_to_file(self) -> None:
        """Continue in a file; stay in memory if no file can be written."""
        import tempfile

        folder = cache_folder("arrow")
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            file.write(self._buffer)
            self._file, self._buffer = file, bytearray()

    def _move_to_memory(self) -> None:
        """Copy the file's content to memory and continue there, because the disk is full."""
        if self._file is not None:
            self._file.seek(0)
            self._buffer = bytearray(self._file.read(self._size))
            self._file.close()
            self._file = None
