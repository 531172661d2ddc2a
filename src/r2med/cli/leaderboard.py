"""`r2med leaderboard`: published and measured systems in one ranking."""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli import options
from r2med.errors import MissingError
from r2med.report.console import notice
from r2med.report.formats import show


def leaderboard(
    context: typer.Context,
    suite: options.Suite = None,
    task: options.AnyTask = None,
    family: Annotated[
        str | None, options.option(help="Only the tasks of a family, e.g. 'clinical case'.")
    ] = None,
    without_flagged: Annotated[
        bool,
        options.option(
            "--without-flagged", help="Only tasks that are in no row's declared training data."
        ),
    ] = False,
    kind: options.Kind = None,
    method: Annotated[
        str | None, options.option(help="Only rows with this expansion, e.g. hyde.")
    ] = None,
    llm: options.Llm = None,
    first_stage: Annotated[
        str | None,
        options.option(help="Only expansions and rerankers on this retriever, e.g. nv."),
    ] = None,
    only: options.Only = None,
    metric: options.Metric = options.METRIC,
    mean: Annotated[
        str | None,
        options.option(help="task or query weighted; by default as the suite publishes it."),
    ] = None,
    top: options.Top = None,
    body_system: Annotated[
        str | None,
        options.option(
            "--body-system",
            help="Rank your results on the queries about one body system, e.g. Digestive.",
        ),
    ] = None,
    cost: Annotated[
        bool,
        options.option(
            "--cost",
            heading=options.OUTPUT,
            help="Show seconds, tokens and money instead of tasks.",
        ),
    ] = False,
    legend: Annotated[
        bool,
        options.option(
            "--legend", heading=options.OUTPUT, help="Explain every column below the table."
        ),
    ] = False,
    ties: Annotated[
        bool,
        options.option(
            "--ties",
            heading=options.OUTPUT,
            help="Show scores for the best and worst order of ties.",
        ),
    ] = False,
    judgements: options.Judgements = "benchmark",
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Rank published systems and your results, per task and by mean.

    Published figures, those of later works and your results are in one table, each labelled. Δ is
    the gain of an expansion or reranker over its first stage.
    """
    from r2med.judge.choice import results_with_judgements
    from r2med.results.leaderboard import leaderboard as ranked
    from r2med.results.store import Store

    output_format = options.format_of(form, as_json)
    if body_system is not None:
        options.refuse_unread(context, "with --body-system", "cost", "legend", "ties", "mean")
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
        results=results_with_judgements(results, judgements, root=data_root, warn=notice),
        root=data_root,
        tell=notice,
    )
    if board.judgements and not board.rows and not board.hidden:
        raise MissingError(
            f"no result of suite {board.suite.name} was measured with {board.judgements}.\n"
            "Name the suite or the tasks that have such judgements: --suite demo, --task TASK; see "
            "r2med judge list."
        )
    if body_system is not None:
        from r2med.results.body_systems import score_board_by_body_system

        scores = score_board_by_body_system(board, top=top, root=data_root)
        show(scores.of(body_system), output_format)
        return
    show(board, output_format, cost=cost, legend=legend)
    if cost and not any(row.cost for row in board.rows):
        stored_suites = {folder.parent.parent.name for folder in Store(results).folders()}
        suites = {"full", "nano", "demo", "local"} - {board.suite.name}
        if elsewhere := sorted(stored_suites & suites):
            names = " or ".join(f"--suite {name}" for name in elsewhere)
            notice(f"No costs are known for this suite. You have results with {names}.")
