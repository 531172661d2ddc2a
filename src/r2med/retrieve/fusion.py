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
import polars as pl
import pyarrow as pa

from r2med.runs import Run
from r2med.settings import setting

Method = Literal["rrf", "minmax", "zscore"]

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

    def fuse(self, runs: Sequence[Run], *, depth: int) -> Run:
        """One run over all queries of the runs; a document is scored where it was found."""
        weights = self.weights or (1.0,) * len(runs)
        if self.method == "rrf":
            k = DEFAULT_K if self.k == "auto" else self.k
            parts = [
                _entries(run).with_columns(part=weight / (k + pl.col("rank")))
                for run, weight in zip(runs, weights, strict=True)
            ]
        else:
            scale = _minmax if self.method == "minmax" else _zscore
            parts = [
                _entries(run).with_columns(part=weight * scale(pl.col("score")))
                for run, weight in zip(runs, weights, strict=True)
            ]
        return _summed(parts, [run.query_ids for run in runs], depth)


def reciprocal_rank_fusion(runs: Sequence[Run], *, k: int = DEFAULT_K, depth: int = 1000) -> Run:
    """Fuse runs over the same queries; a document scores the sum of 1 / (k + rank)."""
    return Fusion("rrf", k).fuse(runs, depth=depth)


def _minmax(score: pl.Expr) -> pl.Expr:
    """Between 0 and 1 within a query; lists whose scores are all equal count as 1 throughout."""
    low, high = score.min().over("query_id"), score.max().over("query_id")
    return pl.when(high > low).then((score - low) / (high - low)).otherwise(1.0)


def _zscore(score: pl.Expr) -> pl.Expr:
    """Distance from the query's mean in standard deviations, moved so that its lowest is 0.

    A document that a run lacks must not score above one that it ranked, hence the move.
    """
    low, spread = score.min().over("query_id"), score.std(ddof=0).over("query_id")
    return pl.when(spread > 0).then((score - low) / spread).otherwise(1.0)


def _entries(run: Run) -> pl.DataFrame:
    frame = pl.from_arrow(run.to_table())
    assert isinstance(frame, pl.DataFrame)
    return frame


def _summed(
    parts: Sequence[pl.DataFrame], query_ids: Sequence[pa.LargeStringArray], depth: int
) -> Run:
    queries = pa.chunked_array(query_ids).unique().cast(pa.large_string())
    places = pl.DataFrame({"query_id": pl.Series(queries), "query": np.arange(len(queries))})
    fused = (
        pl.concat([part.select("query_id", "document_id", "rank", "part") for part in parts])
        .group_by("query_id", "document_id")
        .agg(score=pl.col("part").sort().sum(), best=pl.col("rank").min())
        .join(places, on="query_id")
        .sort(
            ["query", "score", "best", "document_id"],
            descending=[False, True, False, False],
        )
        .group_by("query", maintain_order=True)
        .head(depth)
    )
    lengths = np.bincount(fused["query"].to_numpy(), minlength=len(queries))
    documents = fused["document_id"].to_arrow().cast(pa.large_string()).dictionary_encode()
    return Run(
        query_ids=queries,
        document_ids=documents.dictionary,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        documents=documents.indices.to_numpy(zero_copy_only=False).astype(np.int32),
        scores=fused["score"].to_numpy(),
    )
