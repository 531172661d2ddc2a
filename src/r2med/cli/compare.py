"""`r2med compare`: is one system really better than another?"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from r2med.cli import options
from r2med.cli.options import format_of, refuse_unread
from r2med.errors import UsageError
from r2med.report.console import echo, echo_json, notice
from r2med.report.formats import show


def compare(
    context: typer.Context,
    systems: options.Stored,
    task: options.AnyTask = None,
    metric: options.Metric = options.METRIC,
    queries: Annotated[
        bool,
        options.option(
            "--queries",
            heading=options.OUTPUT,
            help="Show the queries that changed most between two systems.",
        ),
    ] = False,
    protocols: Annotated[
        bool,
        options.option(
            "--protocols",
            heading=options.OUTPUT,
            help="Compare the settings of the systems, field by field.",
        ),
    ] = False,
    power: Annotated[
        bool,
        options.option(
            "--power",
            heading=options.OUTPUT,
            help="Show which differences the queries can detect, for two systems.",
        ),
    ] = False,
    reasoning: Annotated[
        bool,
        options.option(
            "--reasoning",
            heading=options.OUTPUT,
            help="Show on which queries A helps: by shared words, generated texts and causes.",
        ),
    ] = False,
    order: Annotated[
        str,
        options.option(
            "--order",
            heading=options.OUTPUT,
            metavar="ORDER",
            help="Order of --queries: contrast (largest difference), loss or gain of A.",
        ),
    ] = "contrast",
    limit: options.Limit = 10,
    judgements: options.Judgements = "benchmark",
    results: options.Results = options.RESULTS,
    data_root: options.DataRoot = None,
    resamples: options.Resamples = None,
    fail_if: Annotated[
        list[str] | None,
        options.option(
            "--fail-if",
            metavar="CONDITION",
            help="Exit with 4 if a condition on NEW holds: 'METRIC drops by POINTS', 'METRIC "
            "drops significantly' (against OLD), 'METRIC below POINTS', 'latency above MS' or "
            "'cost above USD'; add 'on TASK' or 'on any task'. May be repeated.",
        ),
    ] = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Compare systems query by query, per task and pooled, with intervals and tests.

    Without --task, uses all tasks that the systems share. Differences are A minus B. --protocols
    compares settings and needs no results.
    """
    from r2med.judge.choice import results_with_judgements
    from r2med.results.compare import compare as compared
    from r2med.results.compare import select_systems
    from r2med.results.gates import Gate
    from r2med.results.movement import compare_queries

    if protocols:
        of_results = ("queries", "power", "reasoning", "fail_if", "limit", "resamples")
        of_data = ("task", "metric", "results", "data_root", "judgements")
        refuse_unread(context, "with --protocols", *of_results, *of_data)
        from r2med.results.protocols import compare_protocols

        show(compare_protocols(*systems), format_of(form, as_json))
        return
    gates = [Gate.parse(text) for text in fail_if or ()]
    verdict_only = ("table", "json") if gates else ()
    output_format = format_of(form, as_json, verdict_only, "the verdict of --fail-if")
    sources: dict[str, Any] = {"task": task, "results": results, "root": data_root, "tell": notice}
    if not queries:
        sources["results"] = results_with_judgements(
            results, judgements, root=data_root, warn=notice
        )
    run = partial(compared, *systems, resamples=resamples, **sources)
    if gates:
        of_tables = ("queries", "power", "reasoning", "limit", "metric", "resamples")
        refuse_unread(context, "with --fail-if", *of_tables)
        least = 2 if any(gate.needs_old for gate in gates) else 1
        outcomes = [
            outcome
            for gate in gates
            for outcome in gate.check(
                select_systems(*systems, metric=gate.metric, least=least, **sources)
            )
        ]
        if output_format == "json":
            echo_json([outcome.to_json() for outcome in outcomes])
        else:
            echo("\n".join(map(str, outcomes)))
        raise typer.Exit(4 if any(outcome.failed for outcome in outcomes) else 0)
    if queries:
        refuse_unread(context, "with --queries", "power", "reasoning", "resamples", "judgements")
        if output_format in ("csv", "json"):
            refuse_unread(context, f"on {output_format.upper()}, which has every query", "limit")
        if order not in ("contrast", "loss", "gain"):
            raise UsageError(f"--order {order}: expected contrast, loss or gain.")
        moved = compare_queries(*systems, metric=metric, order=order, **sources)  # type: ignore[arg-type]
        show(moved, output_format, limit=limit)
        return
    refuse_unread(context, "without --queries", "limit", "order")
    if reasoning:
        from r2med.evaluation.reasoning import study_reasoning

        refuse_unread(context, "with --reasoning", "power", "resamples", "judgements")
        show(study_reasoning(*systems, metric=metric, **sources), output_format)
        return
    if power:
        from r2med.results.power import compare_power

        show(compare_power(run(metric=metric)), output_format)
        return
    show(run(metric=metric), output_format)
    if output_format == "table":
        notice("which queries moved: --queries; why one fails: r2med diagnose SYSTEM --task TASK.")
