"""`r2med leaderboard`: published and measured systems in one ranking."""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli import options
from r2med.report.console import notice
from r2med.report.formats import show


def leaderboard(
    suite: options.Suite = None,
    task: options.AnyTask = None,
    family: Annotated[
        str | None, typer.Option(help="Only the tasks of a family, e.g. 'clinical case'.")
    ] = None,
    without_flagged: Annotated[
        bool,
        typer.Option(
            "--without-flagged", help="Only tasks that no row's declared training data holds."
        ),
    ] = False,
    kind: options.Kind = None,
    method: Annotated[
        str | None, typer.Option(help="Only rows with this expansion, e.g. hyde.")
    ] = None,
    llm: Annotated[
        str | None, typer.Option(help="The language model, e.g. smollm2 or gpt4.")
    ] = None,
    first_stage: Annotated[
        str | None,
        typer.Option(help="Only expansions and rerankers on this retriever, e.g. nv."),
    ] = None,
    only: options.Only = None,
    metric: options.Metric = options.METRIC,
    mean: Annotated[
        str | None,
        typer.Option(help="task or query weighted; by default as the suite publishes it."),
    ] = None,
    top: options.Top = None,
    cost: Annotated[
        bool, typer.Option("--cost", help="Seconds, tokens and money instead of tasks.")
    ] = False,
    ties: Annotated[
        bool, typer.Option("--ties", help="Best and worst order of ties, where the data is here.")
    ] = False,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Rank published, later and measured systems, per task and by mean.

    Figures of every work and yours stand in one table, each labelled. Δ is the gain of an expansion
    or reranker over its own first stage.
    """
    from r2med.results.leaderboard import leaderboard as ranked
    from r2med.results.store import Store

    shown = options.format_of(form, as_json)
    board = ranked(
        suite,
        task=task,
        family=family,
        without_flagged=without_flagged,
        kind=kind,
        method=method,
        llm=llm,
        first_stage=first_stage,
        only=only or (),
        metric=metric,
        mean=mean,
        top=top,
        ties=ties,
        results=results,
        root=data_root,
        tell=notice,
    )
    show(board, shown, cost=cost)
    if cost and not any(row.cost for row in board.rows):
        others = {folder.parent.parent.name for folder in Store(results).folders()}
        if elsewhere := sorted(others - {board.suite.name}):
            names = " or ".join(f"--suite {name}" for name in elsewhere)
            notice(f"Costs are known of results of yours only; those stored here: {names}.")
