"""A bar for downloads, on standard error and silent off a terminal."""

from __future__ import annotations

from types import TracebackType

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from r2med.report.console import notice_console


class DownloadBar:
    """Draws one line a file; leaves nothing behind."""

    def __init__(self) -> None:
        shown = notice_console()
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=shown,
            transient=True,
            disable=not shown.is_terminal,
        )
        self._line: TaskID | None = None

    def __enter__(self) -> DownloadBar:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, label: str, total: int) -> None:
        """Start the line of the next file."""
        self._line = self._bars.add_task(label, total=total)

    def advance(self, count: int) -> None:
        """Move the line of the current file."""
        if self._line is not None:
            self._bars.advance(self._line, count)
