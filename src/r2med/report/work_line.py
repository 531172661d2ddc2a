"""A second line of a progress bar, for long work inside a step: encoding, asking a model."""

from __future__ import annotations

from collections.abc import Callable

from rich.progress import Progress as Bar

from r2med.retrieve.conditions import Progress


def work_line(bar: Bar) -> Callable[[Progress], None]:
    """Show how far a piece of work has come, and hide the line when it is done."""
    line = bar.add_task("", total=None, visible=False)

    def show(told: Progress) -> None:
        left = told.seconds_left
        rest = f" · {left:,.0f} s left" if left and told.done < told.total else ""
        bar.update(
            line,
            description=told.what + rest,
            completed=told.done,
            total=told.total,
            visible=told.done < told.total,
        )

    return show
