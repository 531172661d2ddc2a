"""How many requests are under way at once: more while the server keeps up, half when it does not.

Written by hand because the pace must follow what a server says (429, Retry-After), what it does
not say (time-outs) and what it only shows (answers that take longer and longer).
"""

from __future__ import annotations

import asyncio
import time

_START = 8
_MOST = 256
#: A server whose answers take so many times its best is not helped by more requests.
_STRAINED = 2.0
_OVERRUN = 4.0


class Pace:
    """Additive increase, multiplicative decrease; a fixed number is never changed."""

    def __init__(self, fixed: int | None = None) -> None:
        self.adapts = fixed is None
        self.allowed = float(_START if fixed is None else fixed)
        self.under_way = 0
        self._doubling = True
        self._latency: float | None = None
        self._best = float("inf")
        self._last_cut = 0.0
        self._held_until = 0.0
        self._changed = asyncio.Condition()

    async def enter(self) -> float:
        """Wait for a place, and say when it was taken."""
        async with self._changed:
            while True:
                pause = self._held_until - time.monotonic()
                if pause > 0:
                    await self._wait(pause)
                elif self.under_way >= int(self.allowed):
                    await self._wait(None)
                else:
                    self.under_way += 1
                    return time.monotonic()

    async def leave(self) -> None:
        """Give the place back."""
        async with self._changed:
            self.under_way -= 1
            self._changed.notify_all()

    def succeeded(self, seconds: float) -> None:
        """An answer came after so long."""
        if not self.adapts:
            return
        old = self._latency
        self._latency = seconds if old is None else 0.8 * old + 0.2 * seconds
        self._best = min(self._best, self._latency)
        if self._latency > _OVERRUN * self._best:
            self._cut(0.9, time.monotonic() - self._latency)
        elif self._latency <= _STRAINED * self._best and self.under_way >= int(self.allowed):
            step = 1.0 if self._doubling else 1.0 / self.allowed
            self.allowed = min(_MOST, self.allowed + step)

    def congested(self, started: float) -> None:
        """An attempt that began at `started` met a server at its limit; one cut for a crowd."""
        if self.adapts:
            self._cut(0.5, started)

    def hold(self, seconds: float) -> None:
        """Start nothing new for so long: the server asked for it."""
        self._held_until = max(self._held_until, time.monotonic() + seconds)

    def _cut(self, factor: float, started: float) -> None:
        if started >= self._last_cut:
            self.allowed = max(1.0, self.allowed * factor)
            self._doubling = False
            self._last_cut = time.monotonic()

    async def _wait(self, seconds: float | None) -> None:
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            return
