"""A column of texts as blocks of bytes: whole rows, blanks between them, small enough to cache."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_BLOCK = 1 << 20
"""Bytes of text a block: the arrays made of it stay in the processor's cache."""

Texts: TypeAlias = pa.Array | pa.ChunkedArray
Block: TypeAlias = tuple[bytes, NDArray[np.int64]]


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
