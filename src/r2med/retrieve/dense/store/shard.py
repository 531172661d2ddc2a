"""A shard: an append-only file of blocks, each with its own checksums.

A block is a 64-byte header, the addresses of its texts, their token counts (the top bit says
"truncated"), and their vectors, each part starting on a multiple of 64 bytes. One process writes
a shard, any number read it; a block cut short by a kill is simply not there.
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.retrieve.dense.form import ADDRESS_BYTES

SUFFIX = ".vectors"
TRUNCATED = np.uint32(1 << 31)
_HEADER = struct.Struct("<8sHHIIIII")
_MAGIC = b"r2medvec"
_VERSION = 1
_ALIGNMENT = 64
_DTYPES: tuple[np.dtype[np.floating], ...] = (np.dtype("<f4"), np.dtype("<f2"))


@dataclass(frozen=True, eq=False)
class Block:
    """Some texts of one batch: parallel rows of addresses, token counts and vectors."""

    addresses: NDArray[np.uint8]
    tokens: NDArray[np.uint32]
    vectors: NDArray[np.floating]
    checksum: int | None = None
    """Of the vectors, where they come from a file."""
    source: str = "memory"

    def is_whole(self) -> bool:
        """Whether the vectors are those that were written."""
        return self.checksum is None or zlib.crc32(self.vectors.data) == self.checksum


class Writer:
    """The one writer of a new shard; the file appears with the first block."""

    def __init__(self, folder: Path, what: str = "embeddings") -> None:
        self.folder = folder
        self.what = what
        self._file: int | None = None
        self._path = folder / f"{time.time_ns():020d}-{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"

    def append(self, block: Block) -> None:
        """Write a block; once this returns, a kill of the process cannot lose it."""
        try:
            if self._file is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            data = memoryview(_packed(block))
            while data:
                data = data[os.write(self._file, data) :]
        except OSError as problem:
            raise MissingError(
                f"{self._path}: the {self.what} cannot be written ({problem.strerror}).\n"
                "Make room, or set R2MED_HOME to a folder with more; what was written is kept."
            ) from None

    def close(self) -> None:
        """Bring what was written to the disk itself."""
        if self._file is not None:
            os.fsync(self._file)
            os.close(self._file)
            self._file = None


def read_blocks(path: Path, start: int) -> Iterator[tuple[Block, int]]:
    """The whole blocks from a byte on, each with the byte after it; stops at the first bad one."""
    size = path.stat().st_size
    if size <= start:
        return
    with path.open("rb") as file:
        mapped = memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    while start + _ALIGNMENT <= size:
        found = _block(mapped, start, path)
        if found is None:
            return
        yield found
        start = found[1]


def _block(mapped: memoryview, start: int, path: Path) -> tuple[Block, int] | None:
    head = mapped[start : start + _HEADER.size]
    magic, version, dtype, count, width, rows_sum, vectors_sum, head_sum = _HEADER.unpack(head)
    whole = zlib.crc32(head[: _HEADER.size - 4]) == head_sum
    if magic != _MAGIC or version != _VERSION or not whole or dtype >= len(_DTYPES):
        return None
    rows = start + _ALIGNMENT
    vectors = rows + _aligned(count * (ADDRESS_BYTES + 4))
    end = vectors + _aligned(count * width * _DTYPES[dtype].itemsize)
    middle = rows + count * ADDRESS_BYTES
    if end > len(mapped) or zlib.crc32(mapped[rows : middle + count * 4]) != rows_sum:
        return None
    block = Block(
        addresses=np.frombuffer(mapped[rows:middle], np.uint8).reshape(count, ADDRESS_BYTES),
        tokens=np.frombuffer(mapped, np.uint32, count, middle),
        vectors=_matrix(mapped, vectors, (count, width), _DTYPES[dtype]),
        checksum=vectors_sum,
        source=f"{path}, byte {start}",
    )
    return block, end


def _matrix(
    mapped: memoryview, start: int, shape: tuple[int, int], dtype: np.dtype[np.floating]
) -> NDArray[np.floating]:
    flat: NDArray[np.floating] = np.frombuffer(mapped, dtype, shape[0] * shape[1], start)
    return flat.reshape(shape)


def _packed(block: Block) -> bytes:
    rows = block.addresses.tobytes() + block.tokens.tobytes()
    vectors = block.vectors.tobytes()
    count, width = block.vectors.shape
    head = _HEADER.pack(
        _MAGIC,
        _VERSION,
        _DTYPES.index(block.vectors.dtype),
        count,
        width,
        zlib.crc32(rows),
        zlib.crc32(vectors),
        0,
    )[:-4]
    head += struct.pack("<I", zlib.crc32(head))
    return b"".join(part.ljust(_aligned(len(part)), b"\0") for part in (head, rows, vectors))


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
