"""Files as blocks of whole lines: plain or gzipped, decompressed while the last block is parsed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from r2med.errors import DataError

#: Large enough to parse on several threads, small enough that memory is reused between blocks.
BLOCK_BYTES = 1 << 22
_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_GZIP_FORMAT = 31


def blocks(path: Path) -> Iterator[bytes]:
    """The bytes of a file, cut at line ends; a byte order mark is dropped.

    Gzip is told by its first bytes, not by the name, since browsers and tools unpack or pack
    files without renaming them.
    """
    with file_errors(path):
        large = path.stat().st_size > BLOCK_BYTES // 4
        found = _whole_lines(_content(path))
        yield from _ahead(found) if large else found


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, without their line ends; blank ones are left out but counted."""
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if line.strip():
                yield number, line


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Say which file could not be read, and why, instead of what the system said."""
    try:
        yield
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, expected a file.") from None
    except PermissionError:
        raise DataError(f"{path} cannot be read: permission denied.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def _content(path: Path) -> Iterator[bytes]:
    with path.open("rb", buffering=0) as handle:
        start = handle.read(len(_GZIP))
        handle.seek(0)
        if start == _GZIP:
            yield from _inflated(iter(lambda: handle.read(BLOCK_BYTES // 4), b""), path)
        else:
            yield from iter(lambda: handle.read(BLOCK_BYTES), b"")


def _inflated(pieces: Iterator[bytes], path: Path) -> Iterator[bytes]:
    stream = zlib.decompressobj(_GZIP_FORMAT)
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if stream.eof:
                    rest = rest.lstrip(b"\0")
                    stream = zlib.decompressobj(_GZIP_FORMAT) if rest else stream
                yield stream.decompress(rest)
                rest = stream.unused_data if stream.eof and rest else b""
    except zlib.error as error:
        raise DataError(
            f"{path}: the gzip data is damaged ({error}).\nGet the file again."
        ) from error
    if not stream.eof:
        raise DataError(f"{path}: the gzip data is cut off before its end.\nGet the file again.")


def _whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    parts: list[bytes] = []
    first = True
    for piece in pieces:
        cut = piece.rfind(b"\n") + 1
        if cut:
            block = b"".join([*parts, piece[:cut]])
            yield block.removeprefix(_BOM) if first else block
            first, parts = False, []
        parts.append(piece[cut:])
    block = b"".join(parts)
    block = block.removeprefix(_BOM) if first else block
    if block:
        yield block


def _ahead(found: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, the next one being read by another thread meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, found, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, found, None)
            yield block
