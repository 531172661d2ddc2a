"""The one thing an LLM reranker needs of a language model: answers to prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from r2med.remote.chat import Chat, ChatRequest, Message
from r2med.retrieve.conditions import Conditions


class Completer(Protocol):
    """Answers prompts; whoever stands behind it keeps, paces and prices the calls."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything besides the prompt that decides an answer, as JSON values."""
        ...

    def complete(self, prompts: Sequence[str]) -> list[str]:
        """An answer for each prompt; an empty one where there is none to work with."""
        ...

    def costs(self) -> Mapping[str, object]:
        """What it took so far: calls, cached, tokens, money where a price is known."""
        ...


class Opener(Protocol):
    """Makes a completer for as long as it is needed."""

    @property
    def identity(self) -> Mapping[str, object]:
        """The completer's, known without asking any model."""
        ...

    def open(self) -> AbstractContextManager[Completer]:
        """The completer, in a `with`."""
        ...


@dataclass(frozen=True)
class ChatOpener:
    """Completers on the project's own client: registered models and OpenAI-compatible servers."""

    llm: str
    conditions: Conditions
    options: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The model, its server and its parameters."""
        return dict(self._chat.identity)

    @contextmanager
    def open(self) -> Iterator[Completer]:
        """The chat of these conditions; its costs are counted from here on."""
        yield ChatCompleter(self._chat)

    @property
    def _chat(self) -> Chat:
        return self.conditions.remote.chat(self.llm, self.options)


class ChatCompleter:
    """A chat as a completer."""

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self._before = chat.usage

    @property
    def identity(self) -> Mapping[str, object]:
        """The chat's."""
        return dict(self.chat.identity)

    def complete(self, prompts: Sequence[str]) -> list[str]:
        """Each prompt as a conversation of its own."""
        asked = [ChatRequest((Message("user", prompt),)) for prompt in prompts]
        return [answer.text if answer.usable else "" for answer in self.chat.complete(asked)]

    def costs(self) -> Mapping[str, object]:
        """As the chat counted them."""
        used = self.chat.usage.since(self._before)
        return {
            "calls": used.calls,
            "cached": used.cached,
            "tokens": used.prompt_tokens + used.completion_tokens,
            "money": used.money,
            "cached_tokens": used.cached_tokens,
            "cached_seconds": round(used.cached_seconds, 3),
            "cached_money": used.cached_money,
        }
