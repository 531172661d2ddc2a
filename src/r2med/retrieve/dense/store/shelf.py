"""The vectors of one model: found by address, gathered into matrices, added to as they come."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.atomic import atomic_file
from r2med.retrieve.conditions import Tell
from r2med.retrieve.dense.form import ADDRESS_BYTES
from r2med.retrieve.dense.store.shard import SUFFIX, TRUNCATED, Block, Writer, read_blocks

Storage = Literal["float32", "float16"]
MODEL_FILE = "model.json"
_ABSENT = -1


class Shelf:
    """Vectors that live as long as the process: for models whose identity nobody knows."""

    def __init__(self, storage: Storage = "float32") -> None:
        self.dtype: np.dtype[np.floating] = np.dtype(storage)
        self._blocks: list[Block] = []
        self._starts: NDArray[np.int64] = np.zeros(1, dtype=np.int64)
        self._index: pa.Array | None = None
        self._seen: dict[bytes, str] = {}

    def add(
        self,
        addresses: NDArray[np.uint8],
        vectors: NDArray[np.float32],
        tokens: NDArray[np.int64],
        truncated: NDArray[np.bool_],
    ) -> None:
        """Keep the vectors of a batch, in the shelf's own precision."""
        counts = tokens.astype(np.uint32) | np.where(truncated, TRUNCATED, np.uint32(0))
        self._keep(Block(addresses, counts, np.ascontiguousarray(vectors, dtype=self.dtype)))

    def find(self, addresses: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The place of each text, or -1; every place found holds a vector that is whole."""
        places = self._lookup(addresses)
        while damaged := self._damaged(places):
            self._forget(damaged)
            places = self._lookup(addresses)
        return places

    def gather(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors at places that `find` gave, as one float32 matrix."""
        if not len(places):
            return np.zeros((0, 0), dtype=np.float32)
        owners = self._owners(places)
        width = self._blocks[owners[0]].vectors.shape[1]
        matrix = np.empty((len(places), width), dtype=np.float32)
        for owner, rows in _grouped(owners):
            inside = places[rows] - self._starts[owner]
            matrix[rows] = self._blocks[owner].vectors[inside]
        return matrix

    def rows(self, places: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """The rows at places one by one, for rows that are not all of one width."""
        for owner, place in zip(self._owners(places).tolist(), places.tolist(), strict=True):
            row = self._blocks[owner].vectors[place - self._starts[owner]]
            yield row.astype(np.float32, copy=False)

    def tokens(self, places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Token counts of the texts at places, and which of them were truncated."""
        if not len(places):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        counts = np.concatenate([block.tokens for block in self._blocks])[places]
        return (counts & ~TRUNCATED).astype(np.int64), (counts & TRUNCATED) != 0

    def remember(self, address: bytes, seen: str) -> None:
        """Keep how the model saw one text, so that a later run can show it without the model."""
        self._seen[address] = seen

    def seen(self, address: bytes) -> str | None:
        """How the model saw a text, where it was kept."""
        return self._seen.get(address)

    def refresh(self) -> None:
        """Learn what other processes have added."""

    def close(self) -> None:
        """Bring everything to where it is kept."""

    def _keep(self, block: Block) -> None:
        self._blocks.append(block)
        self._index = None

    def _forget(self, damaged: set[int]) -> None:
        self._blocks = [block for i, block in enumerate(self._blocks) if i not in damaged]
        self._index = None

    def _damaged(self, places: NDArray[np.int64]) -> set[int]:
        return set()

    def _owners(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._starts, places, side="right") - 1

    def _lookup(self, addresses: NDArray[np.uint8]) -> NDArray[np.int64]:
        if self._index is None:
            lengths = [len(block.addresses) for block in self._blocks]
            self._starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
            held = [block.addresses for block in self._blocks]
            self._index = _column(np.concatenate(held) if held else addresses[:0])
        found = pc.index_in(_column(addresses), value_set=self._index)
        places: NDArray[np.int64] = (
            found.fill_null(_ABSENT).to_numpy(zero_copy_only=False).astype(np.int64)
        )
        return places


class DiskShelf(Shelf):
    """Vectors in the shards of one folder, mapped into memory and shared between processes."""

    def __init__(
        self, folder: Path, storage: Storage, tell: Tell, what: str = "embeddings"
    ) -> None:
        super().__init__(storage)
        self.folder = folder
        self._tell = tell
        self._what = what
        self._writer = Writer(folder, what)
        self._read: dict[Path, int] = {}
        self._checked: set[int] = set()
        self._bad: set[str] = set()
        self.refresh()

    def refresh(self) -> None:
        """Read the shards' new blocks, newest shard first, so that a redone text wins."""
        fresh: list[Block] = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}"), reverse=True):
            for block, end in read_blocks(path, self._read.get(path, 0)):
                self._read[path] = end
                if block.source not in self._bad and block.vectors.dtype == self.dtype:
                    fresh.append(block)
        if fresh:
            self._blocks = fresh + self._blocks
            self._index = None

    def remember(self, address: bytes, seen: str) -> None:
        """Write it beside the shards."""
        target = self.folder / "seen" / f"{address.hex()}.txt"
        if not target.exists():
            with atomic_file(target) as draft:
                draft.write_text(seen, encoding="utf-8", errors="surrogatepass")

    def seen(self, address: bytes) -> str | None:
        """Read it back."""
        try:
            target = self.folder / "seen" / f"{address.hex()}.txt"
            return target.read_text(encoding="utf-8", errors="surrogatepass")
        except (FileNotFoundError, UnicodeDecodeError):
            return None

    def close(self) -> None:
        """Bring this process's shard to the disk itself; the next batch opens a new one."""
        self._writer.close()
        self._writer = Writer(self.folder, self._what)

    def _keep(self, block: Block) -> None:
        """Append to this process's shard; a kill after that does not lose it."""
        self._writer.append(block)

    def _damaged(self, places: NDArray[np.int64]) -> set[int]:
        damaged = set()
        for owner in np.unique(self._owners(places[places != _ABSENT])).tolist():
            block = self._blocks[owner]
            if id(block) in self._checked:
                continue
            if block.is_whole():
                self._checked.add(id(block))
                continue
            damaged.add(owner)
            self._bad.add(block.source)
            self._tell(
                f"{block.source}: {len(block.addresses)} {self._what} fail their checksum; "
                "they are computed again."
            )
        return damaged


@dataclass(frozen=True)
class _Name:
    """A model's folder: its identity's hash, apart for each precision."""

    identity: Mapping[str, object]
    storage: Storage

    def __str__(self) -> str:
        told = json.dumps({"model": self.identity, "storage": self.storage}, sort_keys=True)
        return hashlib.sha256(told.encode()).hexdigest()[:32]


def open_shelf(
    root: Path,
    identity: Mapping[str, object] | None,
    *,
    label: str,
    storage: Storage,
    tell: Tell,
    what: str = "embeddings",
) -> Shelf:
    """The shelf of a model; one without an identity gets memory that is gone with the process.

    The label is for people: a model keeps its shelf, and the first label, under any name.
    """
    if identity is None:
        return Shelf(storage)
    folder = root / str(_Name(identity, storage))
    if not (folder / MODEL_FILE).exists():
        with atomic_file(folder / MODEL_FILE) as draft:
            told = {"schema": 1, "label": label, "model": identity, "storage": storage}
            draft.write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    return DiskShelf(folder, storage, tell, what)


def _column(addresses: NDArray[np.uint8]) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(addresses))
    return pa.Array.from_buffers(pa.binary(ADDRESS_BYTES), len(addresses), [None, data])


def _grouped(owners: NDArray[np.int64]) -> list[tuple[int, NDArray[np.int64]]]:
    order = np.argsort(owners, kind="stable")
    cuts = np.flatnonzero(np.diff(owners[order])) + 1
    return [(int(owners[rows[0]]), rows) for rows in np.split(order, cuts)]
