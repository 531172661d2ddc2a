"""Fuse several rankings of the same queries into one, by rank or by score.

Reciprocal rank fusion uses ranks alone, so scores need not be comparable; the score methods
scale the scores of each query first. Ties are broken by the best rank in any run, then by document
id, so the result does not depend on the order of the runs.
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
    """How runs are fused; without weights, all runs have the same weight."""

    method: Method = "rrf"
    k: int | Literal["auto"] = setting(default="auto", least=0)
    """The constant of reciprocal rank fusion; `auto` is the published value of the suite."""
    weights: tuple[float, ...] = setting(default=(), least=0)

    def on(self, suite: str | None) -> Fusion:
        """Return a copy with the published constant of a suite as `k`.

        If `k` is set, the object itself is returned.
        """
        if self.method != "rrf" or self.k != "auto":
            return self
        return replace(self, k=NANO_K if suite == "nano" else DEFAULT_K)

    def fuse(self, runs: Sequence[Run], *, depth: int, filled: Sequence[bool] = ()) -> Run:
        """Return one run over all queries of the runs.

        A document gets a share of the score from every run that retrieved it.

        Args:
            runs: The runs to fuse.
            depth: Documents per query.
            filled: Which runs have lists that were filled up with documents of score 0 that match
                no term (as the published BM25 does). Those documents do not count as retrieved;
                they only lower the minimum by which a score method scales.

        """
        weights = self.weights or (1.0,) * len(runs)
        if self.method == "rrf":
            k = DEFAULT_K if self.k == "auto" else self.k
            shares = [1 / (k + run.ranks) for run in runs]
        else:
            shares = [_scale_scores(run, self.method) for run in runs]
        shares = [weight * share for share, weight in zip(shares, weights, strict=True)]
        is_retrieved = []
        for index, run in enumerate(runs):
            is_filled = bool(filled) and filled[index]
            is_retrieved.append(
                run.scores > 0 if is_filled else np.ones(len(run.scores), dtype=np.bool_)
            )
        entries = np.flatnonzero(np.concatenate(is_retrieved))
        return _sum_shares(runs, np.concatenate(shares), entries, depth)


def _scale_scores(run: Run, method: Method) -> Column:
    """Scale the scores of each query so that the lowest is 0; if all are equal, each is 1.

    Scores are divided by the range from the lowest to the highest, or by the standard deviation.
    The lowest is 0, because a document that a run does not list must not score above a listed one.
    """
    low, high = _reduce_lists(run, np.minimum), _reduce_lists(run, np.maximum)
    scale = high - low
    if method == "zscore":
        lengths = np.repeat(run.lengths, run.lengths)
        mean = _reduce_lists(run, np.add) / lengths
        squares = replace(run, scores=(run.scores - mean) ** 2)
        scale = np.where(scale > 0, np.sqrt(_reduce_lists(squares, np.add) / lengths), 0.0)
    shares: Column = np.divide(run.scores - low, scale, out=np.ones(len(low)), where=scale > 0)
    return shares


def _reduce_lists(run: Run, reduce: np.ufunc) -> Column:
    """Reduce the scores of each list to one number, and repeat it for every entry of the list."""
    has_entries = run.lengths > 0
    if not has_entries.any():
        return np.empty(0)
    figures = reduce.reduceat(run.scores, run.offsets[:-1][has_entries])
    return np.repeat(figures, run.lengths[has_entries])


def _sum_shares(runs: Sequence[Run], share: Column, counted: NDArray[np.int64], depth: int) -> Run:
    """Add up the shares of each document, and keep the best `depth` documents of every query.

    `share` has a value for every entry of all runs, one run after the other. `counted` has the
    indexes of the entries that are added.
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
