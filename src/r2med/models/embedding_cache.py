"""The embedding cache: vectors by model and text, so that no text is encoded twice.

Scores of rerankers are cached here too, as vectors of one number. Each batch of work is one sealed
Arrow file, written atomically. Processes share the folder without locks, because a file never
changes: a process that finds a damaged one deletes it and encodes its texts again.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DamagedError, DataError, MissingError
from r2med.paths import cache_folder
from r2med.runs.run import offsets_of
from r2med.storage import check_sealed, map_sealed, seal, unseal, write_file, write_sealed

Storage = Literal["float32", "float16"]
STORAGES: tuple[Storage, Storage] = ("float32", "float16")
Addresses = NDArray[np.uint8]
Rows = NDArray[np.int64]

#: Bytes of a text's address, a hash; enough that two texts never share one.
ADDRESS_BYTES = 16
_SUFFIX = ".arrow"
_MODEL_FILE = "model.json"
_SCHEMA = 3
_ABSENT = -1


@dataclass(frozen=True, eq=False)
class EncodedTexts:
    """Vectors of some texts, with their token counts."""

    addresses: Addresses
    vectors: Sequence[NDArray[np.float32]]
    """One matrix per batch; batches of token vectors differ in width."""
    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]

    def to_batch(self, storage: Storage) -> pa.RecordBatch:
        """Return the texts as a record batch, with vectors in this precision."""
        matrices = [np.ascontiguousarray(matrix, dtype=storage) for matrix in self.vectors]
        widths = [matrix.shape[1] for matrix in matrices for _ in range(len(matrix))]
        numbers = pa.array(np.concatenate([matrix.ravel() for matrix in matrices]))
        columns = [
            _address_column(self.addresses),
            pa.array(self.tokens, pa.int64()),
            pa.array(self.truncated, pa.bool_()),
            pa.LargeListArray.from_arrays(pa.array(offsets_of(widths)), numbers),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=_schema_of(storage))


class CacheFile:
    """One file of the cache, or vectors that only this process has in memory."""

    def __init__(self, batch: pa.RecordBatch, path: Path | None) -> None:
        self.path = path
        self._vectors = batch.column("vector")
        self.addresses = _addresses_of(batch.column("address"))
        self.tokens: NDArray[np.int64] = batch.column("tokens").to_numpy()
        self.truncated = batch.column("truncated").to_numpy(zero_copy_only=False)

    @classmethod
    def open(cls, path: Path) -> CacheFile:
        """Map a file into memory; DamagedError if it is not a file of embeddings."""
        batches = map_sealed(path)
        schemas = [_schema_of(storage) for storage in STORAGES]
        if len(batches) != 1 or batches[0].schema.remove_metadata() not in schemas:
            raise DamagedError(f"{path}: not a file of embeddings.")
        try:
            batches[0].validate(full=False)
        except pa.ArrowException as problem:
            raise DamagedError(f"{path}: not a file of embeddings ({problem}).") from None
        return cls(batches[0], path)

    @cached_property
    def is_whole(self) -> bool:
        """Whether the file matches its checksum; checked when its vectors are first used."""
        if self.path is None:
            return True
        try:
            check_sealed(self.path)
        except (DamagedError, OSError):
            return False
        return True

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        offsets: NDArray[np.int64] = self._vectors.offsets.to_numpy()
        return offsets

    @cached_property
    def _numbers(self) -> NDArray[np.floating]:
        numbers: NDArray[np.floating] = self._vectors.values.to_numpy()
        return numbers

    @cached_property
    def widths(self) -> NDArray[np.int64]:
        """The length of each vector."""
        widths: NDArray[np.int64] = np.diff(self._offsets)
        return widths

    def matrix(self, rows: Rows) -> NDArray[np.floating]:
        """Return the vectors of some rows as a matrix; they must have the same width."""
        if (self.widths == self.widths[0]).all():
            return self._numbers.reshape(len(self.tokens), self.widths[0])[rows]
        return np.stack([self.row(row) for row in rows])

    def row(self, index: int) -> NDArray[np.float32]:
        """Return the vector of one row."""
        numbers = self._numbers[self._offsets[index] : self._offsets[index + 1]]
        return numbers.astype(np.float32, copy=False)

    def dtype(self) -> np.dtype[Any]:
        """Return the precision of the file's vectors."""
        return self._numbers.dtype


class EmbeddingCache:
    """The cached vectors of one model.

    Without a folder, vectors are kept in memory as long as this object exists. This is for models
    whose identity is unknown.
    """

    def __init__(
        self,
        storage: Storage = "float32",
        folder: Path | None = None,
        warn: Callable[[str], None] = print,
        content: str = "embeddings",
    ) -> None:
        """Open the files that are already in the folder.

        Args:
            storage: The precision in which vectors are stored.
            folder: The model's folder; None keeps vectors in memory.
            warn: Callback for user-facing warnings.
            content: "embeddings" or "rerank-scores", for messages.
        """
        self.storage = storage
        self.folder = folder
        self._warn = warn
        self._content = content
        self._files: list[CacheFile] = []
        self._read_paths: set[Path] = set()
        self._starts: Rows = np.zeros(1, dtype=np.int64)
        self._index: pa.Array | None = None
        self.refresh()

    def add(self, texts: EncodedTexts) -> None:
        """Store the vectors of some texts; with a folder, they are on disk when this returns."""
        if self.folder is None:
            self._files.append(CacheFile(texts.to_batch(self.storage), None))
            self._index = None
        else:
            self.write(self.folder, self.storage, texts)

    @staticmethod
    def write(folder: Path, storage: Storage, texts: EncodedTexts) -> None:
        """Write vectors to a new file in a model's folder; workers need no open cache for this."""
        path = folder / f"{time.time_ns():020d}-{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        try:
            write_sealed(path, [texts.to_batch(storage)])
        except OSError as problem:
            raise MissingError(
                f"{path}: the embeddings cannot be written ({problem.strerror}).\n"
                "Make room, or choose another folder (R2MED_HOME); files written before are kept."
            ) from None

    def refresh(self) -> None:
        """Read the files that were added since the last call.

        The newest files come first, so that a text that was encoded again has its new vector.
        """
        if self.folder is None:
            return
        new = []
        for path in sorted(set(self.folder.glob(f"*{_SUFFIX}")) - self._read_paths, reverse=True):
            self._read_paths.add(path)
            try:
                file = CacheFile.open(path)
            except DamagedError:
                self._delete(path)
            except FileNotFoundError:  # another process found it damaged
                continue
            else:
                if file.dtype() == np.dtype(self.storage):
                    new.append(file)
        if new:
            self._files, self._index = new + self._files, None

    def find(self, addresses: Addresses) -> Rows:
        """Return the index of each text in the cache; -1 for a text that is not cached.

        A damaged file that contains one of the texts is deleted with all of its texts.
        """
        while True:
            if self._index is None:
                held = [file.addresses for file in self._files]
                self._starts = offsets_of([len(file_addresses) for file_addresses in held])
                self._index = _address_column(np.concatenate(held) if held else addresses[:0])
            matches = pc.index_in(_address_column(addresses), value_set=self._index)
            indexes: Rows = matches.fill_null(_ABSENT).to_numpy(zero_copy_only=False)
            indexes = indexes.astype(np.int64)
            used = np.unique(self._file_numbers(indexes[indexes != _ABSENT])).tolist()
            damaged = [self._files[number] for number in used if not self._files[number].is_whole]
            if not damaged:
                return indexes
            for file in damaged:
                if file.path is not None:
                    self._delete(file.path)
            self._files = [file for file in self._files if file not in damaged]
            self._index = None

    def vectors(self, indexes: Rows) -> NDArray[np.float32]:
        """Return the vectors at indexes that `find` returned, as one float32 matrix."""
        if not len(indexes):
            return np.zeros((0, 0), dtype=np.float32)
        numbers = self._file_numbers(indexes)
        order = np.argsort(numbers, kind="stable")
        groups: list[
            tuple[CacheFile, Rows, Rows]
        ] = []  # file, rows of the matrix, rows of the file
        for rows in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            number = numbers[rows[0]]
            groups.append((self._files[number], rows, indexes[rows] - self._starts[number]))
        widths = sorted(
            {int(width) for file, _, file_rows in groups for width in file.widths[file_rows]}
        )
        if len(widths) > 1:
            raise DataError(
                f"{self.folder or 'memory'}: vectors of {widths[0]} and of {widths[1]} numbers by "
                "one model. A model whose vectors have changed needs another `identity`."
            )
        matrix = np.empty((len(indexes), widths[0]), dtype=np.float32)
        for file, rows, file_rows in groups:
            matrix[rows] = file.matrix(file_rows)
        return matrix

    def rows(self, indexes: Rows) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors at these indexes one by one; unlike in `vectors`, widths may differ."""
        for number, index in zip(self._file_numbers(indexes).tolist(), indexes, strict=True):
            yield self._files[number].row(int(index - self._starts[number]))

    def token_counts(self, indexes: Rows) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the token counts of texts, and which of the texts were truncated."""
        if not len(indexes):
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        tokens = np.concatenate([file.tokens for file in self._files])
        truncated = np.concatenate([file.truncated for file in self._files])
        return tokens[indexes], truncated[indexes]

    def remember_input(self, address: bytes, model_input: str) -> None:
        """Store a text as the model saw it, so that a later run can show it without the model."""
        if self.folder and self.model_input(address) is None:
            content = seal({"seen": model_input}, indent=None)
            write_file(self.folder / "seen" / f"{address.hex()}.json", content)

    def model_input(self, address: bytes) -> str | None:
        """Return a text as the model saw it; None if it was not stored."""
        with suppress(FileNotFoundError, DamagedError):
            if self.folder:
                path = self.folder / "seen" / f"{address.hex()}.json"
                return str(unseal(path.read_bytes(), path)["seen"])
        return None

    def _file_numbers(self, indexes: Rows) -> Rows:
        return np.searchsorted(self._starts, indexes, side="right") - 1

    def _delete(self, path: Path) -> None:
        with suppress(OSError):
            path.unlink()
        self._warn(f"{path}: the checksum of these {self._content} is wrong; recomputing them.")


def open_cache(
    content: str,
    identity: Mapping[str, object] | None,
    label: str,
    warn: Callable[[str], None],
    *,
    storage: Storage = "float32",
    root: Path | None = None,
) -> EmbeddingCache:
    """Open the cache of a model; without an identity, a cache in the memory of this process.

    The folder depends on the identity alone. The label is stored for people when the folder is
    created; a model that is used under another name keeps its folder and first label.
    """
    if identity is None:
        return EmbeddingCache(storage)
    description = {"schema": _SCHEMA, "model": identity, "storage": storage}
    key = hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:32]
    folder = (root or cache_folder(content)) / key
    if not _read_record(folder):
        write_file(folder / _MODEL_FILE, seal({"label": label, **description}))
    return EmbeddingCache(storage, folder, warn, content)


def hash_texts(prefix: bytes, texts: Iterable[str]) -> Addresses:
    """Return the addresses of texts: a hash of the prefix and the text."""
    start = hashlib.sha256(prefix)
    digests = []
    for text in texts:
        digest = start.copy()
        digest.update(text.encode("utf-8", "surrogatepass"))
        digests.append(digest.digest()[:ADDRESS_BYTES])
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, ADDRESS_BYTES)


def distinct_addresses(addresses: Addresses) -> tuple[Addresses, Rows, Rows]:
    """Return distinct addresses, the first row of each, and the distinct index of every row."""
    encoded = _address_column(addresses).dictionary_encode()
    distinct_indexes = encoded.indices.to_numpy().astype(np.int64)
    first_rows = np.unique(distinct_indexes, return_index=True)[1]
    return addresses[first_rows], first_rows, distinct_indexes


@dataclass(frozen=True)
class CachedModel:
    """Name, size and number of texts of one model in the cache."""

    name: str
    storage: str
    folder: Path
    bytes: int
    texts: int


def cached_models(root: Path | None = None) -> Iterator[CachedModel]:
    """Yield every model with embeddings under `root`; None means the cache in the home folder."""
    for record_path in sorted((root or cache_folder("embeddings")).glob(f"*/{_MODEL_FILE}")):
        folder, record = record_path.parent, _read_record(record_path.parent)
        texts = 0
        for path in folder.glob(f"*{_SUFFIX}"):
            with suppress(DamagedError, OSError):
                texts += len(CacheFile.open(path).tokens)
        yield CachedModel(
            name=str(record.get("label", folder.name)),
            storage=str(record.get("storage", "unreadable")),
            folder=folder,
            bytes=sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
            texts=texts,
        )


def _read_record(folder: Path) -> dict[str, Any]:
    """Return the description in a model's folder; empty if it cannot be read."""
    path = folder / _MODEL_FILE
    with suppress(OSError, DamagedError):
        return unseal(path.read_bytes(), path)
    return {}


def _schema_of(storage: Storage) -> pa.Schema:
    number = pa.float32() if storage == "float32" else pa.float16()
    return pa.schema(
        {
            "address": pa.binary(ADDRESS_BYTES),
            "tokens": pa.int64(),
            "truncated": pa.bool_(),
            "vector": pa.large_list(number),
        }
    )


def _address_column(addresses: Addresses) -> pa.Array:
    data = pa.py_buffer(np.ascontiguousarray(addresses))
    return pa.Array.from_buffers(pa.binary(ADDRESS_BYTES), len(addresses), [None, data])


def _addresses_of(column: pa.Array) -> Addresses:
    data = np.frombuffer(column.buffers()[1], dtype=np.uint8)
    start = column.offset * ADDRESS_BYTES
    return data[start : start + len(column) * ADDRESS_BYTES].reshape(-1, ADDRESS_BYTES)
