"""Files as blocks of whole lines: plain, gzip or zstd, streamed, and refused when too large.

A packed file of a few megabytes can unpack to more than the memory of any machine, so what is
unpacked is bounded: by line, in total, and in relation to the packed size. `LIMITS` has the
bounds and the environment variables that change them.
"""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from r2med.errors import DataError, UsageError

#: Large enough to parse on several threads, small enough that memory is reused between blocks.
BLOCK_BYTES = 1 << 22
#: What a file may unpack to whatever its packed size: a ratio says nothing about small files.
HARMLESS_BYTES = 1 << 26

MAX_LINE, MAX_FILE, MAX_RATIO = "R2MED_MAX_LINE_BYTES", "R2MED_MAX_FILE_BYTES", "R2MED_MAX_RATIO"
#: The whole benchmark with all published generations is well below these.
LIMITS = {MAX_LINE: 1 << 26, MAX_FILE: 1 << 33, MAX_RATIO: 100}

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def blocks(path: Path, *, any_size: bool = False) -> Iterator[bytes]:
    """The bytes of a file, cut at line ends; a byte order mark is dropped.

    Gzip and zstd are recognised by their first bytes, not by the name, since browsers and tools
    unpack or pack files without renaming them. `any_size` is for callers that keep no block: the
    whole may then be larger than a file may be, but what is unpacked stays in relation to it.
    """
    with file_errors(path), closing(content(path)) as pieces:
        yield from _whole_lines(pieces, path, any_size)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, without their line ends; blank ones are left out but counted."""
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if line.strip():
                yield number, line


def limit(name: str) -> int:
    """A limit as the environment sets it, or as it is by default."""
    chosen = os.environ.get(name)
    if chosen is None:
        return LIMITS[name]
    if not chosen.isdecimal() or int(chosen) == 0:
        raise UsageError(f"{name} is {chosen!r}, expected a whole number above 0.")
    return int(chosen)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Say which file could not be read, and why, instead of what the system said."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


@contextmanager
def arrow_errors(path: Path, form: str = "Parquet") -> Iterator[None]:
    """The same for files that Arrow reads; one that it cannot read is damaged or something else."""
    import pyarrow as pa

    try:
        with file_errors(path):
            yield
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path}: not a readable {form} file ({reason}).") from error


def content(path: Path) -> Generator[bytes, None, None]:
    """The bytes of a file in pieces of bounded size, unpacked where it is packed."""
    with path.open("rb", buffering=0) as handle:
        start = handle.read(len(_ZSTD))
        handle.seek(0)
        if start == _ZSTD:
            import pyarrow as pa

            yield from _unpacked(pa.CompressedInputStream(handle, "zstd"), "zstd", handle, path)
        elif start.startswith(_GZIP):
            yield from _unpacked(gzip.GzipFile(fileobj=handle), "gzip", handle, path)
        else:
            yield from iter(lambda: handle.read(BLOCK_BYTES), b"")


def _unpacked(stream: Any, form: str, packed: FileIO, path: Path) -> Iterator[bytes]:
    """Refuse what unpacks to more than the packed bytes read so far explain."""
    size, most = 0, limit(MAX_RATIO)
    try:
        while piece := stream.read(BLOCK_BYTES):
            size += len(piece)
            if size > HARMLESS_BYTES and size > most * packed.tell():
                why = f"it unpacks to more than {most} times its size, as no text does"
                raise _refusal(path, why, MAX_RATIO)
            yield piece
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: the {form} data is cut off or damaged ({error}).\nGet the file again."
        ) from error


def _whole_lines(pieces: Iterator[bytes], path: Path, any_size: bool) -> Iterator[bytes]:
    parts: list[bytes] = []
    mark, longest, unfinished, total = _BOM, limit(MAX_LINE), 0, 0
    largest = sys.maxsize if any_size else limit(MAX_FILE)
    for piece in pieces:
        total += len(piece)
        if total > largest:
            raise _refusal(path, f"its content is larger than {largest:,} bytes", MAX_FILE)
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts, piece[:cut]]).removeprefix(mark)
            parts, unfinished, mark = [], 0, b""
        parts.append(piece[cut:])
        unfinished += len(piece) - cut
        if unfinished > longest:
            line = f"the line that begins at byte {total - unfinished:,}"
            raise _refusal(path, f"{line} is longer than {longest:,} bytes", MAX_LINE)
    block = b"".join(parts).removeprefix(mark)
    if block:
        yield block


def _refusal(path: Path, why: str, name: str) -> DataError:
    return DataError(
        f"{path} is refused: {why}.\nIf you trust it, set {name} higher (now {limit(name):,})."
    )
