"""Output on the terminal: answers go to standard output, notices and progress to standard error.

Evaluations called from Python show their progress in a terminal or notebook.

Ids, names, model answers and server errors are untrusted. Everything printed passes through here,
where control characters and changes of text direction are replaced by visible characters.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any, Protocol

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

if TYPE_CHECKING:
    from r2med.execution.resources import Progress as Work
    from r2med.results.record import Result

#: Width in a pipe or file, where no terminal tells one.
PLAIN_WIDTH = 80
#: Everything but line feeds that a terminal obeys, turns text around, or cannot be encoded.
_CONTROL = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Return a text with its control characters replaced by visible marks."""
    return _CONTROL.sub("\ufffd", text.replace("\t", " ").replace("\r\n", "\n"))


class _Door(Console):
    """A console that replaces control characters in texts and reports a closed pipe.

    It reads no markup or emoji codes, because system names have brackets and ids have colons.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **settings)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield segments without control characters, except rich's own, such as cursor moves."""
        for segment in super().render(renderable, options):
            if segment.control or not _CONTROL.search(segment.text):
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, so that the command line chooses the exit code."""
        raise BrokenPipeError


def console(file: IO[str] | None = None, width: int | None = None) -> Console:
    """Return the console for standard output; off a terminal it prints plain text.

    The plain text is as wide as `COLUMNS` says. If `COLUMNS` is not a number or below 40, it is 80
    columns wide.
    """
    if file is None and not sys.stdout.isatty():
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() and int(columns) >= 40 else PLAIN_WIDTH
    return _Door(file=file, width=width)


def notice_console() -> Console:
    """Return the console for standard error, for everything that is not the answer itself."""
    width = None if sys.stderr.isatty() else PLAIN_WIDTH
    return _Door(stderr=True, width=width, soft_wrap=width is not None)


def echo(text: str) -> None:
    """Print one line on standard output without wrapping it."""
    print(visible(text), flush=True)


def echo_json(value: Any) -> None:
    """Print a value as JSON on standard output, in ASCII, so without raw control characters."""
    print(json.dumps(value, indent=2), flush=True)


def answer(value: Any, *parts: Any, as_json: bool) -> None:
    """Print `value` as JSON, or `parts`: lines unchanged and tables fitted to the width."""
    if as_json:
        echo_json(value)
        return
    for part in parts:
        if isinstance(part, str):
            echo(part)
        else:
            console().print(part)


def agreed(question: str) -> bool:
    """Ask the user a yes-or-no question at the terminal; without a terminal the answer is no."""
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def notice(message: str) -> None:
    """Print a notice on standard error."""
    notice_console().print(f"note: {message}")


class ProgressBar(Protocol):
    """The methods of rich's progress bar that commands use."""

    def add_task(self, description: str, *, total: float | None, visible: bool = True) -> Any:
        """Add a line and return its id."""

    def update(self, task_id: Any, **changes: Any) -> None:
        """Change a line."""

    def advance(self, task_id: Any) -> None:
        """Count one more step of a line."""


#: Seconds between two lines of progress off a terminal.
LOG_INTERVAL = 30.0


@dataclass
class _LogLine:
    description: str
    total: float | None
    visible: bool
    completed: float = 0

    def __str__(self) -> str:
        of = "" if not self.total else f" {self.completed:,.0f} of {self.total:,.0f}"
        return f"{self.description}{of}"


class LogBar:
    """Progress off a terminal: one line of text every `interval` seconds."""

    def __init__(self, output: Console, interval: float = LOG_INTERVAL) -> None:
        self._output = output
        self._interval = interval
        self._lines: list[_LogLine] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._print_lines, daemon=True)

    def __enter__(self) -> LogBar:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()

    def add_task(self, description: str, *, total: float | None, visible: bool = True) -> int:
        """Add a line and return its id."""
        self._lines.append(_LogLine(description, total, visible))
        return len(self._lines) - 1

    def update(self, task_id: int, **changes: Any) -> None:
        """Change a line."""
        line = self._lines[task_id]
        line.completed += changes.pop("advance", 0)
        for name, value in changes.items():
            setattr(line, name, value)

    def advance(self, task_id: int) -> None:
        """Count one more step of a line."""
        self._lines[task_id].completed += 1

    def _print_lines(self) -> None:
        started = time.monotonic()
        while not self._ended.wait(self._interval):
            parts = [str(line) for line in self._lines if line.visible]
            seconds = time.monotonic() - started
            with suppress(OSError, ValueError):  # the log may be closed
                self._output.print(f"{seconds:,.0f} s: {'; '.join(parts) or 'working'}")


def progress() -> AbstractContextManager[ProgressBar]:
    """Return a progress bar that is removed at the end; off a terminal, a line every 30 seconds."""
    terminal = notice_console()
    if not terminal.is_terminal:
        return LogBar(terminal)
    # Imported only for a terminal, because it loads a dozen modules.
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
    )


def result_line(bar: ProgressBar, total: int) -> Callable[[Result], None]:
    """Add a progress line for an evaluation; return a function that advances it by a result."""
    line = bar.add_task("evaluating", total=total)
    return lambda result: bar.update(line, advance=1, description=f"{result.task} · {result.name}")


def work_line(bar: ProgressBar) -> Work:
    """Add a second progress line, for long work inside a step, such as encoding.

    Returns the function that updates the line, which is hidden when the work is done.
    """
    line = bar.add_task("", total=None, visible=False)

    def show(description: str, done: int, total: int, seconds: float) -> None:
        left = (total - done) * seconds / done if done else 0
        speed = f" · {done / seconds:,.0f}/s · {left:,.0f} s left" if left else ""
        bar.update(
            line, description=description + speed, completed=done, total=total, visible=done < total
        )

    return show


def is_watched() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    return _notebook() or bool(sys.stderr and sys.stderr.isatty())


@contextmanager
def watch(total: int) -> Iterator[tuple[Work, Callable[[Result], None]]]:
    """Yield two functions that show work and results: a bar in a terminal, text in a notebook.

    Both displays are removed when the work is done.
    """
    if not _notebook():
        with progress() as bar:
            line = result_line(bar, total)
            yield work_line(bar), line
        return
    display = import_module("IPython.display").display
    display_handle: Any = display({"text/plain": ""}, raw=True, display_id=True)
    done: list[Result] = []

    def write(text: str) -> None:
        display_handle.update({"text/plain": visible(text)}, raw=True)

    def step(result: Result) -> None:
        done.append(result)
        write(f"{len(done)} of {total}: {result.task} · {result.name}")

    def work(description: str, ready: int, work_total: int, seconds: float) -> None:
        write(f"{len(done)} of {total}: {description} {ready:,} of {work_total:,}")

    yield work, step
    write("")


def _notebook() -> bool:
    """Whether this runs in a Jupyter notebook; IPython in a terminal does not count."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell else None
    return type(running).__name__ == "ZMQInteractiveShell"
