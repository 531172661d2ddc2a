"""A column of texts as blocks of bytes: whole rows, blanks between them, small enough to cache."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice, pairwise
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_BLOCK = 1 << 19
"""Bytes of text a block: the arrays made of it stay in the processor's cache."""

_THREADS = 2
"""Array operations release the interpreter, so that a second thread pays; more do not."""

Texts: TypeAlias = pa.Array | pa.ChunkedArray
Block: TypeAlias = tuple[bytes, NDArray[np.int64]]
T = TypeVar("T")
U = TypeVar("U")


def text_blocks(texts: Texts, *, padding: int) -> Iterator[Block]:
    """Blocks, each with the place of every row in it; nulls count as empty rows.

    A block begins with a blank, has one after every row, and ends with `padding` more.
    """
    blank, end = pa.scalar("\n", pa.large_string()), b"\n" * padding
    for column in texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]:
        column = column.fill_null("").cast(pa.large_string())
        offsets = _offsets(column)
        bounds = np.searchsorted(offsets, np.arange(offsets[0], offsets[-1], _BLOCK))
        edges = np.unique(np.concatenate([[0], bounds, [len(column)]]))
        for first, last in pairwise(edges.tolist()):
            rows = pa.LargeListArray.from_arrays([0, last - first], column[first:last])
            text = pc.binary_join(rows, blank)[0].as_buffer()
            starts = offsets[first:last] - offsets[first] + np.arange(1, last - first + 1)
            yield b"".join([b"\n", text, end]), starts


def _offsets(column: pa.LargeStringArray) -> NDArray[np.int64]:
    if not len(column):
        return np.zeros(1, dtype=np.int64)
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int64)
    return offsets[column.offset : column.offset + len(column) + 1]


def in_threads(work: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """Do work on items in a few threads; results come in order, and only a few wait at a time."""
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[U]] = deque()
        for item in chain(first, items):
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
