"""Answers on disk: each is written the moment it arrives, so that nothing is asked or paid twice.

One folder per model, one file per process, one line per answer: `<checksum> <JSON>`. A kill loses
no whole line, and a damaged line is noticed, named and asked for again. A request under way is
locked, so that processes and threads which ask the same share the work.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from r2med.append import AppendFile
from r2med.atomic import atomic_file
from r2med.remote.completions import ChatAnswer

try:
    import fcntl
except ImportError:  # Windows: processes that ask the same at the same time ask twice there
    fcntl = None  # type: ignore[assignment]

SUFFIX = ".calls"
MODEL_FILE = "model.json"
#: Seconds after which written answers are brought to the disk itself, against a power cut.
_SYNC_EVERY = 0.5
#: How every line begins after its checksum.
_HEAD = re.compile(rb'\{"key": "([^"\\]*)", "written": ([0-9.e+]+), ')


@dataclass(frozen=True)
class _Line:
    path: Path
    start: int
    size: int
    written: float


class Answers:
    """The answers of one model with one set of parameters; threads may share it."""

    def __init__(
        self,
        root: Path,
        identity: Mapping[str, object],
        *,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        text = json.dumps(identity, sort_keys=True)
        slug = re.sub(r"[^a-z0-9.]+", "-", str(identity.get("model", "")).lower()).strip("-")
        self.folder = root / f"{slug[:40]}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        self._identity = identity
        self._tell = tell
        self._lines: dict[str, _Line] = {}
        self._read: dict[Path, int] = {}
        self._file = AppendFile(self.folder, SUFFIX, what="answers")
        self._synced = 0.0
        self._own, self._others = 0, -1
        self._guard = threading.RLock()

    def get(self, key: str, *, since: float = 0.0) -> ChatAnswer | None:
        """The newest answer to a request, unless it is older than `since`."""
        with self._guard:
            line = self._lines.get(key)
            if line is None or line.written < since:
                return None
            with line.path.open("rb") as file:
                file.seek(line.start)
                answer = _answer(file.read(line.size))
            if answer is None:
                self._name_damage(line.path, line.start)
                del self._lines[key]
            return answer

    def put(self, key: str, answer: ChatAnswer) -> None:
        """Append an answer; once this returns, no end of the process loses it."""
        now = time.time()
        values = asdict(answer)
        del values["cached"]
        row = json.dumps({"key": key, "written": now, "answer": values}, ensure_ascii=False)
        data = row.encode("utf-8", "replace")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        with self._guard:
            if not self._read:
                self._say_which_model()
            path, start = self._file.append(line)
            self._lines[key] = _Line(path, start, len(line), now)
            self._read[path] = start + len(line)
            self._asking.count_answer()
            self._own += 1

    def reserve(self, key: str) -> bool:
        """Whether to ask now: nobody else, in this process or another one, is asking.

        Look for the answer again afterwards: who was asking may just have finished.
        """
        asking = self._asking
        if not asking.add(key):
            return False
        if (others := asking.answers() - self._own) != self._others:
            self._others = others
            self.refresh()
        return True

    def release(self, key: str) -> None:
        """Let others ask."""
        self._asking.discard(key)

    def sync(self, *, at_once: bool = False) -> None:
        """Bring what was written to the disk itself, unless that was just done."""
        if at_once or time.monotonic() - self._synced > _SYNC_EVERY:
            self._file.sync()
            self._synced = time.monotonic()

    def close(self) -> None:
        """End this process's file."""
        with self._guard:
            self._file.close()

    def refresh(self) -> None:
        """Learn what was written since, by this process or others."""
        with self._guard:
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                start = self._read.get(path, 0)
                if path.stat().st_size > start:
                    self._learn(path, start)

    @property
    def _asking(self) -> _Asking:
        return _asking(self.folder, os.getpid())

    def _learn(self, path: Path, start: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                head = _head(line)
                if head is None:
                    self._name_damage(path, start)
                else:
                    key, written = head
                    known = self._lines.get(key)
                    if known is None or known.written <= written:
                        self._lines[key] = _Line(path, start, len(line), written)
                start += len(line)
        self._read[path] = start

    def _name_damage(self, path: Path, start: int) -> None:
        self._tell(
            f"{path}, byte {start}: a stored answer fails its checksum; it is asked for again."
        )

    def _say_which_model(self) -> None:
        path = self.folder / MODEL_FILE
        if not path.exists():
            with atomic_file(path) as draft:
                draft.write_text(json.dumps(self._identity, indent=2) + "\n", encoding="utf-8")


class _Asking:
    """The requests of one model that are under way, in this process and others.

    Each is a byte of one file that its process has locked; the system drops the locks of a process
    that ends. They belong to the process as a whole and go when it closes the file anywhere, so
    there is one such object per folder (see `_asking`), which stays. The file grows by a byte with
    every answer, which tells the others that there is something to read.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
        self._keys: set[str] = set()
        self._guard = threading.Lock()

    def add(self, key: str) -> bool:
        """Whether nobody was asking."""
        with self._guard:
            if key in self._keys or not self._lock(key, ask=True):
                return False
            self._keys.add(key)
            return True

    def discard(self, key: str) -> None:
        with self._guard:
            if key in self._keys:
                self._keys.remove(key)
                self._lock(key, ask=False)

    def count_answer(self) -> None:
        """Let others know that an answer was written."""
        os.write(self._handle, b".")

    def answers(self) -> int:
        """How many answers were written, by whomever."""
        return os.fstat(self._handle).st_size

    def _lock(self, key: str, *, ask: bool) -> bool:
        if fcntl is None:
            return True
        how = fcntl.LOCK_EX | fcntl.LOCK_NB if ask else fcntl.LOCK_UN
        try:
            fcntl.lockf(self._handle, how, 1, zlib.crc32(key.encode()))
        except OSError as problem:
            return problem.errno not in (errno.EACCES, errno.EAGAIN)
        return True


#: What this process is asking, by folder and process: a forked child has no part in it.
_UNDER_WAY: dict[tuple[Path, int], _Asking] = {}


def _asking(folder: Path, process: int) -> _Asking:
    """The one object of a folder: threads that make two at once both get the one that is kept.

    The file of the other stays open, since closing it would drop the locks of the process.
    """
    known = _UNDER_WAY.get((folder, process))
    return known or _UNDER_WAY.setdefault((folder, process), _Asking(folder / "asking.lock"))


def _data(line: bytes) -> bytes | None:
    """The JSON of a line; None where it is not what was written."""
    checksum, _, data = line.rstrip(b"\n").partition(b" ")
    return data if checksum == b"%08x" % zlib.crc32(data) else None


def _head(line: bytes) -> tuple[str, float] | None:
    data = _data(line)
    head = _HEAD.match(data) if data is not None else None
    return (head[1].decode("utf-8", "replace"), float(head[2])) if head else None


def _answer(line: bytes) -> ChatAnswer | None:
    data = _data(line)
    if data is None:
        return None
    values: dict[str, Any] = json.loads(data)["answer"]
    known = {field.name for field in fields(ChatAnswer)}
    return ChatAnswer(**{k: v for k, v in values.items() if k in known} | {"cached": True})
