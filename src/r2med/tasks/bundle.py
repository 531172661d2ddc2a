"""Files a user hands over, as a zip or a folder: listed first, and refused when they are hostile.

Nothing is ever extracted under a name the archive chose: members are read as streams, and whoever
copies them decides where to. The checks here refuse an archive whole, with the member named.
"""

from __future__ import annotations

import lzma
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from r2med.errors import DataError, MissingError

#: The whole benchmark with all published generations is well below these.
MAX_MEMBERS = 20_000
MAX_BYTES = 8 * 1024**3
MAX_RATIO = 100

_DRIVE = re.compile(r"^[A-Za-z]:")


@dataclass(frozen=True)
class Member:
    """A file in a bundle: its path there, its size, and how to read it."""

    path: PurePosixPath
    size: int
    open: Callable[[], IO[bytes]]


@dataclass(frozen=True)
class Bundle:
    """Files that belong together; `name` is that of the archive or folder."""

    name: str
    source: Path
    members: tuple[Member, ...]


def read_chunks(member: Member, source: Path) -> Iterator[bytes]:
    """The bytes of a member; a damaged one, or one longer than declared, is an error."""
    received = 0
    try:
        with member.open() as stream:
            while chunk := stream.read(1024**2):
                received += len(chunk)
                if received > member.size:
                    raise _hostile(source, f"member {str(member.path)!r} is longer than declared")
                yield chunk
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError) as error:
        raise DataError(
            f"{source}, member {str(member.path)!r} cannot be read: {error}. Get the file again."
        ) from error


@contextmanager
def open_bundles(source: Path) -> Iterator[list[Bundle]]:
    """The bundles of a zip, a folder, or a folder of zips (the benchmark comes as one a task)."""
    if source.is_dir():
        archives = sorted(source.glob("*.zip"))
        with _open_zips(archives) as bundles:
            yield [_folder(source), *bundles]
    elif source.is_file():
        with _open_zips([source]) as bundles:
            yield bundles
    else:
        raise MissingError(f"{source} does not exist; --from expects a zip file or a folder.")


def _folder(source: Path) -> Bundle:
    """A user's own folder is trusted, links included: hub caches consist of them."""
    files = [file for file in sorted(source.rglob("*")) if file.is_file()]
    members = [
        Member(PurePosixPath(f.relative_to(source).as_posix()), f.stat().st_size, _opener(f))
        for f in files
        if f.suffix != ".zip"
    ]
    return Bundle(source.resolve().name, source, tuple(members))


def _opener(file: Path) -> Callable[[], IO[bytes]]:
    return lambda: file.open("rb")


@contextmanager
def _open_zips(paths: list[Path]) -> Iterator[list[Bundle]]:
    opened: list[zipfile.ZipFile] = []
    try:
        bundles = []
        for path in paths:
            archive = _open_zip(path)
            opened.append(archive)
            bundles.append(Bundle(path.stem, path, tuple(_members(archive, path))))
        yield bundles
    finally:
        for archive in opened:
            archive.close()


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{path} cannot be read as a zip file: {error}.\n"
            "--from takes a zip or a folder; unpack other archives first."
        ) from error


def _members(archive: zipfile.ZipFile, source: Path) -> list[Member]:
    infos = archive.infolist()
    if len(infos) > MAX_MEMBERS:
        raise _hostile(source, f"it lists {len(infos):,} files, more than {MAX_MEMBERS:,}")
    total = sum(info.file_size for info in infos)
    if total > MAX_BYTES:
        raise _hostile(source, f"it unpacks to {total:,} bytes, more than {MAX_BYTES:,}")
    names: set[str] = set()
    for info in infos:
        if trouble := _trouble(info, names):
            raise _hostile(source, f"member {info.orig_filename!r} {trouble}")
    return [
        Member(PurePosixPath(info.filename), info.file_size, _zip_opener(archive, info))
        for info in infos
        if not info.is_dir()
    ]


def _zip_opener(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    return lambda: archive.open(info)


def _trouble(info: zipfile.ZipInfo, names: set[str]) -> str | None:
    """What is wrong with a member, in words; `names` collects those seen so far."""
    name = info.orig_filename
    if "\0" in name or "\\" in name or _DRIVE.match(name):
        return "has a name that is not a plain relative path"
    if name.startswith("/") or ".." in PurePosixPath(name).parts:
        return "points outside the archive"
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "is a link or a special file"
    if info.flag_bits & 0x1:
        return "is encrypted"
    folded = name.rstrip("/").casefold()
    if folded in names:
        return "occurs twice"
    names.add(folded)
    if info.file_size > 1024**2 and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        return f"expands more than {MAX_RATIO} times, as no text does"
    return None


def _hostile(source: Path, why: str) -> DataError:
    return DataError(
        f"{source} is refused: {why}.\n"
        "Nothing was written. If you trust the file, unpack it yourself and give the folder."
    )
