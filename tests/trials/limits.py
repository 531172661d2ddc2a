"""A time limit for code that must end, whatever it reads."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Seconds for one case; reading takes milliseconds, and patterns that backtrack take hours.
TIME_LIMIT = 20


@contextmanager
def time_limit(seconds: int = TIME_LIMIT) -> Iterator[None]:
    """Raise TimeoutError inside a block that does not end; `re` lets signals through."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done within {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
