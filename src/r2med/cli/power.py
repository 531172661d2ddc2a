"""`r2med power`: which differences can the queries of a task detect?"""

from __future__ import annotations

from r2med.cli import options
from r2med.cli.options import format_of
from r2med.report.console import notice
from r2med.report.formats import show


def power(
    task: options.Task,
    metric: options.Metric = options.METRIC,
    results: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Show the smallest difference that the queries of a task detect with 80 % power.

    The spread of differences is that of the stored systems. The last columns say how many queries
    differences of 1, 2 and 5 points need.
    """
    from r2med.results.power import measure_power

    show(measure_power(task, metric=metric, results=results, tell=notice), format_of(form, as_json))
