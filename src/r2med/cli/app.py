"""The `r2med` command: its commands, under the headings that its help shows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from r2med.cli.cache import cache
from r2med.cli.compare import compare
from r2med.cli.diagnose import diagnose
from r2med.cli.eval import evaluate
from r2med.cli.generate import generate
from r2med.cli.group import command_group
from r2med.cli.info import analyze, info
from r2med.cli.leaderboard import leaderboard
from r2med.cli.nano import nano
from r2med.cli.plot import plot
from r2med.cli.reproduce import reproduce
from r2med.cli.results import results
from r2med.cli.run import run
from r2med.cli.tasks import fetch, tasks

#: Commands that moved, and what to type now.
RENAMED = {
    "diff": "r2med compare A B --task TASK --queries",
    "show": "r2med diagnose SYSTEM --task TASK --query ID",
    "verify": "r2med tasks verify",
    "profile": "r2med tasks profile",
    "card": "r2med tasks card",
    "exclusions": "r2med tasks exclusions",
}

app = command_group(name="r2med", renamed=RENAMED, add_completion=True)

app.command("eval", rich_help_panel="Run")(evaluate)
app.command(short_help="Have a model write for the queries of tasks.", rich_help_panel="Run")(
    generate
)
app.command(rich_help_panel="Understand")(leaderboard)
app.command(short_help="Is one system really better than another?", rich_help_panel="Understand")(
    compare
)
app.command(rich_help_panel="Understand")(diagnose)
app.command(short_help="Run a published system beside its figures.", rich_help_panel="Understand")(
    reproduce
)
app.command(rich_help_panel="Understand")(plot)
app.add_typer(tasks, name="tasks", rich_help_panel="Data")
app.add_typer(nano, name="nano", short_help="Build and judge Nano tasks.", rich_help_panel="Data")
app.command(short_help="The same as `r2med tasks fetch`.", rich_help_panel="Data")(fetch)
app.add_typer(results, name="results", rich_help_panel="Store")
app.add_typer(cache, name="cache", rich_help_panel="Store")
app.add_typer(info, name="info", rich_help_panel="Store")
app.command(hidden=True)(run)
app.command(hidden=True)(analyze)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        from r2med.report.console import echo

        echo(f"r2med {version('r2med')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Does a retrieval system understand medicine, or does it only match words?

    Runs and measures systems on R2MED and NanoR2MED. `r2med COMMAND --help` tells more.

    A research instrument, never a clinical decision system.
    """


def usage_message(error: Exception) -> str | None:
    """What typer says of a command line that it cannot read; None for any other error."""
    unreadable: Any = typer.BadParameter.__mro__[2]
    if not isinstance(error, unreadable):
        return None
    context = getattr(error, "ctx", None)
    place = context.command_path if context is not None else "r2med"
    return f"{error.format_message()}\nSee {place} --help."
