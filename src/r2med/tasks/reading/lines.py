"""Read files in blocks of whole lines: plain, gzip or zstd; files that are too large are refused.

A compressed file of a few megabytes can expand to more than the memory of any machine. So the
expanded size is limited: per line, in total, and relative to the compressed size. `LIMITS` has the
limits and the environment variables that change them.
"""

from __future__ import annotations

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
#: Every file may expand to this size, because a ratio says nothing about small files.
HARMLESS_BYTES = 1 << 26

MAX_LINE, MAX_FILE, MAX_RATIO = "R2MED_MAX_LINE_BYTES", "R2MED_MAX_FILE_BYTES", "R2MED_MAX_RATIO"
#: The whole benchmark with all published generations is well below these.
LIMITS = {MAX_LINE: 1 << 26, MAX_FILE: 1 << 33, MAX_RATIO: 100}

_BOM = b"\xef\xbb\xbf"
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


def blocks(path: Path, *, any_size: bool = False) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks of whole lines; a byte order mark is dropped.

    Gzip and zstd are recognised by their first bytes, not by the name, because browsers and tools
    compress or expand files without renaming them. `any_size` lifts the limit on the total size,
    for callers that do not store blocks; the limit relative to the compressed size remains.
    """
    with file_errors(path), closing(content(path)) as chunks:
        yield from _whole_lines(chunks, path, any_size)


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield each line and its number, from 1; blank lines are counted, but not yielded."""
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if line.strip():
                yield number, line


def limit(name: str) -> int:
    """Return the value of a limit: from the environment, or the default."""
    chosen = os.environ.get(name)
    if chosen is None:
        return LIMITS[name]
    if not chosen.isdecimal() or int(chosen) == 0:
        raise UsageError(f"{name} is {chosen!r}, expected a whole number above 0.")
    return int(chosen)


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn errors of the operating system into errors that name the file."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


@contextmanager
def arrow_errors(path: Path, form: str = "Parquet") -> Iterator[None]:
    """Turn errors of Arrow and of the operating system into errors that name the file."""
    import pyarrow as pa

    try:
        with file_errors(path):
            yield
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path}: not a readable {form} file ({reason}).") from error


def content(path: Path) -> Generator[bytes, None, None]:
    """Yield the bytes of a file in chunks of limited size, expanded if the file is compressed."""
    with path.open("rb", buffering=0) as handle:
        start = handle.read(len(_ZSTD))
        handle.seek(0)
        if start == _ZSTD:
            import pyarrow as pa

            yield from _expand(pa.CompressedInputStream(handle, "zstd"), "zstd", handle, path)
        elif start.startswith(_GZIP):
            import gzip

            yield from _expand(gzip.GzipFile(fileobj=handle), "gzip", handle, path)
        else:
            yield from iter(lambda: handle.read(BLOCK_BYTES), b"")


def _expand(stream: Any, form: str, packed: FileIO, path: Path) -> Iterator[bytes]:
    """Expand a stream; refuse it if it is much larger than the compressed bytes read so far."""
    size, most = 0, limit(MAX_RATIO)
    try:
        while chunk := stream.read(BLOCK_BYTES):
            size += len(chunk)
            if size > HARMLESS_BYTES and size > most * packed.tell():
                why = f"it unpacks to more than {most} times its size, as no text does"
                raise refuse_size(path, why, MAX_RATIO)
            yield chunk
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{path}: the {form} data is cut off or damaged ({error}).\nGet the file again."
        ) from error


def _whole_lines(chunks: Iterator[bytes], path: Path, any_size: bool) -> Iterator[bytes]:
    longest_line = limit(MAX_LINE)
    largest_file = sys.maxsize if any_size else limit(MAX_FILE)
    unfinished_line: list[bytes] = []
    unfinished_bytes, total = 0, 0
    mark = _BOM
    for chunk in chunks:
        total += len(chunk)
        if total > largest_file:
            raise refuse_size(path, f"its content is larger than {largest_file:,} bytes", MAX_FILE)
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*unfinished_line, chunk[:end]]).removeprefix(mark)
            unfinished_line, unfinished_bytes, mark = [], 0, b""
        unfinished_line.append(chunk[end:])
        unfinished_bytes += len(chunk) - end
        if unfinished_bytes > longest_line:
            line = f"the line that begins at byte {total - unfinished_bytes:,}"
            raise refuse_size(path, f"{line} is longer than {longest_line:,} bytes", MAX_LINE)
    block = b"".join(unfinished_line).removeprefix(mark)
    if block:
        yield block


def refuse_size(path: Path, why: str, name: str) -> DataError:
    """Return the error for a file that exceeds a limit; `name` is the limit's variable."""
    return DataError(
        f"{path} is refused: {why}.\nIf you trust it, set {name} higher (now {limit(name):,})."
    )
