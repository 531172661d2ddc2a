"""What goes to a language model and what comes back: plain values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; the role is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """A conversation to be continued; what is None here is as the model is configured."""

    messages: tuple[Message, ...]
    sample: int = 0
    """Which of several answers to the same conversation; each has a seed and a place of its own."""
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None


@dataclass(frozen=True)
class ChatAnswer:
    """What a model wrote and what it took."""

    text: str
    finish: str
    """`stop`, `length` (cut at the token limit), `refusal`, `empty` or `too-long` (the prompt)."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    cached: bool

    @property
    def usable(self) -> bool:
        """Whether there is a text to work with: a cut one is, a refusal is not."""
        return self.finish in ("stop", "length")


@dataclass(frozen=True)
class Usage:
    """What a chat has done so far; tokens, money and seconds are of the calls made."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float | None = None
    """US dollars; None where no price is known."""
    seconds: float = 0.0
    """Time in which at least one call was under way."""
    refusals: int = 0
    """Of all answers, reused ones included, as the next two."""
    empty: int = 0
    truncated: int = 0
    damaged: int = 0
    """Stored answers that failed their checksum; they were asked for again."""
