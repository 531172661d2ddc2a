"""Files that survive a kill at any moment, and checksums that tell when one has changed since.

Writes go to a draft beside the target, which takes the target's place in one step: readers see
the old or the new, a kill leaves at most a draft, and the next write beside it sweeps drafts whose
writers are gone. An `AppendFile` only grows and belongs to one process, so it needs no lock.
Checksums are for every store: `seal` for records that are JSON, `write_sealed` for Arrow.
They are CRC-32: as fast as memory is read, and no error of up to 32 neighbouring bits escapes it.
Readers check a stored file before they use its content.
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
    """Yield a path beside `target` to write to; it takes the target's place on success only."""
    with _draft(target, Path.touch) as draft:
        yield draft
        _sync(draft)
        draft.replace(target)


def write_file(target: Path, content: str | bytes) -> None:
    """Write a file that is whole or absent, text in UTF-8."""
    with atomic_file(target) as draft:
        draft.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def atomic_folder(target: Path, *, keep: Callable[[str], bool] | None = None) -> Iterator[Path]:
    """Yield an empty folder to fill; on success it takes the place of `target` in one step.

    `keep` says which files of the old folder, by their path in it, stay beside the new ones; such
    writers wait for each other. Of others the last one to finish stays. Read a folder that may
    be replaced meanwhile through `read_folder`.
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
            stays = keep and keep(file.relative_to(target).as_posix())
            if stays and not file.is_dir() and not new.exists():
                new.parent.mkdir(parents=True, exist_ok=True)
                try:  # a second name, so that the bytes are shared
                    os.link(file, new, follow_symlinks=False)
                except OSError:
                    shutil.copy2(file, new, follow_symlinks=False)
        _take_place(draft, target)


def draft_folder(target: Path) -> AbstractContextManager[Path]:
    """A new folder beside `target`; it is removed in the end, after a kill by a later run."""
    return _draft(target, Path.mkdir)


def read_folder(folder: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a folder's files, all of them from before a replacement or all after.

    `read` is called again when the folder was replaced meanwhile, and must not leave anything
    to be read later.
    """
    while True:
        before = _inode(folder)
        try:
            outcome = read(folder)
        except Exception:
            if _restored(folder) or _inode(folder) != before:
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
    """Remove a folder in one step; after a kill, a later `sweep` removes the rest."""
    draft = folder.with_name(f".{folder.name[:32]}.{os.urandom(8).hex()}{_DRAFT}")
    folder.rename(draft)
    shutil.rmtree(draft)


def lock(path: Path) -> AbstractContextManager[None]:
    """Hold a lock file, after waiting for its holder; a lock ends with its process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return _create_locked(path, Path.touch)


def sweep(folder: Path) -> None:
    """Remove the drafts in a folder whose writers are gone, and finish interrupted replacements."""
    with suppress(OSError):
        for entry in list(os.scandir(folder)):
            if entry.name.startswith(".") and entry.name.endswith(_DRAFT):
                with suppress(OSError), _held(Path(entry.path), wait=False) as held:
                    if held:
                        _remove(Path(entry.path))
            elif entry.name.startswith(".") and entry.name.endswith(_RETIRED):
                _restored(folder / entry.name[1 : -len(_RETIRED)])


class AppendFile:
    """A file of this process alone; it is made when the first record is written."""

    def __init__(self, folder: Path, suffix: str, *, what: str) -> None:
        self.folder = folder
        self.suffix = suffix
        self.what = what
        self._handle: int | None = None
        self._path = folder
        self._size = 0

    def append(self, record: bytes) -> tuple[Path, int]:
        """Write a record and say where it begins; once this returns, a kill cannot lose it.

        A record that could not be written whole ends the file: the next one begins another, so
        that half a record never stands in the middle of a file.
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
                f"{self._path}: the {self.what} cannot be written ({problem.strerror}).\n"
                "Make room, or choose another folder (R2MED_HOME, --results); written records are "
                "kept."
            ) from None
        self._size = start + len(record)
        return self._path, start

    def sync(self) -> None:
        """Flush and fsync the file."""
        if self._handle is not None:
            os.fsync(self._handle)

    def close(self) -> None:
        """End the file; a later record begins another."""
        self.sync()
        self._abandon()

    def _abandon(self) -> None:
        if self._handle is not None:
            with suppress(OSError):
                os.close(self._handle)
        self._handle, self._size = None, 0


def write_sealed(target: Path, batches: Iterable[pa.RecordBatch]) -> None:
    """Write a file of Arrow streams, one for each batch, and a checksum of it all at its end."""
    import pyarrow as pa

    with atomic_file(target) as draft:
        with pa.OSFile(str(draft), "wb") as sink:
            for batch in batches:
                with pa.ipc.new_stream(sink, batch.schema) as out:
                    out.write_batch(batch)
        with draft.open("r+b", buffering=0) as handle:
            handle.write(_TRAILER.pack(_MAGIC, _checksum_of(handle, draft.stat().st_size)))


def read_sealed(path: Path) -> list[pa.RecordBatch]:
    """The batches that `write_sealed` wrote, mapped into memory once the file is checked.

    The check reads the file in pieces, so that a page takes memory only when it is used.
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
    """The checksum of the next `size` bytes, read in pieces."""
    total = 0
    while block := handle.read(min(size, 1 << 20)):
        total = zlib.crc32(block, total)
        size -= len(block)
    return total


def release_memory() -> None:
    """Return unused memory to the system: freed memory, and the pages of mapped files.

    Pages of mapped files are read again when they are used.
    """
    for mapped in list(_mapped):
        mapped.madvise(mmap.MADV_DONTNEED)
    import ctypes

    if hasattr(library := ctypes.CDLL(None), "malloc_trim"):
        library.malloc_trim(0)


def seal(record: Mapping[str, Any], *, indent: int | None = 1) -> str:
    """A record as JSON text with a checksum of its content; `indent=None` gives a single line."""
    return json.dumps({**record, SEAL: _content_sum(record)}, indent=indent) + "\n"


def unseal(text: str | bytes, path: Path | str) -> dict[str, Any]:
    """The record that `seal` wrote; DamagedError, naming `path`, where it says anything else.

    The checksum is of the content, not of the bytes: a file that was only laid out anew is sound.
    """
    try:
        record: dict[str, Any] = json.loads(text)
        sound = record.pop(SEAL) == _content_sum(record)
    except (ValueError, RecursionError, AttributeError, TypeError, KeyError) as problem:
        raise DamagedError(f"{path}: not a readable record ({problem!r}).") from None
    if not sound:
        raise DamagedError(f"{path}: its content does not match its checksum.")
    return record


def _content_sum(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return f"crc32:{zlib.crc32(text.encode()):08x}"


@contextmanager
def _draft(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    """A new draft, locked for as long as its writer lives so that no sweep takes it, then removed.

    An error of the operating system names the target, not the draft.
    """
    beside = target.parent
    beside.mkdir(parents=True, exist_ok=True)
    if beside not in _swept:
        _swept.add(beside)
        sweep(beside)
    draft = beside / f".{target.name[:32]}.{os.urandom(8).hex()}{_DRAFT}"
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
    """Make a file or folder and keep it locked while the block runs; then it is removed."""
    while True:
        make(path)
        with _held(path, wait=True) as held:
            if held is not False:
                try:
                    yield
                finally:
                    _remove(path)
                return


@contextmanager
def _held(path: Path, *, wait: bool) -> Iterator[bool | None]:
    """Lock a file or folder while the block runs.

    Yields False where another has it or it is gone, None where the file system has no locks.
    """
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    except FileNotFoundError:
        yield False
        return
    held: bool | None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            held = os.path.samestat(path.stat(), os.fstat(handle))  # removed before it was locked?
        except (BlockingIOError, FileNotFoundError):
            held = False
        except OSError:
            held = None
        yield held
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _take_place(draft: Path, target: Path) -> None:
    """Give a folder the name `target`; the old folder gets the draft's name or is removed.

    Where names cannot be exchanged it takes two steps: `sweep` and `read_folder` make a kill
    between them good.
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
    """Swap two names in one step; False where the system or the file system cannot."""
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


def _restored(target: Path) -> bool:
    """Put back a folder that was retired when its replacement never came."""
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
