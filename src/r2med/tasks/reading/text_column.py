"""One contiguous text column from many chunks, without holding all chunks at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class TextColumn:
    """Grows by appending chunks that have no nulls.

    Written by hand because concatenating Arrow chunks keeps two copies of the corpus alive,
    and numpy's large buffers cost fewer page faults, which is most of the time of a copy.
    """

    def __init__(self, capacity: int) -> None:
        self._bytes: NDArray[np.uint8] = np.empty(max(capacity, 1024), dtype=np.uint8)
        self._used = 0
        self._ends: list[NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]

    def append(self, chunk: pa.LargeStringArray) -> None:
        """Copy the chunk's text behind what is there."""
        if len(chunk) == 0:
            return
        _, offsets_buffer, text = chunk.buffers()
        offsets = np.frombuffer(offsets_buffer, dtype=np.int64)
        offsets = offsets[chunk.offset : chunk.offset + len(chunk) + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        self._reserve(last - first)
        if last > first:
            target = self._bytes[self._used : self._used + last - first]
            target[:] = np.frombuffer(text, dtype=np.uint8)[first:last]
        self._ends.append(offsets[1:] + (self._used - first))
        self._used += last - first

    def finish(self) -> pa.LargeStringArray:
        """The column; raises ArrowInvalid where its bytes are not UTF-8."""
        offsets = np.concatenate(self._ends)
        column = pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(self._bytes[: self._used])
        )
        column.validate(full=True)
        return column

    def _reserve(self, more: int) -> None:
        needed = self._used + more
        if needed > len(self._bytes):
            larger = np.empty(max(needed, 2 * len(self._bytes)), dtype=np.uint8)
            larger[: self._used] = self._bytes[: self._used]
            self._bytes = larger
