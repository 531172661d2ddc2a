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
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("eval")(evaluate)
app.command()(tasks)
app.command()(fetch)
app.command(short_help="Check data against what the manifest says of it.")(verify)
app.add_typer(results, name="results")
app.add_typer(cache, name="cache")
app.command()(analyze)
app.command()(info)
app.command()(leaderboard)
app.command(short_help="Compare systems query by query, with intervals and tests.")(compare)
app.command()(diagnose)
app.command()(diff)
app.command()(plot)
app.command(short_help="Run a published system and set it beside its figures.")(reproduce)
app.add_typer(nano, name="nano", short_help="Build Nano tasks, add candidates, check them.")
app.command()(profile)
app.command(short_help="Write a task's page in Markdown, HTML and JSON.")(card)
app.command(short_help="Write what training data must leave out.")(exclusions)
app.command(short_help="Take a command line of the reference scripts.")(run)
app.command(short_help="Have a model write for the queries of tasks.")(generate)
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
