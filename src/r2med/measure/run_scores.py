"""Scores of a run file against a judgements file, without the texts of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from r2med.measure.aspects import AspectScores, measure_aspects
from r2med.measure.intervals import Interval, mean_interval
from r2med.measure.metrics import HEADLINE, JUDGED, Metric
from r2med.measure.scores import Scores, measure
from r2med.runs.exclusions import remove_excluded
from r2med.runs.files import Repeats, read_run
from r2med.tables import Tabular, make_table
from r2med.tasks.reading.aspects import read_aspects
from r2med.tasks.reading.collection import read_judgements
from r2med.tasks.reading.exclusions import Exclusions, remove_excluded_judgements
from r2med.tasks.task import Judgements


@dataclass(frozen=True, eq=False)
class RunScores(Tabular):
    """The scores of a run file."""

    run: str
    judgements: str
    scores: Scores
    missing: int
    """Number of judged queries that the run lacks; they score 0."""
    unjudged: int
    """Number of queries in the run without judgements; they are not scored."""
    repeated: int
    """Number of documents that the run listed twice for one query; one line of each was used."""
    excluded: int = 0
    """Number of documents that were removed because their query excludes them."""
    aspects: AspectScores | None = None
    """Scores over aspects; None if the judgements have no aspects."""

    is_drawn = True

    @property
    def means(self) -> dict[str, float]:
        """The mean of every metric."""
        return self.scores.means()

    def interval(self, metric: str) -> Interval:
        """The 95 % confidence interval of a mean."""
        return mean_interval(self.scores[metric])

    def to_arrow(self) -> pa.Table:
        """One row per metric: mean and confidence interval."""
        rows = [
            {"metric": name, "mean": mean, **vars(self.interval(name))}
            for name, mean in self.means.items()
        ]
        return make_table({"metric": str, "mean": float, "low": float, "high": float}, rows)

    def to_json(self) -> dict[str, Any]:
        """The means, and the queries and documents that need attention."""
        return {
            "run": self.run,
            "judgements": self.judgements,
            "queries": len(self.scores),
            "metrics": self.means,
            "missing_queries": self.missing,
            "unjudged_queries": self.unjudged,
            "repeated_documents": self.repeated,
            "excluded_documents": self.excluded,
            "aspects": self.aspects.to_json() if self.aspects else None,
        }


def score_run_file(
    run: Path,
    judgements: Path,
    metrics: Sequence[str | Metric] = (*HEADLINE, JUDGED),
    *,
    repeats: Repeats = "refuse",
    exclusions: Exclusions | None = None,
) -> RunScores:
    """Measure a run file against a judgements file; no corpus is needed.

    Args:
        run: A run file (TREC or Parquet).
        judgements: Judgements as JSON lines, TREC or BEIR text.
        metrics: The metrics to measure.
        repeats: Whether a document listed twice for a query is an error, or which line counts.
        exclusions: Documents that do not count for single queries.
    """
    rows = read_judgements(judgements)
    columns = rows.columns
    judged = Judgements(columns["query"], columns["document"], columns["score"].to_numpy())
    ranked, oddities = read_run(run, repeats=repeats)
    excluded = 0
    if exclusions:
        judged = remove_excluded_judgements(judged, exclusions)
        ranked, excluded = remove_excluded(ranked, exclusions)
    result = measure(ranked, judged, metrics)
    aspects = read_aspects(judgements)
    if exclusions:
        aspects = [
            row for row in aspects if row.document_id not in exclusions.get(row.query_id, ())
        ]
    run_queries = set(ranked.query_ids.to_pylist())
    judged_queries = set(result.query_ids.to_pylist())
    return RunScores(
        run=str(run),
        judgements=str(judgements),
        scores=result,
        missing=len(judged_queries - run_queries),
        unjudged=len(run_queries - judged_queries),
        repeated=oddities.repeated_documents,
        excluded=excluded,
        aspects=measure_aspects(ranked, aspects) if aspects else None,
    )
