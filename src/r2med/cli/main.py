"""The `r2med` command: gathers the commands and turns errors into messages and exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from r2med.cli.analyze import analyze
from r2med.cli.cache import cache
from r2med.cli.card import card
from r2med.cli.compare import compare
from r2med.cli.diagnose import diagnose
from r2med.cli.diff import diff
from r2med.cli.eval import evaluate
from r2med.cli.exclusions import exclusions
from r2med.cli.fetch import fetch
from r2med.cli.generate import generate
from r2med.cli.info import info
from r2med.cli.leaderboard import leaderboard
from r2med.cli.nano import nano
from r2med.cli.plot import plot
from r2med.cli.profile import profile
from r2med.cli.reproduce import reproduce
from r2med.cli.results import results
from r2med.cli.run import run
from r2med.cli.show import show
from r2med.cli.tasks import tasks
from r2med.cli.verify import verify
from r2med.errors import R2MedError, UsageError

app = typer.Typer(
    name="r2med",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("eval")(evaluate)
app.command()(tasks)
app.command()(fetch)
app.command()(verify)
app.add_typer(results, name="results")
app.add_typer(cache, name="cache")
app.command()(analyze)
app.command()(info)
app.command()(leaderboard)
app.command()(compare)
app.command()(diagnose)
app.command()(diff)
app.command()(plot)
app.command()(reproduce)
app.add_typer(nano, name="nano")
app.command()(profile)
app.command()(card)
app.command()(exclusions)
app.command()(run)
app.command()(generate)
app.command()(show)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"r2med {version('r2med')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Does a retrieval system understand medicine, or does it only match words?

    Runs and measures systems on R2MED and NanoR2MED.

    A research instrument, never a clinical decision system.
    """


def main() -> None:
    """Run the command line; 0 is fine, 1 failed, 2 wrong usage."""
    try:
        app()
    except R2MedError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
