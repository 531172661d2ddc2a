"""Work on many items in a few threads, results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_THREADS = 2
"""Array operations release the interpreter, so that a second thread pays; more do not."""

Item = TypeVar("Item")
Done = TypeVar("Done")


def in_threads(work: Callable[[Item], Done], items: Iterable[Item]) -> Iterator[Done]:
    """Do work on items in a few threads; results come in order, and only a few wait at a time."""
    items = iter(items)
    first = list(islice(items, 2))
    if len(first) < 2:
        yield from map(work, first)
        return
    with ThreadPoolExecutor(_THREADS) as pool:
        waiting: deque[Future[Done]] = deque()
        for item in chain(first, items):
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
