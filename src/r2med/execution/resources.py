"""Resources that stages share and that must be closed: the budget, chat clients and workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from r2med.execution.options import RunOptions

if TYPE_CHECKING:
    from r2med.execution.workers import Workers
    from r2med.remote.chat import Remote

#: Callback for user-facing warnings.
Warn = Callable[[str], None]
#: Callback for the progress of a long task: its description, items done, total, seconds so far.
Progress = Callable[[str, int, int, float], None]


def log_warning(message: str) -> None:
    """Send a warning to Python's logging, which prints it to standard error by default."""
    logging.getLogger("r2med").warning(message)


def ignore_progress(description: str, done: int, total: int, seconds: float) -> None:
    """Show no progress."""


class Resources:
    """The budget, chat clients and workers that stages share, with the caller's options.

    Use it as a context manager. Everything is opened when it is first needed; after `close` it is
    opened again on demand.

    Examples:
        >>> with Resources(RunOptions(device="cpu")) as resources:
        ...     resources.options.device
        'cpu'

    """

    def __init__(
        self,
        options: RunOptions | None = None,
        *,
        warn: Warn = log_warning,
        progress: Progress = ignore_progress,
        workers: Workers | None = None,
        shares_home: bool = True,
    ) -> None:
        """Keep the options and callbacks; nothing is opened yet.

        Args:
            options: Device, limits and prompts; the defaults of `RunOptions` if None.
            warn: Callback for user-facing warnings.
            progress: Callback for the progress of encoding, indexing and language models.
            workers: The workers that run models; None runs them in this process.
            shares_home: Whether this process and the one that started the evaluation use the same
                home folder; False in a worker on another machine.

        """
        self.options = options or RunOptions()
        self.warn = warn
        self.progress = progress
        self.workers = workers
        self.shares_home = shares_home
        self.ignores_caches = False
        """Whether cached embeddings, scores and indexes are recomputed and replaced."""
        self._remote: Remote | None = None

    @contextmanager
    def ignore_caches(self) -> Iterator[None]:
        """Recompute all local work while the block runs; cached answers of servers are used."""
        previous = self.ignores_caches
        self.ignores_caches = True
        try:
            yield
        finally:
            self.ignores_caches = previous

    @property
    def remote(self) -> Remote:
        """The clients of all models behind HTTP: one budget, and one chat client per model."""
        if self._remote is None:
            from r2med.remote.chat import Remote

            options = self.options
            self._remote = Remote(
                options.limits, url=options.llm_url, fresh=options.fresh, warn=self.warn
            )
        return self._remote

    def close(self) -> None:
        """Close connections, local servers and workers; the next use opens them again."""
        if self._remote is not None:
            self._remote.close()
        if self.workers is not None:
            self.workers.close()

    def __enter__(self) -> Resources:
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
