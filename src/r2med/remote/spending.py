"""What calls use: tokens and money, added up, held against limits, and estimated beforehand."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from r2med.errors import UsageError
from r2med.remote.exchange import ChatRequest
from r2med.remote.limits import Limits

#: Characters a token of English text, the rule of thumb of every vendor; a chat adds a few tokens
#: a message for its frame.
CHARACTERS_A_TOKEN = 4
_FRAME = 4


def tokens_of(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_A_TOKEN)


def prompt_tokens_of(request: ChatRequest) -> int:
    """About how many tokens a conversation has."""
    return sum(tokens_of(message.content) + _FRAME for message in request.messages)


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float = 0.0

    def of(self, prompt_tokens: float, completion_tokens: float = 0) -> float:
        """What so many tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True)
class Estimate:
    """What a run would use, before it runs; `basis` says what the figures rest on."""

    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None
    basis: str


class Spending:
    """A running account; expected costs of calls under way count until the real ones are known."""

    def __init__(self, price: Price | None, limits: Limits, *, name: str) -> None:
        if limits.money is not None and price is None:
            raise UsageError(
                f"no price is known for {name}, so a limit of money cannot be kept. "
                "Give price_in and price_out (US dollars per million tokens), or limit the tokens."
            )
        self.price = price
        self.limits = limits
        self.calls = 0
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self._expected: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()

    @property
    def money(self) -> float | None:
        """Dollars spent, where a price is known."""
        return self.price.of(self.prompt_tokens, self.completion_tokens) if self.price else None

    def begin(self, call: int, prompt_tokens: int, completion_tokens: int) -> bool:
        """Whether a call may start: it must fit together with those under way, as expected."""
        with self._lock:
            self._expected[call] = (prompt_tokens, completion_tokens)
            if self._fits():
                return True
            del self._expected[call]
            return False

    def end(self, call: int, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """A call is over and used so much; a failed one used nothing that anyone knows of."""
        with self._lock:
            self._expected.pop(call, None)
            self.calls += bool(prompt_tokens or completion_tokens)
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += completion_tokens

    def mean_completion(self, otherwise: int) -> int:
        """New tokens a call so far, or what was expected before there were any."""
        return round(self.completion_tokens / self.calls) if self.calls else otherwise

    def limit(self) -> str:
        """The limits in words."""
        parts = []
        if self.limits.tokens is not None:
            parts.append(f"{self.limits.tokens:,} tokens")
        if self.limits.money is not None:
            parts.append(f"${self.limits.money:,.2f}")
        return " and ".join(parts)

    def spent(self) -> str:
        """What was used, in words."""
        tokens = f"{self.prompt_tokens + self.completion_tokens:,} tokens"
        return tokens if self.money is None else f"{tokens}, ${self.money:,.4f}"

    def _fits(self) -> bool:
        prompt = self.prompt_tokens + sum(p for p, _ in self._expected.values())
        completion = self.completion_tokens + sum(c for _, c in self._expected.values())
        limits = self.limits
        if limits.tokens is not None and prompt + completion > limits.tokens:
            return False
        if limits.money is None or self.price is None:
            return True
        return self.price.of(prompt, completion) <= limits.money
