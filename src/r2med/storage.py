"""Atomic writes, append-only files, locks and checksums.

A file is written as a draft in the target's folder, which then replaces the target in one step.
Readers see the old or the new content, a killed process leaves at most a draft, and the next write
in the folder removes the drafts of processes that have ended. An `AppendFile` belongs to one
process, so it needs no lock.

Every stored file has a checksum, which is verified before its content is used: `seal` for JSON
records, `write_sealed` for Arrow. It is CRC-32, which is as fast as reading memory and detects
every error of up to 32 neighbouring bits.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import shutil
import stat
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from r2med.errors import DamagedError, MissingError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

SEAL = "checksum"
_DRAFT = ".draft"
_RETIRED = ".old"
_MAGIC = b"r2ck"
_TRAILER = struct.Struct("<4sI")
_swept: set[Path] = set()
_mapped: WeakSet[mmap.mmap] = WeakSet()


@contextmanager
def atomic_file(target: Path) -> Iterator[Path]:
    """Yield a path to which the block writes.

    If the block succeeds, this file replaces `target`.
    """
    with _draft(target, Path.touch) as draft:
        yield draft
        _sync(draft)
        draft.replace(target)


def write_file(target: Path, content: str | bytes) -> None:
    """Write a file completely or not at all; a `str` is encoded as UTF-8."""
    with atomic_file(target) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(target: Path, *, keep: Callable[[str], bool] | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill; if the block succeeds, it replaces `target` in one step.

    `keep` decides by relative path which files of the old folder are kept; writers with `keep` wait
    for each other. Without `keep`, the folder of the last writer to finish remains. Use
    `read_folder` to read a folder that may be replaced in the meantime.
    """
    target = target.resolve()
    with ExitStack() as stack:
        if keep is not None:
            stack.enter_context(lock(target.with_name(f".{target.name}.writing")))
        draft = stack.enter_context(draft_folder(target))
        yield draft
        for file in draft.rglob("*"):
            if file.is_file():
                _sync(file)
        for file in target.rglob("*") if keep else ():
            new = draft / file.relative_to(target)
            is_kept = keep and keep(file.relative_to(target).as_posix())
            if is_kept and not file.is_dir() and not new.exists():
                new.parent.mkdir(parents=True, exist_ok=True)
                try:  # a hard link shares the content
                    os.link(file, new, follow_symlinks=False)
                except OSError:
                    shutil.copy2(file, new, follow_symlinks=False)
        _replace_folder(draft, target)


def draft_folder(target: Path) -> AbstractContextManager[Path]:
    """Yield a new folder next to `target`, and remove it at the end.

    If the process is killed, a later `sweep` removes the folder.
    """
    return _draft(target, Path.mkdir)


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield a new folder that only this user can open, and remove it at the end.

    Folders of processes that were killed are removed first. `parent` may be shared between users:
    names are random, and folders of other users are never removed.
    """
    for entry in list(os.scandir(parent)):
        if entry.name.startswith(prefix):
            with suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                    _remove_unless_locked(Path(entry.path))
    folder = parent / f"{prefix}{os.urandom(4).hex()}"
    with _create_locked(folder, lambda path: path.mkdir(mode=0o700)):
        yield folder


def read_folder(folder: Path, read: Callable[[Path], T]) -> T:
    """Return `read(folder)` for one consistent version of a folder that may be replaced.

    `read` is called again if the folder was replaced in the meantime. It must read everything at
    once, not lazily.
    """
    while True:
        before = _inode(folder)
        try:
            outcome = read(folder)
        except Exception:
            if _restore_folder(folder) or _inode(folder) != before:
                continue
            raise
        if _inode(folder) == before:
            return outcome


def read_bytes(path: Path, *, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes.

    Pipes, devices and larger files are a DamagedError, since reading them could block or fill the
    memory. Other failures are OSErrors.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb", buffering=0) as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise DamagedError(f"{path}: not a regular file.")
        if status.st_size > limit:
            raise DamagedError(
                f"{path}: {status.st_size:,} bytes, expected at most {limit:,}; it is not read."
            )
        return file.read()


def remove_folder(folder: Path) -> None:
    """Remove a folder in one step; if the process is killed, a later `sweep` finishes the work."""
    draft = folder.with_name(f".{folder.name[:32]}.{os.urandom(8).hex()}{_DRAFT}")
    folder.rename(draft)
    shutil.rmtree(draft)


def lock(path: Path) -> AbstractContextManager[None]:
    """Lock a file while the block runs, after waiting for other processes.

    A lock ends when its process ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    return _create_locked(path, Path.touch)


def sweep(folder: Path) -> None:
    """Remove drafts of processes that have ended, and finish interrupted replacements."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(".") and entry.name.endswith(_DRAFT):
                with suppress(OSError):
                    _remove_unless_locked(Path(entry.path))
            elif entry.name.startswith(".") and entry.name.endswith(_RETIRED):
                _restore_folder(folder / entry.name[1 : -len(_RETIRED)])


class AppendFile:
    """An append-only file of this process, created when the first record is written.

    `content` describes the records for error messages, as in "answers".
    """

    def __init__(self, folder: Path, suffix: str, *, content: str) -> None:
        self.folder = folder
        self.suffix = suffix
        self.content = content
        self._handle: int | None = None
        self._path = folder
        self._size = 0

    def append(self, record: bytes) -> tuple[Path, int]:
        """Write a record; return its file and offset. The record survives if the process is killed.

        If a record cannot be written completely, the next one begins a new file, so that an
        incomplete record is always the last one of its file.
        """
        start = self._size
        try:
            if self._handle is None:
                name = f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}{self.suffix}"
                self._path = self.folder / name
                self.folder.mkdir(parents=True, exist_ok=True)
                self._handle = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
            remaining = memoryview(record)
            while remaining:
                remaining = remaining[os.write(self._handle, remaining) :]
        except BaseException as problem:
            self._abandon()
            if not isinstance(problem, OSError):
                raise
            raise MissingError(
                f"{self._path}: the {self.content} cannot be written ({problem.strerror}).\n"
                "Free disk space, or choose another folder (R2MED_HOME, --results); records that "
                "were already written are kept."
            ) from None
        self._size = start + len(record)
        return self._path, start

    def sync(self) -> None:
        """Flush and fsync the file."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """Close the file; a later record begins a new file."""
        self.sync()
        self._abandon()

    def _abandon(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle, self._size = None, 0


def write_sealed(target: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file of Arrow streams, one per batch, with a checksum at its end."""
    import pyarrow as pa

    with atomic_file(target) as draft:
        with pa.OSFile(str(draft), "wb") as sink:
            for batch in batches:
                with pa.ipc.new_stream(sink, batch.schema) as out:
                    out.write_batch(batch)
        with draft.open("r+b", buffering=0) as handle:
            handle.write(_TRAILER.pack(_MAGIC, _checksum_of(handle, draft.stat().st_size)))


def read_sealed(path: Path) -> list[pa.RecordBatch]:
    """Verify a file that `write_sealed` wrote and map its batches into memory.

    The file is verified in blocks, so that its pages take memory only when they are used.
    """
    check_sealed(path)
    return map_sealed(path)


def check_sealed(path: Path) -> None:
    """Raise DamagedError if a sealed file has changed since it was written."""
    with path.open("rb", buffering=0) as handle:
        size = os.fstat(handle.fileno()).st_size - _TRAILER.size
        if size < 0:
            raise DamagedError(f"{path}: the file is cut off.")
        actual = _checksum_of(handle, size)
        magic, written = _TRAILER.unpack(handle.read(_TRAILER.size))
        if magic != _MAGIC or written != actual:
            raise DamagedError(f"{path}: its content does not match its checksum.")


def map_sealed(path: Path) -> list[pa.RecordBatch]:
    """Map a sealed file into memory without checking it; call `check_sealed` before using it."""
    import pyarrow as pa

    with path.open("rb", buffering=0) as handle:
        size = os.fstat(handle.fileno()).st_size - _TRAILER.size
        if size <= 0:
            raise DamagedError(f"{path}: the file is cut off.")
        content = map_file(handle)
    body = pa.BufferReader(content.slice(0, size))
    batches: list[pa.RecordBatch] = []
    try:
        while body.tell() < size:
            batches += pa.ipc.open_stream(body)
        for batch in batches:
            batch.validate()
    except (pa.ArrowException, OSError) as problem:
        raise DamagedError(f"{path}: not readable Arrow data ({problem}).") from None
    return batches


def map_file(handle: IO[bytes] | FileIO) -> pa.Buffer:
    """Map an open file into memory for reading; `release_memory` can release its pages."""
    import pyarrow as pa

    handle.flush()
    mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    _mapped.add(mapped)
    return pa.py_buffer(mapped)


def _checksum_of(handle: FileIO, size: int) -> int:
    """Return the checksum of the next `size` bytes, read in blocks."""
    total = 0
    while block := handle.read(min(size, 1 << 20)):
        total = zlib.crc32(block, total)
        size -= len(block)
    return total


def release_memory() -> None:
    """Give unused memory back to the system: freed memory, and the pages of mapped files.

    Pages of mapped files are read again when they are used.
    """
    for mapped in list(_mapped):
        mapped.madvise(mmap.MADV_DONTNEED)
    import ctypes

    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def seal(record: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """Return a record as JSON with a checksum of its content; `indent=None` for a single line."""
    return json.dumps({**record, SEAL: _content_sum(record)}, indent=indent) + "\n"


def unseal(text: str | bytes, path: Path | str) -> dict[str, Any]:
    """Return a record that `seal` wrote; DamagedError if its checksum is wrong.

    The checksum covers only the values, so spaces and line breaks may differ.
    """
    try:
        record: dict[str, Any] = json.loads(text)
        is_valid = record.pop(SEAL) == _content_sum(record)
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as problem:
        raise DamagedError(f"{path}: not a readable record ({problem!r}).") from None
    if not is_valid:
        raise DamagedError(f"{path}: its content does not match its checksum.")
    return record


def _content_sum(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return f"crc32:{zlib.crc32(text.encode()):08x}"


@contextmanager
def _draft(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a new draft for `target`, and remove it after the block.

    The draft is locked, so that no `sweep` removes it.

    Errors of the operating system are changed to name the target instead of the draft.
    """
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder)
    draft = folder / f".{target.name[:32]}.{os.urandom(8).hex()}{_DRAFT}"
    try:
        with _create_locked(draft, make):
            yield draft
    except BrokenPipeError:
        raise
    except OSError as problem:
        if problem.filename is None or _DRAFT in os.fsdecode(problem.filename):
            problem.filename, problem.filename2 = str(target), None
        raise


@contextmanager
def _create_locked(path: Path, make: Callable[[Path], None]) -> Iterator[None]:
    """Create a file or folder, keep it locked while the block runs, and then remove it."""
    while True:
        make(path)
        with _lock_path(path, wait=True) as is_locked:
            if is_locked is not False:
                try:
                    yield
                finally:
                    _remove(path)
                return


@contextmanager
def _lock_path(path: Path, *, wait: bool) -> Iterator[bool | None]:
    """Lock a file or folder while the block runs.

    Yields False if another process has locked it or it was removed, and None if the file system has
    no locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    is_locked: bool | None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The path may have been removed before it was locked.
            is_locked = os.path.samestat(path.stat(), os.fstat(handle))
        except (BlockingIOError, FileNotFoundError):
            is_locked = False
        except OSError:
            is_locked = None
        yield is_locked
    finally:
        os.close(handle)


def _remove_unless_locked(path: Path) -> None:
    """Remove a file or folder unless the process that made it still runs."""
    with _lock_path(path, wait=False) as is_locked:
        if is_locked:
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _replace_folder(draft: Path, target: Path) -> None:
    """Rename a folder to `target`; the old folder gets the draft's name or is removed.

    If the file system cannot exchange names, this takes two steps. If the process is killed between
    them, `sweep` or `read_folder` restores the old folder.
    """
    while True:
        try:
            draft.rename(target)
            return
        except OSError as problem:
            if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
        with suppress(FileNotFoundError):
            if not _exchange(draft, target):
                retired = target.with_name(f".{target.name}{_RETIRED}")
                with lock(target.with_name(f".{target.name}.lock")):
                    _remove(retired)
                    target.rename(retired)
                    draft.rename(target)
                    _remove(retired)
            return


def _exchange(draft: Path, target: Path) -> bool:
    """Exchange two names in one step; False if the file system or platform cannot do this."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    current_folder, swap = -100, 2
    if not library.renameat2(
        current_folder, os.fsencode(draft), current_folder, os.fsencode(target), swap
    ):
        return True
    code = ctypes.get_errno()
    if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(code, os.strerror(code), str(target))


def _restore_folder(target: Path) -> bool:
    """Restore an old folder whose replacement was interrupted; return whether it was restored."""
    retired = target.with_name(f".{target.name}{_RETIRED}")
    if not retired.exists():
        return False
    with lock(target.with_name(f".{target.name}.lock")):
        if target.exists():
            _remove(retired)
            return False
        with suppress(FileNotFoundError):
            retired.rename(target)
        return target.exists()


def _inode(folder: Path) -> tuple[int, int, int] | None:
    try:
        facts = folder.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_ctime_ns


def _sync(file: Path) -> None:
    with file.open("rb") as handle:
        os.fsync(handle.fileno())
