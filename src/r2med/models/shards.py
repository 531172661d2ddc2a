"""A shard: an append-only file of blocks, each with its own checksums.

A block is a 64-byte header, the addresses of its texts, their token counts (the top bit says
"truncated"), and their vectors, each part starting on a multiple of 64 bytes. One process writes
a shard, any number read it; a block cut short by a kill is simply not there. A damaged block is
named once and marked as empty in its place, so that its neighbours are still found.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from zlib import crc32 as checksum

import numpy as np
from numpy.typing import NDArray

SUFFIX = ".vectors"
#: Bytes of a text's address: enough that two texts never share one.
ADDRESS_BYTES = 16
TRUNCATED = np.uint32(1 << 31)
_HEADER = struct.Struct("<8sHHIIIII")
_MAGIC, _EMPTY = b"r2medvec", b"r2medvoi"
_VERSION = 1
_ALIGNMENT = 64
_DTYPES: tuple[np.dtype[np.floating], ...] = (np.dtype("<f4"), np.dtype("<f2"))


@dataclass(eq=False)
class Block:
    """Some texts of one batch: parallel rows of addresses, token counts and vectors."""

    addresses: NDArray[np.uint8]
    tokens: NDArray[np.uint32]
    vectors: NDArray[np.floating]
    place: Span | None = None
    """Where it was read from; None for one that was just computed."""
    checksum: int = 0

    @cached_property
    def whole(self) -> bool:
        """Whether the vectors are those that were written."""
        return self.place is None or checksum(self.vectors.data) == self.checksum


@dataclass(frozen=True)
class Span:
    """A stretch of a shard."""

    path: Path
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.path}, byte {self.start}"

    def mark_empty(self) -> None:
        """Let later readers skip it; where the shard cannot be written they meet it again."""
        units = (self.end - self.start) // _ALIGNMENT
        with suppress(OSError), self.path.open("r+b") as file:
            file.seek(self.start)
            file.write(_header(_EMPTY, 0, units, 0, 0, 0))


def read_blocks(path: Path, start: int) -> Iterator[tuple[Block | Span, int]]:
    """The blocks from a byte on, or the places of damaged ones, each with the byte after it.

    A block that is not whole yet ends the shard.
    """
    size = path.stat().st_size
    if size <= start:
        return
    with path.open("rb") as file:
        view = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    while start + _ALIGNMENT <= size:
        fields = _fields(view, start)
        if fields is None:
            place = Span(path, start, _next_header(view, start + _ALIGNMENT))
            yield place, place.end
            start = place.end
            continue
        magic, _, dtype, count, width, rows_sum, vectors_sum, _ = fields
        if magic == _EMPTY:
            start += count * _ALIGNMENT
            continue
        rows = start + _ALIGNMENT
        middle = rows + count * ADDRESS_BYTES
        vectors = rows + _aligned(count * (ADDRESS_BYTES + 4))
        end = vectors + _aligned(count * width * _DTYPES[dtype].itemsize)
        if end > size:
            return
        place = Span(path, start, end)
        start = end
        if checksum(view[rows : middle + count * 4]) != rows_sum:
            yield place, end
            continue
        numbers = np.frombuffer(view, _DTYPES[dtype], count * width, vectors)
        block = Block(
            addresses=np.frombuffer(view[rows:middle], np.uint8).reshape(count, ADDRESS_BYTES),
            tokens=np.frombuffer(view, np.uint32, count, middle),
            vectors=numbers.reshape(count, width),
            place=place,
            checksum=vectors_sum,
        )
        yield block, end


def _fields(view: memoryview, start: int) -> tuple[bytes, int, int, int, int, int, int, int] | None:
    """A header's fields; None where they are not what was written."""
    head = view[start : start + _HEADER.size]
    fields: tuple[bytes, int, int, int, int, int, int, int] = _HEADER.unpack(head)
    sound = checksum(head[:-4]) == fields[-1] and fields[1] == _VERSION
    return fields if sound and fields[0] in (_MAGIC, _EMPTY) else None


def _next_header(view: memoryview, start: int) -> int:
    """The first byte from `start` on at which a sound header stands, or the end of the shard."""
    starts = range(start, len(view) - _ALIGNMENT + 1, _ALIGNMENT)
    return next((each for each in starts if _fields(view, each)), len(view))


def packed(block: Block) -> bytes:
    """A block as its bytes in a shard."""
    rows = block.addresses.tobytes() + block.tokens.tobytes()
    vectors = block.vectors.tobytes()
    dtype, (count, width) = _DTYPES.index(block.vectors.dtype), block.vectors.shape
    head = _header(_MAGIC, dtype, count, width, checksum(rows), checksum(vectors))
    return b"".join(part.ljust(_aligned(len(part)), b"\0") for part in (head, rows, vectors))


def _header(magic: bytes, dtype: int, count: int, width: int, rows: int, vectors: int) -> bytes:
    head = _HEADER.pack(magic, _VERSION, dtype, count, width, rows, vectors, 0)[:-4]
    return head + struct.pack("<I", checksum(head))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
