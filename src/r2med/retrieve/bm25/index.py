"""The inverted index: for each term its documents and counts, in memory and in its file."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import let_go, read_sealed, write_sealed
from r2med.home import shelf
from r2med.retrieve.bm25.words import ByteWords, Group, Keys, Places, in_threads, taken
from r2med.runs.run import offsets_of

#: Raised with every change of what the file of an index holds.
_FORMAT = 2


@cache
def compiled() -> Any:
    """The compiled loops behind scipy's sparse matrices.

    Their file is loaded alone: importing `scipy.sparse` takes longer than most searches.
    """
    import scipy

    folder = str(Path(scipy.__file__).parent / "sparse")
    spec = PathFinder.find_spec("scipy.sparse._sparsetools", [folder])
    if spec is None or spec.loader is None:
        from scipy.sparse import _sparsetools

        return _sparsetools
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, eq=False)
class Index:
    """Postings of term `t`: `rows[offsets[t]:offsets[t + 1]]`, ascending, and `counts` beside.

    It depends on the texts and their analysis alone, so that all weightings share it.
    """

    words: ByteWords
    keys: Keys
    offsets: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.unsignedinteger]
    lengths: NDArray[np.int32]

    def __len__(self) -> int:
        """Number of documents, empty ones and repeated ids included."""
        return len(self.lengths)

    @cached_property
    def average_length(self) -> float:
        """Mean number of terms a document."""
        return float(self.lengths.mean(dtype=np.float64)) if len(self) else 0.0

    def find(self, keys: Keys) -> NDArray[np.int64]:
        """The numbers of the terms with these keys, -1 for unknown ones."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)


def build_index(tokens: tuple[ByteWords, Keys, deque[Group]]) -> Index:
    """Count every term of every document: a part of the corpus at a time, then join them.

    What is held at once are the words' numbers, or the parts and the index; groups and parts are
    forgotten as they are used.
    """
    compiled()  # Before two threads ask for it.
    words, keys, groups = tokens
    parts = deque(in_threads(lambda group: _part(group, len(words)), taken(groups)))
    let_go()
    offsets = np.zeros(len(words) + 1, dtype=np.int64)
    for part in parts:
        offsets[part.terms + 1] += part.frequencies
    np.cumsum(offsets, out=offsets)
    rows = np.empty(offsets[-1], dtype=np.int32)
    counts = np.empty(offsets[-1], np.result_type(np.uint8, *{part.counts.dtype for part in parts}))
    lengths = np.concatenate([np.empty(0, np.int32), *(part.lengths for part in parts)])

    def following() -> Iterator[tuple[_Part, int, Places]]:
        """Each part, its first row in the corpus, and where postings of each of its terms go."""
        first, places = 0, offsets[:-1].copy()
        for part in taken(parts):
            yield part, first, places[part.terms]
            first += len(part.lengths)
            places[part.terms] += part.frequencies

    def placed(item: tuple[_Part, int, Places]) -> None:
        part, first, starts = item
        starts -= offsets_of(part.frequencies)[:-1]
        places = np.repeat(starts, part.frequencies) + np.arange(len(part.rows))
        rows[places] = part.rows + np.int32(first)
        counts[places] = part.counts

    deque(in_threads(placed, following()), maxlen=0)
    let_go()
    return Index(words, keys, offsets, rows, counts, lengths)


@dataclass(frozen=True, eq=False)
class _Part:
    """The postings of some documents, ordered by term, then row; rows count from its first."""

    terms: Places
    frequencies: NDArray[np.int32]
    rows: NDArray[np.unsignedinteger]
    counts: NDArray[np.unsignedinteger]
    lengths: NDArray[np.int32]


def _part(group: Group, vocabulary: int) -> _Part:
    """A group's terms as a sparse matrix of documents and terms, turned round and added up."""
    words, lengths = group
    shape = (len(lengths), vocabulary)
    starts = offsets_of(lengths).astype(np.int32)
    bounds = np.empty(shape[1] + 1, dtype=np.int32)
    rows, counts = np.empty_like(words), np.empty_like(words)
    compiled().csr_tocsc(*shape, starts, words, np.ones_like(words), bounds, rows, counts)
    compiled().csr_sum_duplicates(*shape[::-1], bounds, rows, counts)
    rows, counts, frequencies = rows[: bounds[-1]], counts[: bounds[-1]], np.diff(bounds)
    terms = np.flatnonzero(frequencies)
    return _Part(
        terms=terms,
        frequencies=frequencies[terms],
        rows=rows.astype(np.min_scalar_type(shape[0])),
        counts=counts.astype(np.min_scalar_type(counts.max(initial=0))),
        lengths=lengths.astype(np.int32),
    )


def index_path(corpus_hash: str, analysis: str) -> Path:
    """Where the index of this corpus under this analysis is kept."""
    return shelf("indexes") / "bm25" / analysis / f"{corpus_hash}-{_FORMAT}.arrow"


def write_index(index: Index, path: Path) -> None:
    """Keep an index: each array is a batch of one column."""
    arrays = {"words": index.words.data, "word_offsets": index.words.offsets}
    others = ("keys", "offsets", "rows", "counts", "lengths")
    arrays |= {name: getattr(index, name) for name in others}
    columns = {name: pa.array(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_sealed(path, [pa.record_batch({name: column}) for name, column in columns.items()])


def read_index(path: Path) -> Index:
    """Map a kept index into memory; DamagedError where it is not what was written."""
    arrays = {batch.schema.names[0]: batch.column(0).to_numpy() for batch in read_sealed(path)}
    return Index(words=ByteWords(arrays.pop("words"), arrays.pop("word_offsets")), **arrays)
