"""A result: run, per-query scores and provenance; all that reports and comparisons ever read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import cast

import pyarrow.parquet as pq

from r2med.measure import Scores, TieOrder
from r2med.results.record import Record
from r2med.runs import Run
from r2med.runs.ordering import ordered

RECORD_FILE = "result.json"
RUN_FILE = "run.parquet"
SCORES_FILE = "scores.parquet"


@dataclass(frozen=True, eq=False)
class Result:
    """One system on one task, as stored in `folder`; tables are read when first asked for."""

    folder: Path
    record: Record
    reused: bool = False
    """True when the result was already there and nothing was run."""

    @property
    def system(self) -> str:
        """The text that names the system."""
        return self.record.system.spec

    @property
    def task(self) -> str:
        """The task's name."""
        return self.record.task.name

    @property
    def suite(self) -> str | None:
        """The task's suite; None for data of the user's own."""
        return self.record.task.suite

    @property
    def metrics(self) -> Mapping[str, float]:
        """Mean over the judged queries, by metric name."""
        return self.record.metrics

    @property
    def seconds(self) -> Mapping[str, float]:
        """Seconds by stage."""
        return self.record.seconds

    @cached_property
    def scores(self) -> Scores:
        """One row per judged query, one column per metric."""
        return Scores.from_arrow(pq.read_table(self.folder / SCORES_FILE))

    @cached_property
    def run(self) -> Run:
        """The ranked lists as the system returned them."""
        return Run.from_parquet(self.folder / RUN_FILE)

    @property
    def ranked(self) -> Run:
        """The ranked lists in the order in which they were measured: a document's rank is here."""
        return ordered(self.run, cast(TieOrder, self.record.system.ties))

    def __repr__(self) -> str:
        ndcg = self.metrics.get("ndcg@10", float("nan"))
        return f"Result(system={self.system!r}, task={self.task!r}, ndcg@10={ndcg:.4f})"
