"""`r2med leaderboard`: published and measured systems in one ranking."""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli.options import METRIC, RESULTS, DataRoot, Json, Kind, Metric, Results, Suite, Top
from r2med.errors import UsageError


def leaderboard(
    suite: Suite = "full",
    kind: Kind = None,
    metric: Metric = METRIC,
    family: Annotated[
        str | None, typer.Option(help="Only the tasks of a family, e.g. 'clinical case'.")
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="task or query weighted; by default as the suite publishes it."),
    ] = None,
    top: Top = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Seconds, tokens and money instead of tasks.")
    ] = False,
    ties: Annotated[
        bool, typer.Option("--ties", help="Best and worst order of ties, where the data is here.")
    ] = False,
    results: Results = RESULTS,
    data_root: DataRoot = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV and nothing else.")] = False,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", help="Print a Markdown table and nothing else.")
    ] = False,
) -> None:
    """Rank published and measured systems, per task and by mean.

    Published figures and yours stand in one table, each labelled. Δ is the gain of an expansion
    or reranker over its own first stage.
    """
    from r2med.report.console import console, echo, echo_json, notice
    from r2med.report.leaderboard import draw, to_markdown
    from r2med.results.leaderboard import leaderboard as ranked

    if as_json + as_csv + as_markdown > 1:
        raise UsageError("--json, --csv and --markdown: choose one.")
    board = ranked(
        suite,
        metric=metric,
        kind=kind,
        family=family,
        mean=mean,
        top=top,
        ties=ties,
        results=results,
        root=data_root,
        tell=notice,
    )
    if as_json:
        echo_json(board.to_json())
    elif as_csv:
        echo(board.to_csv().rstrip("\n"))
    elif as_markdown:
        echo(to_markdown(board))
    else:
        draw(board, console(), cost=cost)
