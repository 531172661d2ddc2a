"""Sums of weighted postings: the one loop that searching spends its time in, in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.bm25.weighting import Weights

Bounds = NDArray[np.int64]
Product = Callable[..., None]

_MOST_POSTINGS = np.iinfo(np.int32).max


def add_postings(
    sums: Weights,
    rows: NDArray[np.int32],
    impacts: Weights,
    bounds: tuple[Bounds, Bounds],
    weights: Weights,
) -> None:
    """Add `weights[i]` times the impacts from `bounds[0][i]` to `bounds[1][i]` to their rows' sums.

    Bounds are those of distinct terms, ascending. They become columns of a sparse matrix without
    copying a posting: taken from the last to the first, the bounds between two wanted columns run
    backwards, which is an empty column. Terms are added in that order whatever the row, so that
    equal documents come to equal sums.
    """
    product = compiled_product()
    if product is None or len(rows) > _MOST_POSTINGS:
        sums += _summed(rows, impacts, bounds, weights, len(sums))
        return
    columns = np.empty(2 * len(weights) + 1, dtype=np.int32)
    columns[0:-1:2], columns[1::2] = bounds[0][::-1], bounds[1][::-1]
    columns[-1] = 0
    scales = np.zeros(2 * len(weights))
    scales[::2] = weights[::-1]
    product(len(sums), len(scales), columns, rows, impacts, scales, sums)


def _summed(
    rows: NDArray[np.int32],
    impacts: Weights,
    bounds: tuple[Bounds, Bounds],
    weights: Weights,
    length: int,
) -> Weights:
    """The same in array operations, at five times the cost."""
    places = list(zip(bounds[0].tolist(), bounds[1].tolist(), strict=True))[::-1]
    if not places:
        return np.zeros(length)
    found = np.concatenate([rows[start:end] for start, end in places])
    scaled = np.concatenate([impacts[start:end] for start, end in places])
    scaled *= np.repeat(weights[::-1], (bounds[1] - bounds[0])[::-1])
    return np.bincount(found, scaled, minlength=length).astype(np.float64, copy=False)


@cache
def compiled_product() -> Product | None:
    """The loop behind scipy's sparse products, `sums += matrix @ scales`; None where it is not.

    Its compiled file is loaded alone: importing `scipy.sparse` takes longer than most searches.
    """
    import scipy

    folder = Path(scipy.__file__).parent / "sparse"
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_sparsetools{suffix}"
        if path.exists():
            return getattr(_load(path), "csc_matvec", None)
    return None


def _load(path: Path) -> Any:
    spec = spec_from_file_location("scipy.sparse._sparsetools", path)
    if spec is None or spec.loader is None:
        return None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
