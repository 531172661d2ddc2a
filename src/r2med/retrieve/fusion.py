"""Fusion: several rankings of the same queries become one, by rank or by score.

Reciprocal rank fusion reads ranks alone, so scores need not be comparable; the score methods
bring each query's scores to one scale first. Ties are broken by the best rank in any run, then
by document id, so the result does not depend on the order of the runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.runs import Run
from r2med.runs.run import find_positions, offsets_of
from r2med.settings import setting

Method = Literal["rrf", "minmax", "zscore"]
Column = NDArray[np.float64]

#: The constant of reciprocal rank fusion; the Nano protocol was published with another one.
DEFAULT_K = 60
NANO_K = 100


@dataclass(frozen=True)
class Fusion:
    """How runs are fused; without weights every run counts alike."""

    method: Method = "rrf"
    k: int | Literal["auto"] = setting(default="auto", least=0)
    """The constant of reciprocal rank fusion; `auto` is the one that a suite was published with."""
    weights: tuple[float, ...] = setting(default=(), least=0)

    def on(self, suite: str | None) -> Fusion:
        """With the constant that a suite was published with, unless one was chosen."""
        if self.method != "rrf" or self.k != "auto":
            return self
        return replace(self, k=NANO_K if suite == "nano" else DEFAULT_K)

    def fuse(self, runs: Sequence[Run], *, depth: int, filled: Sequence[bool] = ()) -> Run:
        """One run over all queries of the runs; a document is scored where it was found.

        `filled` marks runs whose lists were filled up with documents that match nothing and score
        0 (the published BM25's). Those were not found; they only take part in the scale of a score
        method, whose lowest value is theirs.
        """
        weights = self.weights or (1.0,) * len(runs)
        if self.method == "rrf":
            k = DEFAULT_K if self.k == "auto" else self.k
            shares = [1 / (k + run.ranks) for run in runs]
        else:
            shares = [_scaled(run, self.method) for run in runs]
        shares = [weight * share for share, weight in zip(shares, weights, strict=True)]
        members = zip(runs, filled or [False] * len(runs), strict=True)
        counted = np.concatenate([(run.scores > 0) | (not fills) for run, fills in members])
        return _summed(runs, np.concatenate(shares), np.flatnonzero(counted), depth)


def _scaled(run: Run, method: Method) -> Column:
    """Scores on one scale within a query, the lowest being 0; equal ones count as 1 throughout.

    The scale is the distance from lowest to highest, or the standard deviation. Its zero is the
    lowest score, because a document that a run lacks must not score above one that it ranked.
    """
    low, high = _of_list(run, np.minimum), _of_list(run, np.maximum)
    scale = high - low
    if method == "zscore":
        lengths = np.repeat(run.lengths, run.lengths)
        mean = _of_list(run, np.add) / lengths
        squares = replace(run, scores=(run.scores - mean) ** 2)
        scale = np.where(scale > 0, np.sqrt(_of_list(squares, np.add) / lengths), 0.0)
    shares: Column = np.divide(run.scores - low, scale, out=np.ones(len(low)), where=scale > 0)
    return shares


def _of_list(run: Run, reduce: np.ufunc) -> Column:
    """A figure of each list of scores, repeated for every entry of the list."""
    filled = run.lengths > 0
    if not filled.any():
        return np.empty(0)
    figures = reduce.reduceat(run.scores, run.offsets[:-1][filled])
    return np.repeat(figures, run.lengths[filled])


def _summed(runs: Sequence[Run], share: Column, counted: NDArray[np.int64], depth: int) -> Run:
    """Add up the shares of the entries that count and keep the best `depth` of every query.

    `share` and the places in `counted` are of the entries of all runs, one run after the other.
    """
    queries = pa.chunked_array([run.query_ids for run in runs]).unique().cast(pa.large_string())
    ranked = [run.document_ids.take(pa.array(np.unique(run.documents))) for run in runs]
    names = pa.chunked_array(ranked).unique().cast(pa.large_string())
    names = names.take(pc.sort_indices(names.cast(pa.large_binary())))
    keys = np.concatenate(
        [
            find_positions(run.query_ids, queries)[run.query_rows] * len(names)
            + find_positions(run.document_ids, names)[run.documents]
            for run in runs
        ]
    )[counted]
    ranks, share = np.concatenate([run.ranks for run in runs])[counted], share[counted]
    # Shares are added smallest first, so that a sum does not depend on the order of the runs.
    order = np.lexsort((share, keys))
    pairs, starts = np.unique(keys[order], return_index=True)
    if not len(pairs):
        return Run.from_lists({query: [] for query in queries.to_pylist()})
    scores = np.add.reduceat(share[order], starts)
    best = np.minimum.reduceat(ranks[order], starts)
    rows, documents = np.divmod(pairs, len(names))
    order = np.lexsort((documents, best, -scores, rows))
    lengths = np.bincount(rows, minlength=len(queries))
    return Run(
        query_ids=queries,
        document_ids=names,
        offsets=offsets_of(lengths),
        documents=documents[order].astype(np.int32),
        scores=scores[order],
    ).truncate(depth)
