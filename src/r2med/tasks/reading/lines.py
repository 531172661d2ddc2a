"""Files as blocks of whole lines: plain, gzip or zstd, streamed, and refused when too large.

A packed file of a few megabytes can unpack to more than the memory of any machine, so what is
unpacked is bounded: by line, in total, and in relation to the packed size. `LIMITS` has the
bounds and the environment variables that change them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from io import FileIO
from pathlib import Path

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
_GZIP_FORMAT = 31
_ZSTD = b"\x28\xb5\x2f\xfd"


def blocks(path: Path, *, any_size: bool = False) -> Iterator[bytes]:
    """The bytes of a file, cut at line ends; a byte order mark is dropped.

    Gzip and zstd are recognised by their first bytes, not by the name, since browsers and tools
    unpack or pack files without renaming them. `any_size` is for callers that keep no block: the
    whole may then be larger than a file may be, but what is unpacked stays in relation to it.
    """
    with file_errors(path), closing(content(path)) as pieces:
        large = path.stat().st_size > BLOCK_BYTES // 4
        whole = _whole_lines(pieces, path, any_size)
        yield from _ahead(whole) if large else whole


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Numbered lines from 1, without their line ends; blank ones are left out but counted."""
    number = 0
    for block in blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            number += 1
            if line.strip():
                yield number, line


def inflated(pieces: Iterable[bytes], source: str) -> Iterator[bytes]:
    """What gzip data unpacks to, in pieces of bounded size; `source` names it in errors."""
    stream = zlib.decompressobj(_GZIP_FORMAT)
    packed = unpacked = 0
    try:
        for rest in pieces:
            packed += len(rest)
            while True:
                if stream.eof:
                    rest = rest.lstrip(b"\0")
                    if not rest:
                        break
                    stream = zlib.decompressobj(_GZIP_FORMAT)
                text = stream.decompress(rest, BLOCK_BYTES)
                rest = stream.unused_data if stream.eof else stream.unconsumed_tail
                unpacked += len(text)
                _check_ratio(packed, unpacked, source)
                yield text
                if not rest and len(text) < BLOCK_BYTES:
                    break
    except zlib.error as error:
        raise DataError(
            f"{source}: the gzip data is damaged ({error}).\nGet the file again."
        ) from error
    if not stream.eof:
        raise DataError(f"{source}: the gzip data is cut off before its end.\nGet the file again.")


def _check_ratio(packed: int, unpacked: int, source: str) -> None:
    """Refuse what unpacks to more than its packed size explains."""
    if unpacked > HARMLESS_BYTES and unpacked > limit(MAX_RATIO) * packed:
        times = f"more than {limit(MAX_RATIO)} times its size, as no text does"
        raise _refusal(source, f"it unpacks to {times}", MAX_RATIO)


def _check_total(size: int, source: str) -> None:
    """Refuse what is larger than a file may be."""
    if size > limit(MAX_FILE):
        raise _refusal(source, f"its content is larger than {limit(MAX_FILE):,} bytes", MAX_FILE)


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
    except IsADirectoryError:
        raise DataError(f"{path} is a folder, expected a file.") from None
    except PermissionError:
        raise DataError(f"{path} cannot be read: permission denied.") from None
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
            yield from _unpacked_zstd(handle, str(path))
        elif start.startswith(_GZIP):
            yield from inflated(iter(lambda: handle.read(BLOCK_BYTES // 4), b""), str(path))
        else:
            yield from iter(lambda: handle.read(BLOCK_BYTES), b"")


def _unpacked_zstd(handle: FileIO, source: str) -> Iterator[bytes]:
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(handle, "zstd") as stream:
            unpacked = 0
            while piece := stream.read(BLOCK_BYTES):
                unpacked += len(piece)
                _check_ratio(handle.tell(), unpacked, source)
                yield piece
    except pa.ArrowException as error:
        raise DataError(
            f"{source}: the zstd data is damaged ({error}).\nGet the file again."
        ) from error


def _whole_lines(pieces: Iterator[bytes], path: Path, any_size: bool) -> Iterator[bytes]:
    parts: list[bytes] = []
    mark, longest, unfinished, total = _BOM, limit(MAX_LINE), 0, 0
    for piece in pieces:
        total += len(piece)
        if not any_size:
            _check_total(total, str(path))
        cut = piece.rfind(b"\n") + 1
        if cut:
            yield b"".join([*parts, piece[:cut]]).removeprefix(mark)
            parts, unfinished, mark = [], 0, b""
        parts.append(piece[cut:])
        unfinished += len(piece) - cut
        if unfinished > longest:
            line = f"the line that begins at byte {total - unfinished:,}"
            raise _refusal(str(path), f"{line} is longer than {longest:,} bytes", MAX_LINE)
    block = b"".join(parts).removeprefix(mark)
    if block:
        yield block


def _ahead(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, the next one being read by another thread meanwhile."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, blocks, None)
        while (block := coming.result()) is not None:
            coming = pool.submit(next, blocks, None)
            yield block


def _refusal(source: str, why: str, name: str) -> DataError:
    return DataError(
        f"{source} is refused: {why}.\nIf you trust it, set {name} higher (now {limit(name):,})."
    )
