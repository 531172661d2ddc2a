"""Short ways to ask a scripted server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType

from r2med.remote.budget import Limits
from r2med.remote.chat import Chat, Remote
from r2med.remote.completions import ChatRequest, Message

#: Retries at once, so that no test waits for a clock.
QUICK = Limits(concurrency=4, timeout=10, backoff=0.001)


def ask(text: str, *, sample: int = 0) -> ChatRequest:
    return ChatRequest((Message("user", text),), sample=sample)


@contextmanager
def open_chat(
    name: str,
    *,
    url: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    limits: Limits | None = None,
    fresh: bool = False,
    warn: Callable[[str], None] = lambda _: None,
) -> Iterator[Chat]:
    """A model with a budget of its own, closed at the end."""
    remote = Remote(limits, url=url, fresh=fresh, warn=warn)
    try:
        yield remote.chat(name, options)
    finally:
        remote.close()


def chat_at(
    url: str,
    *,
    name: str = "qwen-7b",
    limits: Limits = QUICK,
    fresh: bool = False,
    **options: str,
) -> AbstractContextManager[Chat]:
    given: Mapping[str, str] = options
    return open_chat(name, url=url, options=given, limits=limits, fresh=fresh)
