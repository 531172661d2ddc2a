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
    as_json: Json = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests.

    Without --task, all tasks that the systems share. Differences are A minus B.
    """
    from r2med.report.comparison import draw, draw_movement
    from r2med.report.console import console, echo_json, notice
    from r2med.results.compare import compare as compared
    from r2med.results.compare import what_moved

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
    comparison = compared(
        *systems,
        task=task,
        metric=metric,
        results=results,
        root=data_root,
        resamples=resamples,
        tell=notice,
    )
    if as_json:
        echo_json(comparison.to_json())
    else:
        draw(comparison, console())
