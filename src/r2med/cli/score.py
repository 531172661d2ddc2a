"""`r2med score`: measure a run file against a judgements file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.options import format_of
from r2med.errors import UsageError
from r2med.report.formats import show


def score(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run file, TREC or Parquet.")],
    judgements: Annotated[
        Path, typer.Argument(metavar="QRELS", help="Judgements: JSON lines, TREC or BEIR text.")
    ],
    metrics: options.Metrics = None,
    repeats: Annotated[
        str,
        typer.Option(
            "--repeats",
            metavar="CHOICE",
            help="A document listed twice for a query: refuse it, or use its first or last line.",
        ),
    ] = "refuse",
    exclude: Annotated[
        Path | None,
        typer.Option(
            "--exclude",
            metavar="FILE",
            help="JSON lines with excluded_ids of queries, as in BRIGHT; they do not count.",
        ),
    ] = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Measure a run file against a judgements file.

    No task and no corpus are needed, and nothing is stored. To store a run as a result, evaluate
    `run:PATH` on its task.
    """
    from r2med.measure.metrics import HEADLINE, JUDGED, parse_metrics
    from r2med.measure.run_scores import score_run_file
    from r2med.tasks.reading.exclusions import read_exclusions

    if repeats not in ("refuse", "first", "last"):
        raise UsageError(f"--repeats {repeats}: expected refuse, first or last.")
    chosen = parse_metrics(metrics) if metrics else (*HEADLINE, JUDGED)
    exclusions = read_exclusions(exclude) if exclude else None
    scores = score_run_file(
        run,
        judgements,
        chosen,
        repeats=repeats,  # type: ignore[arg-type]
        exclusions=exclusions,
    )
    show(scores, format_of(form, as_json))
