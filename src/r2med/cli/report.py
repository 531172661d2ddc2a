"""`r2med report`: stored results as one HTML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from r2med.cli.explore import check_libraries
from r2med.cli.options import METRIC, RESULTS, AnySystems, AnyTask, Metric, Results, out
from r2med.errors import UsageError


def report(
    systems: AnySystems = None,
    file: Annotated[Path, out("The file to write, e.g. report.html.")] = Path("report.html"),
    task: AnyTask = None,
    metric: Metric = METRIC,
    results: Results = RESULTS,
) -> None:
    """Write stored results as one HTML file: tables, intervals, tests, figures and settings.

    Without systems all that have results; the others are compared with the first. The file needs
    nothing else: mail it, print it, put it on a web server.
    """
    if file.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {file}: expected a file that ends in .html.")
    check_libraries()
    from r2med.explore.report import write_report
    from r2med.report.console import echo, notice

    write_report(file, *systems or (), task=task, metric=metric, results=results, tell=notice)
    echo(f"wrote {file} ({file.stat().st_size / 1e6:.2f} MB)")
