"""Short ways to ask a scripted server."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

from r2med.remote.chat import Chat, ChatRequest, Limits, Message, open_chat

#: Retries at once, so that no test waits for a clock.
QUICK = Limits(concurrency=4, timeout=10, backoff=0.001)


def ask(text: str, *, sample: int = 0) -> ChatRequest:
    return ChatRequest((Message("user", text),), sample=sample)


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
