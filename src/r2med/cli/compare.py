"""`r2med compare`: is one system really better than another?"""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli.options import (
    METRIC,
    RESULTS,
    AnyTask,
    DataRoot,
    Json,
    Limit,
    Metric,
    Resamples,
    Results,
    Stored,
)


def compare(
    systems: Stored,
    task: AnyTask = None,
    metric: Metric = METRIC,
    queries: Annotated[
        bool, typer.Option("--queries", help="Of two systems: the queries that moved most.")
    ] = False,
    limit: Limit = 10,
    results: Results = RESULTS,
    data_root: DataRoot = None,
    resamples: Resamples = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Of NEW and OLD: exit with 4 if 'METRIC drops by POINTS' or 'METRIC drops "
            "significantly'. May be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests.

    Without --task, all tasks that the systems share. Differences are A minus B.
    """
    from functools import partial

    from r2med.report.comparison import draw, draw_movement
    from r2med.report.console import console, echo, echo_json, notice
    from r2med.results.compare import compare as compared
    from r2med.results.compare import what_moved
    from r2med.results.gate import Condition

    conditions = [Condition.parse(text) for text in fail_if or ()]
    run = partial(
        compared,
        *systems,
        task=task,
        results=results,
        root=data_root,
        resamples=resamples,
        tell=notice,
    )
    if conditions:
        verdicts = [condition.judge(run(metric=condition.metric)) for condition in conditions]
        if as_json:
            echo_json([verdict.to_json() for verdict in verdicts])
        else:
            echo("\n".join(map(str, verdicts)))
        raise typer.Exit(4 if any(verdict.failed for verdict in verdicts) else 0)
    if queries:
        moved = what_moved(
            *systems, task=task, metric=metric, results=results, root=data_root, tell=notice
        )
        if as_json:
            echo_json([each.to_json() for each in moved])
            return
        for place, each in enumerate(moved):
            if place:
                console().print()
            draw_movement(each, console(), limit=limit)
        return
    comparison = run(metric=metric)
    if as_json:
        echo_json(comparison.to_json())
    else:
        draw(comparison, console())
