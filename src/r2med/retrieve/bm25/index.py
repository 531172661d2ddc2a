"""The inverted index: for each term, the documents that contain it and how often."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.paths import cache_folder
from r2med.retrieve.bm25.analyzers import TermStream
from r2med.retrieve.bm25.words import (
    ByteWords,
    Keys,
    NumberedRows,
    Numbers,
    Positions,
)
from r2med.retrieve.threads import drain, map_in_threads
from r2med.runs.run import offsets_of
from r2med.storage import read_sealed, release_memory, write_sealed

#: Changed with every change of the content of an index file.
_FORMAT = 2


@cache
def load_sparse_loops() -> Any:
    """Return the compiled module behind scipy's sparse matrices.

    It is loaded from its file, because importing `scipy.sparse` takes longer than most searches.
    """
    package = find_spec("scipy")
    folders = (package.submodule_search_locations if package else None) or []
    sparse = [str(Path(folder, "sparse")) for folder in folders]
    spec = PathFinder.find_spec("scipy.sparse._sparsetools", sparse)
    if spec is None or spec.loader is None:
        from scipy.sparse import _sparsetools

        return _sparsetools
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True, eq=False)
class Index:
    """An inverted index: term `t` occurs in the documents `rows[offsets[t]:offsets[t + 1]]`.

    These rows are ascending, and `counts` has the number of occurrences in each. An index depends
    only on the texts and the analyzer, so all variants with the same analyzer share it.
    """

    words: ByteWords
    keys: Keys
    offsets: Positions
    rows: Numbers
    counts: NDArray[np.unsignedinteger]
    lengths: Numbers

    def __len__(self) -> int:
        """Number of documents, including empty ones and repeated ids."""
        return len(self.lengths)

    @cached_property
    def average_length(self) -> float:
        """Mean number of terms per document."""
        return float(self.lengths.mean(dtype=np.float64)) if len(self) else 0.0

    def find(self, keys: Keys) -> Positions:
        """Return the numbers of the terms with these keys; -1 for keys that no term has."""
        if not len(self.keys):
            return np.full(len(keys), -1, dtype=np.int64)
        numbers = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[numbers] == keys, numbers, -1)


def build_index(stream: TermStream) -> Index:
    """Count the terms of every document, in groups of documents that are merged at the end.

    Groups are freed while they are merged, so that memory holds little more than the index.
    """
    load_sparse_loops()  # before two threads need it
    groups = deque(map_in_threads(_count_terms, stream.groups()))
    release_memory()
    terms = stream.sorted_terms()
    offsets = np.zeros(len(terms.keys) + 1, dtype=np.int64)
    for group in groups:
        offsets[terms.ranks[group.terms] + 1] += group.frequencies
    np.cumsum(offsets, out=offsets)
    count_type = np.result_type(np.uint8, *{group.counts.dtype for group in groups})
    rows = np.empty(offsets[-1], dtype=np.int32)
    counts = np.empty(offsets[-1], dtype=count_type)
    lengths = np.concatenate([np.empty(0, np.int32), *(group.lengths for group in groups)])

    def assign_positions() -> Iterator[_MergeStep]:
        """For each group, yield its first row, and where the postings of each of its terms begin.

        The positions refer to the merged arrays.
        """
        first_row, next_positions = 0, offsets[:-1].copy()
        for group in drain(groups):
            group_terms = terms.ranks[group.terms]
            yield _MergeStep(group, first_row, next_positions[group_terms])
            first_row += len(group.lengths)
            next_positions[group_terms] += group.frequencies

    def copy_postings(step: _MergeStep) -> None:
        group = step.group
        shifts = step.starts - offsets_of(group.frequencies)[:-1]
        positions = np.arange(len(group.rows))
        positions += np.repeat(shifts, group.frequencies)
        rows[positions] = group.rows + np.int32(step.first_row)
        counts[positions] = group.counts

    deque(map_in_threads(copy_postings, assign_positions()), maxlen=0)
    release_memory()
    return Index(terms.words, terms.keys, offsets, rows, counts, lengths)


@dataclass(frozen=True, eq=False)
class _GroupPostings:
    """The postings of a group of documents, by term, then row; the first row of the group is 0."""

    terms: Positions
    frequencies: Numbers
    rows: NDArray[np.unsignedinteger]
    counts: NDArray[np.unsignedinteger]
    lengths: Numbers


@dataclass(frozen=True, eq=False)
class _MergeStep:
    """A group of postings, its first row, and where the postings of its terms begin when merged."""

    group: _GroupPostings
    first_row: int
    starts: Positions


def _count_terms(group: NumberedRows) -> _GroupPostings:
    """Return the postings of a group of documents, with a count for each term and document."""
    row_count, term_count = len(group.lengths), int(group.numbers.max(initial=-1)) + 1
    row_starts = offsets_of(group.lengths).astype(np.int32)
    bounds = np.empty(term_count + 1, dtype=np.int32)
    rows, counts = np.empty_like(group.numbers), np.empty_like(group.numbers)
    ones = np.ones_like(group.numbers)
    loops = load_sparse_loops()
    loops.csr_tocsc(row_count, term_count, row_starts, group.numbers, ones, bounds, rows, counts)
    loops.csr_sum_duplicates(term_count, row_count, bounds, rows, counts)
    postings = int(bounds[-1])
    rows, counts = rows[:postings], counts[:postings]
    frequencies = np.diff(bounds)
    terms = np.flatnonzero(frequencies)
    return _GroupPostings(
        terms=terms,
        frequencies=frequencies[terms],
        rows=rows.astype(np.min_scalar_type(row_count)),
        counts=counts.astype(np.min_scalar_type(counts.max(initial=0))),
        lengths=group.lengths.astype(np.int32),
    )


def index_path(corpus_hash: str, analysis: str) -> Path:
    """Return the path of the index of a corpus; `analysis` is the identity of the analyzer."""
    return cache_folder("indexes") / "bm25" / analysis / f"{corpus_hash}-{_FORMAT}.arrow"


def write_index(index: Index, path: Path) -> None:
    """Store an index in a file with a checksum; each array is a batch of one column."""
    arrays = {
        "words": index.words.data,
        "word_offsets": index.words.offsets,
        "keys": index.keys,
        "offsets": index.offsets,
        "rows": index.rows,
        "counts": index.counts,
        "lengths": index.lengths,
    }
    columns = {name: pa.array(np.ascontiguousarray(array)) for name, array in arrays.items()}
    write_sealed(path, [pa.record_batch({name: column}) for name, column in columns.items()])


def read_index(path: Path) -> Index:
    """Map a stored index into memory; DamagedError if the checksum of its file does not match."""
    arrays = {batch.schema.names[0]: batch.column(0).to_numpy() for batch in read_sealed(path)}
    return Index(words=ByteWords(arrays.pop("words"), arrays.pop("word_offsets")), **arrays)
