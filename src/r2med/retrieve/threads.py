"""Map a function over items in two threads of this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Output = TypeVar("Output")

#: Array operations release the interpreter lock, so a second thread helps; more do not.
_THREADS = 2


def map_in_threads(function: Callable[[Item], Output], items: Iterable[Item]) -> Iterator[Output]:
    """Apply a function to items in two threads; yield the outputs in the order of the items.

    Only a few outputs are in memory at a time. For a single item, no thread is started.
    """
    remaining = iter(items)
    first = deque(islice(remaining, 2))
    if len(first) < 2:
        yield from map(function, drain(first))
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Output]] = deque()
        for item in chain(drain(first), remaining):
            waiting.append(pool.submit(function, item))
            if len(waiting) > _THREADS + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def drain(items: deque[Item]) -> Iterator[Item]:
    """Yield items from the left and remove them, so that each can be freed after its use."""
    while items:
        yield items.popleft()
