"""A language model, ready to be asked: one class for local and hosted models alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

from r2med.remote.exchange import ChatAnswer, ChatRequest, Message, Usage
from r2med.remote.limits import LimitReached, Limits

__all__ = [
    "Chat",
    "ChatAnswer",
    "ChatRequest",
    "LimitReached",
    "Limits",
    "Message",
    "Usage",
    "open_chat",
]


class Chat:
    """A configured model: registry entry, server, parameters and limits."""

    identity: Mapping[str, object]
    """What decides an answer besides the request, as JSON values; no secrets, no model is asked."""

    def complete(
        self, requests: Sequence[ChatRequest], *, tell: Callable[..., None] | None = None
    ) -> list[ChatAnswer]:
        """Answers in the order of the requests; each is on disk the moment it arrives."""
        raise NotImplementedError

    @property
    def usage(self) -> Usage:
        """What has been used since the chat was opened."""
        raise NotImplementedError


@contextmanager
def open_chat(
    name: str,
    *,
    url: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    limits: Limits = Limits(),
    fresh: bool = False,
) -> Iterator[Chat]:
    """Open a model by its registered name, or by any name on an OpenAI-compatible server."""
    raise NotImplementedError
    yield
