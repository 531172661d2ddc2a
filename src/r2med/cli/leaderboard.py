"""`r2med leaderboard`: published and measured systems in one ranking."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.measure.intervals import Averaging
    from r2med.report.standing import BoundsOf, Leaderboard
    from r2med.results.record import Result


def leaderboard(
    suite: Annotated[str, typer.Option(help="full, nano or demo.")] = "full",
    kind: Annotated[
        str | None, typer.Option(help="Only base (retrieval alone), gar (expansion) or reranker.")
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric that ranks.")] = "ndcg@10",
    family: Annotated[
        str | None, typer.Option(help="Only the tasks of a family, e.g. 'clinical case'.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="task or query weighted; by default as the suite publishes it."),
    ] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Seconds, tokens and money instead of tasks.")
    ] = False,
    ties: Annotated[
        bool, typer.Option("--ties", help="Best and worst order of ties, where the data is here.")
    ] = False,
    results: Annotated[Path, typer.Option(help="Where measured results are stored.")] = Path(
        "r2med-results"
    ),
    data_root: Annotated[
        Path | None, typer.Option(help="Folder with task data you have, for --ties.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV and nothing else.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table and nothing else.")
    ] = False,
) -> None:
    """Rank published and measured systems, per task and by mean.

    Published figures and yours stand in one table, each labelled. Δ is the gain of an expansion
    or reranker over its own first stage.
    """
    from dataclasses import replace

    from r2med.cli.options import chosen
    from r2med.errors import UsageError
    from r2med.measure.metrics import parse_metric
    from r2med.report.leaderboard import Selection
    from r2med.report.leaderboard import leaderboard as build
    from r2med.results.lineage import KINDS

    if as_json + as_csv + as_markdown > 1:
        raise UsageError("--json, --csv and --markdown: choose one.")
    averagings: tuple[Averaging, ...] = ("task", "query")
    selection = Selection(
        suite=suite.lower(),
        metric=str(parse_metric(metric)),
        kind=chosen(kind, KINDS, "--kind") if kind else None,
        family=family,
        averaging=chosen(mean, averagings, "--mean") if mean else None,
    )
    bounds = _tie_bounds(selection.metric, data_root) if ties else None
    board = build(selection, _stored(results, selection.suite), bounds=bounds)
    board = replace(board, rows=board.rows[:top])
    if as_json or as_csv or as_markdown:
        typer.echo(_written(board, "json" if as_json else "csv" if as_csv else "markdown"))
    else:
        _show(board, cost=cost)


def _stored(folder: Path, suite: str) -> list[Result]:
    if not (folder / suite).is_dir():
        return []
    from r2med.report.console import notice
    from r2med.results.lookup import stored_results

    return stored_results(folder, notice, suite=suite)


def _tie_bounds(metric: str, root: Path | None) -> BoundsOf:
    """Bounds of a stored result, from its task's judgements; None when they are not the same."""
    from typing import cast

    from r2med.errors import R2MedError
    from r2med.measure.bounds import tie_bounds
    from r2med.runs.ties import TieOrder
    from r2med.tasks.load import load_task

    def bounds(result: Result) -> tuple[float, float] | None:
        try:
            task = load_task(result.task, root=root)
        except R2MedError:
            return None
        if task.hash != result.record.task.hash:
            return None
        order = cast(TieOrder, result.record.system.ties)
        found = tie_bounds(result.run, task.judgements, [metric], ties=order)
        return found.worst.means()[metric], found.best.means()[metric]

    return bounds


def _written(board: Leaderboard, form: str) -> str:
    from r2med.report.leaderboard_export import to_csv, to_json, to_markdown

    return {"json": to_json, "csv": to_csv, "markdown": to_markdown}[form](board)


def _show(board: Leaderboard, *, cost: bool) -> None:
    from r2med.report.console import console
    from r2med.report.leaderboard_table import print_leaderboard

    print_leaderboard(board, console(), cost=cost)
