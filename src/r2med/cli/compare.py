"""`r2med compare`: is one system really better than another?"""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli.options import (
    METRIC,
    RESULTS,
    AnyTask,
    DataRoot,
    Format,
    Json,
    Limit,
    Metric,
    Resamples,
    Results,
    Stored,
    format_of,
    refuse_unread,
)


def compare(
    context: typer.Context,
    systems: Stored,
    task: AnyTask = None,
    metric: Metric = METRIC,
    queries: Annotated[
        bool, typer.Option("--queries", help="Of two systems: the queries that moved most.")
    ] = False,
    protocols: Annotated[
        bool, typer.Option("--protocols", help="The settings of the systems, field by field.")
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
    form: Format = None,
    as_json: Json = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests.

    Without --task, all tasks that the systems share. Differences are A minus B. --protocols
    compares settings and needs no results.
    """
    from functools import partial

    from r2med.report.console import echo, echo_json, notice
    from r2med.report.formats import show
    from r2med.results.compare import Condition
    from r2med.results.compare import compare as compared
    from r2med.results.movement import what_moved

    if protocols:
        refuse_unread(
            context,
            "with --protocols",
            *("queries", "fail_if", "task", "metric", "limit", "results", "data_root", "resamples"),
        )
        from r2med.results.protocols import compare_protocols

        show(compare_protocols(*systems), format_of(form, as_json))
        return
    conditions = [Condition.parse(text) for text in fail_if or ()]
    verdict_only = ("table", "json") if conditions else ()
    shown = format_of(form, as_json, verdict_only, "the verdict of --fail-if")
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
        refuse_unread(context, "with --fail-if", "queries", "limit", "metric")
        verdicts = [condition.judge(run(metric=condition.metric)) for condition in conditions]
        if shown == "json":
            echo_json([verdict.to_json() for verdict in verdicts])
        else:
            echo("\n".join(map(str, verdicts)))
        raise typer.Exit(4 if any(verdict.failed for verdict in verdicts) else 0)
    if queries:
        refuse_unread(context, "with --queries", "resamples")
        if shown in ("csv", "json"):
            refuse_unread(context, f"on {shown.upper()}, which has every query", "limit")
        moved = what_moved(
            *systems, task=task, metric=metric, results=results, root=data_root, tell=notice
        )
        show(moved, shown, limit=limit)
        return
    refuse_unread(context, "without --queries", "limit")
    show(run(metric=metric), shown)
