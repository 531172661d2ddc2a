"""Where words go: tables to standard output, notices and progress to standard error."""

from __future__ import annotations

import os
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

#: Width in a pipe or file, where no terminal tells one.
PLAIN_WIDTH = 80


def console() -> Console:
    """Standard output; off a terminal plain text as wide as `COLUMNS` says, or 80 columns.

    Words are shown as they are: brackets belong to system names, colons to ids.
    """
    width = None if sys.stdout.isatty() else plain_width()
    return Console(width=width, highlight=False, markup=False, emoji=False)


def plain_width() -> int:
    """The width for a pipe or file; an unreadable or tiny `COLUMNS` counts as unset."""
    told = os.environ.get("COLUMNS", "")
    return int(told) if told.isdecimal() and int(told) >= 40 else PLAIN_WIDTH


def notice_console() -> Console:
    """Standard error, for all that is not the answer itself."""
    width = None if sys.stderr.isatty() else PLAIN_WIDTH
    return Console(
        stderr=True,
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=width is not None,
    )


def notice(message: str) -> None:
    """Tell something that is not the answer itself."""
    notice_console().print(f"note: {message}")


def progress() -> Progress:
    """A progress bar that leaves no trace when done and is silent off a terminal."""
    shown = notice_console()
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=shown,
        transient=True,
        disable=not shown.is_terminal,
    )
