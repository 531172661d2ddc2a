"""Prices, limits, and the one account that every request of a command is held against."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from r2med.errors import LimitError, UsageError

#: Characters of English text in a token, the rule of thumb of every vendor.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Limits:
    """How much a command may use and how hard it may push a server; None is no limit."""

    tokens: int | None = None
    """Prompt and completion tokens together."""
    money: float | None = None
    """US dollars; needs a known price."""
    concurrency: int = 16
    """Requests under way at once."""
    timeout: float = 600.0
    """Seconds for one answer."""
    attempts: int = 6
    """Times one request is tried before it counts as failed."""
    answer_bytes: int = 32_000_000
    """Size of one answer, unpacked; a larger one is not read."""
    backoff: float = 0.5
    """Seconds before the first retry; doubled each time, and varied."""

    def __post_init__(self) -> None:
        for name, (_, least) in _SET.items():
            value = getattr(self, name)
            if value is not None and not least <= value < math.inf:
                raise UsageError(f"the limit of {name} is {value}, expected {least} or more.")

    @classmethod
    def from_environment(cls) -> Limits:
        """`R2MED_LLM_TOKENS`, `_MONEY`, `_CONCURRENCY` and so on, where they are set."""
        values: dict[str, Any] = {}
        for name, (read, _) in _SET.items():
            variable = f"R2MED_LLM_{name.upper()}"
            if text := os.environ.get(variable):
                try:
                    values[name] = read(text)
                except ValueError:
                    raise UsageError(f"{variable}={text!r}: expected a number.") from None
        return cls(**values)


#: The limits that may be set from outside: how a text is read, and the least there may be.
_SET: Mapping[str, tuple[Callable[[str], float], float]] = {
    "tokens": (int, 1),
    "money": (float, 0.0),
    "concurrency": (int, 1),
    "timeout": (float, 0.001),
    "attempts": (int, 1),
    "answer_bytes": (int, 1),
}


class Tokens(NamedTuple):
    """Tokens of one request or of many."""

    prompt: int = 0
    completion: int = 0


NO_TOKENS = Tokens()


@dataclass(frozen=True)
class Price:
    """US dollars per million tokens."""

    prompt: float
    completion: float = 0.0

    def of(self, prompt_tokens: float, completion_tokens: float = 0) -> float:
        """What so many tokens cost."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True)
class Cost:
    """What requests use; `money` stays 0 where no price is known."""

    tokens: int = 0
    money: float = 0.0

    @classmethod
    def of(cls, tokens: Tokens, price: Price | None) -> Cost:
        """The cost of so many tokens at a price."""
        return cls(sum(tokens), price.of(*tokens) if price else 0.0)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tokens + other.tokens, self.money + other.money)


@dataclass(frozen=True)
class Estimate:
    """What a run would use, before it runs; `basis` says what the figures rest on."""

    calls: int
    cached: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None
    basis: str
    most_tokens: int | None = None
    """The most tokens it can come to, prompts included; None where answers have no known limit."""
    most_money: float | None = None

    def at_most(self, most: Tokens | None, price: Price | None) -> Estimate:
        """With the most tokens that it can come to."""
        if most is None:
            return replace(self, most_tokens=None, most_money=None)
        return replace(self, most_tokens=sum(most), most_money=price.of(*most) if price else None)

    def __add__(self, other: Estimate) -> Estimate:
        """Both together; a sum with an unknown part is unknown, and the basis is the first's."""
        return Estimate(
            self.calls + other.calls,
            self.cached + other.cached,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            _sum(self.money, other.money),
            self.basis,
            _sum(self.most_tokens, other.most_tokens),
            _sum(self.most_money, other.most_money),
        )


Number = TypeVar("Number", int, float)


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return None if one is None or other is None else one + other


def tokens_of(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def most_tokens_of(text: str) -> int:
    """The most tokens a text can have: every token stands for one byte at least."""
    return len(text.encode("utf-8", "surrogatepass"))


class Budget:
    """One account for all that a command asks of models behind HTTP; threads may share it.

    A request claims the most it may cost before it is sent, and settles for what it did cost
    afterwards. So what is spent never passes a limit, however many requests are under way.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.from_environment() if limits is None else limits
        self.spent = Cost()
        self.unanswered = Cost()
        """The part of `spent` that requests without an answer count for, in full."""
        self._claims: dict[object, Cost] = {}
        self._settled = _unsettled()
        self._lock = threading.Lock()

    @property
    def limited(self) -> bool:
        """Whether there is any limit to keep."""
        return self.limits.tokens is not None or self.limits.money is not None

    def check_price(self, price: Price | None, name: str) -> None:
        """Refuse a limit of money that cannot be kept because no price is known."""
        if self.limits.money is not None and price is None:
            raise UsageError(
                f"no price is known for {name}, so a limit of money cannot be kept. Give price_in "
                "and price_out (US dollars per million tokens; see docs/llms.md), or limit the "
                "tokens with --max-tokens."
            )

    def check_one(
        self,
        most: Sequence[Cost],
        name: str,
        *,
        smaller: str = "answers be shorter ([max_tokens=...])",
    ) -> None:
        """Refuse limits that the dearest of some requests could never be asked within."""
        needed = Cost(
            max((cost.tokens for cost in most), default=0),
            max((cost.money for cost in most), default=0.0),
        )
        if self._within(needed):
            return
        limits, figures = self.limits, []
        if limits.tokens is not None and needed.tokens > limits.tokens:
            figures.append(f"--max-tokens {needed.tokens} (R2MED_LLM_TOKENS)")
        if limits.money is not None and needed.money > limits.money:
            figures.append(f"--max-cost {_dollars(needed.money)} (R2MED_LLM_MONEY)")
        problem = (
            f"{name}: one request may use up to {self._figures(needed, ' or ')}, more than the "
            f"limit of {self._limit()}.\nGive at least {' and '.join(figures)}, or let {smaller}. "
            f"All {len(most):,} requests together may use up to "
            f"{sum(cost.tokens for cost in most):,} tokens."
        )
        if self.spent == Cost():
            raise UsageError(problem)
        raise LimitError(f"{problem}\nUsed: {self._used()}. Everything that arrived is kept.")

    def claim(self, claim: object, most: Cost) -> Future[None] | bool:
        """Set aside the most a request may cost: True when it may be sent.

        Where it would fit only if requests under way cost less than they may, the answer is a
        future that is done when one of them settles; False when it does not fit at all.
        """
        with self._lock:
            total = sum(self._claims.values(), self.spent + most)
            if self._within(total):
                self._claims[claim] = most
                return True
            return self._settled if self._claims else False

    def settle(self, claim: object, real: Cost | None) -> None:
        """Count what a request did cost; None, where nobody knows, counts all that it claimed."""
        with self._lock:
            most = self._claims.pop(claim)
            self.spent += most if real is None else real
            if real is None:
                self.unanswered += most
            settled, self._settled = self._settled, _unsettled()
        settled.set_result(None)

    def reached(self, name: str, most: Cost) -> LimitError:
        """The error that says why a request was not sent."""
        return LimitError(
            f"{name}: the next request may use up to {self._figures(most, ' or ')} and could pass "
            f"the limit of {self._limit()}; used: {self._used()}.\n"
            "Everything that arrived is kept. Raise the limit and run again to go on."
        )

    def _within(self, cost: Cost) -> bool:
        limits = self.limits
        tokens = limits.tokens is None or cost.tokens <= limits.tokens
        return tokens and (limits.money is None or cost.money <= limits.money)

    def _limit(self) -> str:
        parts = []
        if self.limits.tokens is not None:
            parts.append(f"{self.limits.tokens:,} tokens")
        if self.limits.money is not None:
            parts.append(f"${_dollars(self.limits.money)}")
        return " and ".join(parts)

    def _figures(self, cost: Cost, joint: str) -> str:
        """A cost in words; money only where it has a limit."""
        money = "" if self.limits.money is None else f"{joint}${_dollars(cost.money)}"
        return f"{cost.tokens:,} tokens{money}"

    def _used(self) -> str:
        used = self._figures(self.spent, ", ")
        if self.unanswered.tokens:
            used += f" ({self.unanswered.tokens:,} tokens of it by requests without an answer)"
        return used


def _unsettled() -> Future[None]:
    """A future that nobody can cancel, since everybody who waits has the same one."""
    future: Future[None] = Future()
    future.set_running_or_notify_cancel()
    return future


def _dollars(money: float) -> str:
    """Dollars to three digits, rounded up, so that a figure that is offered as a limit suffices."""
    if money <= 0:
        return "0.00"
    decimals = max(2, 2 - math.floor(math.log10(money)))
    return f"{math.ceil(money * 10**decimals) / 10**decimals:.{decimals}f}"
