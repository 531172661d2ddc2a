"""The `r2med` command: its commands, under the headings that its help shows."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from r2med.cli.group import Listed, command_group

_RUN, _UNDERSTAND, _DATA, _STORE = "Run", "Understand", "Data", "Store"
#: Every command under its heading; one without a heading is not in the main list.
COMMANDS = {
    "eval": Listed(_RUN, "eval:evaluate", "Run systems on tasks and show their scores."),
    "generate": Listed(_RUN, "generate:generate", "Have a model write for the queries of tasks."),
    "leaderboard": Listed(
        _UNDERSTAND, "leaderboard:leaderboard", "Rank published and measured systems."
    ),
    "compare": Listed(_UNDERSTAND, "compare:compare", "Is one system really better than another?"),
    "diagnose": Listed(_UNDERSTAND, "diagnose:diagnose", "Say where a system fails, and why."),
    "explore": Listed(_UNDERSTAND, "explore:explore", "See results and queries in a browser."),
    "report": Listed(_UNDERSTAND, "explore:report", "Write results as one HTML file."),
    "reproduce": Listed(_UNDERSTAND, "run:reproduce", "Run a published system beside its figures."),
    "plot": Listed(_UNDERSTAND, "plot:plot", "Draw a figure for screen or print."),
    "tasks": Listed(_DATA, "tasks:tasks", "List, fetch, verify and describe tasks."),
    "nano": Listed(_DATA, "nano:nano", "Build and judge Nano tasks."),
    "audit": Listed(_DATA, "audit:audit", "Did the evaluation leak into training data?"),
    "fetch": Listed(_DATA, "tasks:fetch", "The same as `r2med tasks fetch`."),
    "results": Listed(_STORE, "results:results", "List, show or export stored results."),
    "cache": Listed(_STORE, "info:cache", "Show or clear data and caches; never results."),
    "info": Listed(_STORE, "info:info", "Show versions, known systems and language models."),
    "run": Listed("", "run:run", "Run a command line of the reference scripts."),
    "analyze": Listed("", "info:analyze", "Print the terms that BM25 indexes a text by."),
}

app = command_group(name="r2med", listed=COMMANDS, add_completion=True)


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
