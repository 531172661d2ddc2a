"""`r2med info`: versions, folders and what is installed, for bug reports and reproducibility."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show versions, folders and the registered systems."""
    from r2med.home import home
    from r2med.report.console import console
    from r2med.results.record import library_versions, machine
    from r2med.systems.registry import entries

    facts: dict[str, object] = {
        "versions": library_versions(),
        "machine": machine(),
        "home": str(home()),
        "systems": {name: entry.description for name, entry in entries().items()},
    }
    if as_json:
        typer.echo(json.dumps(facts, indent=2))
        return
    out = console()
    for title, value in facts.items():
        out.print(title, style="bold")
        out.print(_lines(value if isinstance(value, dict) else {"": value}))


def _lines(told: dict[str, object]) -> Table:
    """Names and values in two columns that wrap each in its own."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=14, no_wrap=True)
    for name, value in told.items():
        table.add_row(Text(f"  {name}"), Text(str(value)))
    return table
