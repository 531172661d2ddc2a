"""`r2med cite`: BibTeX for a publication."""

from __future__ import annotations

from typing import Annotated

import typer

from r2med.cli import options
from r2med.report.console import echo


def cite(
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SYSTEM...]", help="Only works that print these systems."),
    ] = None,
    task: options.Task = "full",
) -> None:
    """Print BibTeX of r2med, of the data of tasks, and of works with published figures."""
    from r2med.results.cite import cite_all
    from r2med.tasks.registry import TaskEntry, resolve

    entries = [entry for entry in resolve(task, {}) if isinstance(entry, TaskEntry)]
    echo("\n\n".join(citation.to_bibtex() for citation in cite_all(entries, systems or ())))
