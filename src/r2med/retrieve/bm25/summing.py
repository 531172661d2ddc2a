"""Sums of weighted postings: the one loop that searching spends its time in, in compiled code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


@dataclass(frozen=True, eq=False)
class Postings:
    """The documents of all terms, one term after the other, and what each adds to a score."""

    rows: NDArray[np.int32]
    impacts: Weights
    product: Product | None = field(default_factory=compiled_product)

    def add(self, sums: Weights, bounds: tuple[Bounds, Bounds], weights: Weights) -> None:
        """Add `weights[i]` times the impacts from `bounds[0][i]` to `bounds[1][i]` to their rows.

        Bounds are those of distinct terms, ascending. They become columns of a sparse matrix
        without copying a posting: taken from the last to the first, the bounds between two wanted
        columns run backwards, which is an empty column. Terms are added in that order whatever the
        row, so that equal documents come to equal sums.
        """
        if self.product is None or len(self.rows) > _MOST_POSTINGS:
            sums += self._summed(bounds, weights, len(sums))
            return
        columns = np.empty(2 * len(weights) + 1, dtype=np.int32)
        columns[0:-1:2], columns[1::2] = bounds[0][::-1], bounds[1][::-1]
        columns[-1] = 0
        scales = np.zeros(2 * len(weights))
        scales[::2] = weights[::-1]
        self.product(len(sums), len(scales), columns, self.rows, self.impacts, scales, sums)

    def _summed(self, bounds: tuple[Bounds, Bounds], weights: Weights, length: int) -> Weights:
        """The same in array operations, at five times the cost."""
        places = list(zip(bounds[0].tolist(), bounds[1].tolist(), strict=True))[::-1]
        if not places:
            return np.zeros(length)
        found = np.concatenate([self.rows[start:end] for start, end in places])
        scaled = np.concatenate([self.impacts[start:end] for start, end in places])
        scaled *= np.repeat(weights[::-1], (bounds[1] - bounds[0])[::-1])
        return np.bincount(found, scaled, minlength=length).astype(np.float64, copy=False)
