"""The store of vectors by model and text, which are never computed twice; scores are kept here too.

Written by hand because it must survive a kill at any moment, be shared by processes and be
mapped into memory, and be safe to read from a stranger: plain numbers, no pickle.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.atomic import AppendFile, seal, unseal, write_file
from r2med.errors import DamagedError, DataError
from r2med.home import shelf as home_shelf
from r2med.models.shards import ADDRESS_BYTES, SUFFIX, TRUNCATED, Block, Span, packed, read_blocks
from r2med.runs.run import offsets_of

Storage = Literal["float32", "float16"]
Addresses = NDArray[np.uint8]
Rows = NDArray[np.int64]

_MODEL_FILE = "model.json"
_SCHEMA = 2
_ABSENT = -1
#: The most that is handed to a model at a time: enough for even batches, soon done and kept.
_PIECE_TEXTS, _PIECE_CHARACTERS = 512, 1 << 18


@dataclass(frozen=True, eq=False)
class Computed:
    """What a model gave for some rows of its inputs, and what that cost."""

    rows: Rows
    vectors: NDArray[np.float32]
    """None of them where they are on their shelf already."""
    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    seen: str | None = None
    """One of the texts as the model saw it."""
    facts: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Depot:
    """The folder of a shelf, to which a worker of the shelf's owner adds what it computes."""

    folder: Path
    storage: Storage
    what: str

    def leave(self, addresses: Addresses, computed: Computed) -> Computed:
        """Write a batch to this process's shard; the answer holds no vectors any more."""
        block = _block(addresses[computed.rows], computed, np.dtype(self.storage))
        _shard(self).append(packed(block))
        return replace(computed, vectors=computed.vectors[:0])

    def sync(self) -> None:
        """Bring what was left to the disk itself."""
        _shard(self).sync()


@cache
def _shard(depot: Depot) -> AppendFile:
    return AppendFile(depot.folder, SUFFIX, what=depot.what)


@dataclass(eq=False)
class Shelf:
    """A model's vectors: in the shards of a folder, mapped into memory and shared by processes.

    Without a folder they live as long as this process: for models whose identity nobody knows.
    """

    storage: Storage = "float32"
    folder: Path | None = None
    tell: Callable[[str], None] = print
    what: str = "embeddings"

    def __post_init__(self) -> None:
        folder, what = self.folder, self.what
        self.dtype: np.dtype[np.floating] = np.dtype(self.storage)
        self.depot = Depot(folder, self.storage, what) if folder else None
        """Where a worker may add vectors itself; None where only this process can."""
        self._file = AppendFile(folder, SUFFIX, what=what) if folder else None
        self._read: dict[Path, int] = {}
        self._blocks: list[Block] = []
        self._starts: Rows = np.zeros(1, dtype=np.int64)
        self._index: pa.Array | None = None
        self.refresh()

    def add(self, addresses: Addresses, computed: Computed) -> None:
        """Keep the vectors of a batch, in the shelf's own precision; a kill does not lose them."""
        block = _block(addresses, computed, self.dtype)
        if self._file:
            self._file.append(packed(block))
        else:
            self._blocks.append(block)
            self._index = None

    def refresh(self) -> None:
        """Read the shards' new blocks, newest shard first, so that a redone text wins."""
        fresh: list[Block] = []
        shards = self.folder.glob(f"*{SUFFIX}") if self.folder else ()
        for path in sorted(shards, reverse=True):
            for item, end in read_blocks(path, self._read.get(path, 0)):
                self._read[path] = end
                if isinstance(item, Span):
                    self._discard(item)
                elif item.vectors.dtype == self.dtype:
                    fresh.append(item)
        if fresh:
            self._blocks, self._index = fresh + self._blocks, None

    def close(self) -> None:
        """Bring this process's shard to the disk itself; the next batch opens a new one."""
        if self._file:
            self._file.close()

    def find(self, addresses: Addresses) -> Rows:
        """The place of each text, or -1; blocks that prove damaged are named and left out."""
        while True:
            if self._index is None:
                held = [block.addresses for block in self._blocks]
                self._starts = offsets_of([len(each) for each in held])
                self._index = _column(np.concatenate(held) if held else addresses[:0])
            matches = pc.index_in(_column(addresses), value_set=self._index).fill_null(_ABSENT)
            places: Rows = matches.to_numpy(zero_copy_only=False).astype(np.int64)
            owners = np.unique(self._owners(places[places != _ABSENT])).tolist()
            damaged = [self._blocks[owner] for owner in owners if not self._blocks[owner].whole]
            if not damaged:
                return places
            for block in damaged:
                self._discard(block.place)
            self._blocks = [block for block in self._blocks if block not in damaged]
            self._index = None

    def gather(self, places: Rows) -> NDArray[np.float32]:
        """The vectors at places that `find` gave, as one float32 matrix."""
        if not len(places):
            return np.zeros((0, 0), dtype=np.float32)
        owners = self._owners(places)
        widths = sorted({self._blocks[owner].vectors.shape[1] for owner in np.unique(owners)})
        if len(widths) > 1:
            raise DataError(
                f"{self.folder or 'memory'}: vectors of {widths[0]} and of {widths[1]} numbers by "
                "one model. One that gives other vectors than before needs another `identity`."
            )
        matrix = np.empty((len(places), widths[0]), dtype=np.float32)
        order = np.argsort(owners, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(owners[order])) + 1):
            owner = owners[rows[0]]
            matrix[rows] = self._blocks[owner].vectors[places[rows] - self._starts[owner]]
        return matrix

    def rows(self, places: Rows) -> Iterator[NDArray[np.float32]]:
        """The rows at places one by one, for rows that are not all of one width."""
        for owner, place in zip(self._owners(places).tolist(), places.tolist(), strict=True):
            row = self._blocks[owner].vectors[place - self._starts[owner]]
            yield row.astype(np.float32, copy=False)

    def tokens(self, places: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Token counts of the texts at places, and which of them were truncated."""
        if not len(places):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        counts = np.concatenate([block.tokens for block in self._blocks])[places]
        return (counts & ~TRUNCATED).astype(np.int64), (counts & TRUNCATED) != 0

    def remember(self, address: bytes, seen: str) -> None:
        """Keep how the model saw one text, so that a later run can show it without the model."""
        if self.folder and self.seen(address) is None:
            write_file(
                self.folder / "seen" / f"{address.hex()}.json", seal({"seen": seen}, indent=None)
            )

    def seen(self, address: bytes) -> str | None:
        """How the model saw a text, where it was kept."""
        with suppress(FileNotFoundError, DamagedError):
            if self.folder:
                path = self.folder / "seen" / f"{address.hex()}.json"
                return str(unseal(path.read_bytes(), path)["seen"])
        return None

    def _owners(self, places: Rows) -> Rows:
        return np.searchsorted(self._starts, places, side="right") - 1

    def _discard(self, place: Span | None) -> None:
        if place is not None:
            place.mark_empty()
            self.tell(f"{place}: {self.what} fail their checksum; they are computed again.")


def open_shelf(
    shelf: str,
    identity: Mapping[str, object] | None,
    label: str,
    tell: Callable[[str], None],
    *,
    storage: Storage = "float32",
    root: Path | None = None,
) -> Shelf:
    """The vectors of a model on a shelf of the home; without an identity, memory of this process.

    The label is for people: a model keeps its folder, and the first label, under any name.
    """
    if identity is None:
        return Shelf(storage)
    root = root or home_shelf(shelf)
    name = json.dumps({"model": identity, "storage": storage}, sort_keys=True)
    folder = root / hashlib.sha256(name.encode()).hexdigest()[:32]
    record = {"schema": _SCHEMA, "label": label, "model": dict(identity), "storage": storage}
    if _record(folder).get("schema") != _SCHEMA:
        write_file(folder / _MODEL_FILE, seal(record))
    return Shelf(storage, folder, tell, shelf)


def pieces(rows: Rows, sizes: NDArray[np.int64]) -> Iterator[Rows]:
    """Rows cut into pieces within the limits of texts and characters, in their order.

    The cuts depend on nothing but the texts, so that batches are the same wherever they run.
    """
    while len(rows):
        characters = np.cumsum(sizes[rows[:_PIECE_TEXTS]])
        fitting = int(np.searchsorted(characters, _PIECE_CHARACTERS, side="right"))
        piece, rows = np.split(rows, [max(1, fitting)])
        yield piece


def _block(addresses: Addresses, computed: Computed, dtype: np.dtype[np.floating]) -> Block:
    marks = np.where(computed.truncated, TRUNCATED, np.uint32(0))
    counts = computed.tokens.astype(np.uint32) | marks
    return Block(addresses, counts, np.ascontiguousarray(computed.vectors, dtype=dtype))


def hashed(prefix: bytes, texts: Iterable[str]) -> Addresses:
    """The addresses of texts: a hash of the prefix and the text."""
    start = hashlib.sha256(prefix)
    digests = []
    for text in texts:
        digest = start.copy()
        digest.update(text.encode("utf-8", "surrogatepass"))
        digests.append(digest.digest()[:ADDRESS_BYTES])
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, ADDRESS_BYTES)


def distinct(addresses: Addresses) -> tuple[Addresses, Rows, Rows]:
    """The distinct addresses, the first row of each, and which of them every row has."""
    inside = _column(addresses).dictionary_encode().indices.to_numpy().astype(np.int64)
    firsts = np.unique(inside, return_index=True)[1]
    return addresses[firsts], firsts, inside


@dataclass(frozen=True)
class StoredModel:
    """One model's part of the store."""

    name: str
    storage: str
    folder: Path
    bytes: int
    texts: int
    """Vectors held, damaged blocks left out."""


def stored_models(root: Path | None = None) -> Iterator[StoredModel]:
    """Every model with embeddings under `root`, which is the home's own shelf by default."""
    for file in sorted((root or home_shelf("embeddings")).glob(f"*/{_MODEL_FILE}")):
        folder, record = file.parent, _record(file.parent)
        shards = [read_blocks(shard, 0) for shard in folder.glob(f"*{SUFFIX}")]
        blocks = [item for item, _ in chain(*shards) if isinstance(item, Block)]
        yield StoredModel(
            name=str(record.get("label", folder.name)),
            storage=str(record.get("storage", "unreadable")),
            folder=folder,
            bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            texts=sum(len(block.addresses) for block in blocks),
        )


def _record(folder: Path) -> dict[str, Any]:
    """What the folder of a model says of itself; nothing where that cannot be read."""
    path = folder / _MODEL_FILE
    with suppress(OSError, DamagedError):
        return unseal(path.read_bytes(), path)
    return {}


def _column(addresses: Addresses) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(addresses))
    return pa.Array.from_buffers(pa.binary(ADDRESS_BYTES), len(addresses), [None, data])
