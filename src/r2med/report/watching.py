"""How far an evaluation called from Python has come, where somebody looks: terminal or notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from r2med.report.console import notice, progress, visible, work_line
from r2med.results.record import Result
from r2med.retrieve.conditions import Progress, Tell


@dataclass(frozen=True)
class Watch:
    """Where results, work and notes are shown."""

    tell: Tell
    work: Callable[[Progress], None]
    step: Callable[[Result], None]

    def results(self, results: Iterator[Result]) -> Iterator[Result]:
        """The same results, each shown as a step."""
        for result in results:
            self.step(result)
            yield result


def is_watched() -> bool:
    """Whether standard error is a terminal, or this is a notebook."""
    return _notebook() or bool(sys.stderr and sys.stderr.isatty())


@contextmanager
def watch(total: int) -> Iterator[Watch]:
    """A bar in a terminal, one line of text in a notebook; both go when the work is done."""
    if _notebook():
        yield from _line(total)
        return
    with progress() as bar:
        line = bar.add_task("evaluating", total=total)

        def step(result: Result) -> None:
            bar.update(line, advance=1, description=f"{result.task} · {result.name}")

        yield Watch(notice, work_line(bar), step)


def _line(total: int) -> Iterator[Watch]:
    display = import_module("IPython.display").display
    shown: Any = display({"text/plain": ""}, raw=True, display_id=True)
    done: list[str] = []

    def write(text: str) -> None:
        shown.update({"text/plain": visible(text)}, raw=True)

    def step(result: Result) -> None:
        done.append(result.task)
        write(f"{len(done)} of {total}: {result.task} · {result.name}")

    def work(state: Progress) -> None:
        write(f"{len(done)} of {total}: {state.what} {state.done:,} of {state.total:,}")

    yield Watch(notice, work, step)
    write("")


def _notebook() -> bool:
    """Whether a Jupyter kernel runs this; a terminal with IPython is a terminal."""
    shell = sys.modules.get("IPython")
    found = shell.get_ipython() if shell else None
    return type(found).__name__ == "ZMQInteractiveShell"
