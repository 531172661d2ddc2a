"""`r2med compare`: is one system really better than another?"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from r2med.cli import options
from r2med.cli.options import format_of, refuse_unread
from r2med.report.console import echo, echo_json, notice
from r2med.report.formats import show


def compare(
    context: typer.Context,
    systems: options.Stored,
    task: options.AnyTask = None,
    metric: options.Metric = options.METRIC,
    queries: Annotated[
        bool, typer.Option("--queries", help="Of two systems: the queries that moved most.")
    ] = False,
    protocols: Annotated[
        bool, typer.Option("--protocols", help="The settings of the systems, field by field.")
    ] = False,
    limit: options.Limit = 10,
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    resamples: options.Resamples = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-if",
            metavar="CONDITION",
            help="Of NEW and OLD: exit with 4 if 'METRIC drops by POINTS' or 'METRIC drops "
            "significantly'. May be repeated.",
        ),
    ] = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests.

    Without --task, all tasks that the systems share. Differences are A minus B. --protocols
    compares settings and needs no results.
    """
    from r2med.results.compare import Gate, verdict_line
    from r2med.results.compare import compare as compared
    from r2med.results.movement import what_moved

    if protocols:
        unread = ("queries", "fail_if", "task", "metric", "limit", "results", "data_root")
        refuse_unread(context, "with --protocols", *unread, "resamples")
        from r2med.results.protocols import compare_protocols

        show(compare_protocols(*systems), format_of(form, as_json))
        return
    gates = [Gate.parse(text) for text in fail_if or ()]
    verdict_only = ("table", "json") if gates else ()
    shown = format_of(form, as_json, verdict_only, "the verdict of --fail-if")
    places: dict[str, Any] = {"task": task, "results": results, "root": data_root, "tell": notice}
    run = partial(compared, *systems, resamples=resamples, **places)
    if gates:
        refuse_unread(context, "with --fail-if", "queries", "limit", "metric")
        verdicts = [gate.verdict(run(metric=gate.metric)) for gate in gates]
        if shown == "json":
            echo_json(verdicts)
        else:
            echo("\n".join(map(verdict_line, verdicts)))
        raise typer.Exit(4 if any(verdict["failed"] for verdict in verdicts) else 0)
    if queries:
        refuse_unread(context, "with --queries", "resamples")
        if shown in ("csv", "json"):
            refuse_unread(context, f"on {shown.upper()}, which has every query", "limit")
        show(what_moved(*systems, metric=metric, **places), shown, limit=limit)
        return
    refuse_unread(context, "without --queries", "limit")
    show(run(metric=metric), shown)
    if shown == "table":
        notice("which queries moved: --queries; why one fails: r2med diagnose SYSTEM --task TASK.")
