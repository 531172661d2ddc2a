"""Prices, limits, and the one account that every request of a command is held against."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from r2med.errors import LimitError, UsageError
from r2med.settings import parse_settings, setting

#: Characters of English text in a token, the rule of thumb of every vendor.
CHARACTERS_PER_TOKEN = 4
#: How many times their claims requests may bill together without passing a limit.
_RESERVE = 2


@dataclass(frozen=True)
class Limits:
    """How much a command may use and how hard it may push a server; None is no limit."""

    tokens: int | None = setting(default=None, least=1)
    """Prompt and completion tokens together."""
    money: float | None = setting(default=None, least=0)
    """US dollars; needs a known price."""
    concurrency: int = setting(default=16, least=1)
    """Requests under way at once."""
    timeout: float = setting(default=600.0, least=0.001)
    """Seconds for one answer."""
    attempts: int = setting(default=6, least=1)
    """Times one request is tried before it counts as failed."""
    answer_bytes: int = setting(default=32_000_000, least=1)
    """Size of one answer, unpacked; a larger one is not read."""
    backoff: float = setting(default=0.5, least=0)
    """Seconds before the first retry; doubled each time, and varied."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), field.metadata["least"]
            if value is not None and not least <= value < math.inf:
                raise UsageError(f"the limit of {field.name} is {value}, expected {least} or more.")

    @classmethod
    def from_environment(cls) -> Limits:
        """`R2MED_LLM_TOKENS`, `_MONEY`, `_CONCURRENCY` and so on, where they are set."""
        names = [field.name for field in fields(cls)]
        texts = {name: os.environ.get(f"R2MED_LLM_{name.upper()}") for name in names}
        named = {name: text for name, text in texts.items() if text}
        return parse_settings(cls, named, name="R2MED_LLM_*")


class Tokens(NamedTuple):
    """Tokens of one request or of many."""

    prompt: int = 0
    completion: int = 0


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

    @property
    def dollars(self) -> str:
        """Its money to three digits, rounded up, so that it suffices as a limit."""
        decimals = max(2, 2 - math.floor(math.log10(self.money))) if self.money > 0 else 2
        return f"{math.ceil(self.money * 10**decimals) / 10**decimals:.{decimals}f}"

    def __mul__(self, times: int) -> Cost:
        return Cost(self.tokens * times, self.money * times)

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.tokens + other.tokens, self.money + other.money)


@dataclass(frozen=True)
class Estimate:
    """What a run would use, before it runs; `basis` says what the figures rest on."""

    already_here: int
    """Answers or texts that are on disk, and free."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None
    basis: str


def tokens_of(text: str) -> int:
    """About how many tokens a text has: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def most_tokens_of(text: str) -> int:
    """The most tokens a text can have: every token stands for one byte at least."""
    return len(text.encode("utf-8", "surrogatepass"))


class _Claim(NamedTuple):
    """The most that a request under way may cost."""

    name: str
    most: Cost


@dataclass
class _Seen:
    """What the requests of one model have shown so far."""

    settled: int = 0
    excess: float = 1.0
    """The largest ratio of what a request cost to what it may have cost."""


class Budget:
    """One account for all that a command asks of models behind HTTP; threads may share it.

    A request claims the most it may cost before it is sent, and settles for what it did cost
    afterwards. So what is spent never passes a limit, however many requests are under way, if the
    server keeps to `max_tokens`.

    A server may ignore it and bill more than was claimed. Three rules limit what that costs. The
    first request goes out alone, and each answer lets one more go out at once. A claim is raised by
    the largest excess seen of its model. While several requests are under way, their claims count
    `_RESERVE` times, so near the limit they go out one by one. What is spent then passes the limit
    by the excess of one request at most, unless requests that are under way together are the first
    to bill more than `_RESERVE` times their claims: no rule can know of that before.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.from_environment() if limits is None else limits
        self.spent = Cost()
        self.unanswered = Cost()
        """The part of `spent` that requests without an answer count for, in full."""
        self._claims: dict[object, _Claim] = {}
        self._seen: dict[str, _Seen] = {}
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

    def check_one(self, most: Sequence[Cost], name: str) -> None:
        """Refuse limits that the dearest of some requests could never be asked within."""
        needed = Cost(
            max((cost.tokens for cost in most), default=0),
            max((cost.money for cost in most), default=0.0),
        )
        if self._within(needed):
            return
        enough = self._name_limits(f"--max-tokens {needed.tokens}", f"--max-cost {needed.dollars}")
        error = LimitError if self.spent.tokens else UsageError
        raise error(
            f"{name}: one request may use up to {self._figures(needed)}, more than "
            f"{self._describe_usage()}.\nGive at least {enough}, or make requests smaller "
            "([max_tokens=...] of a language model, [most_texts=...] of an encoder). Everything "
            "that arrived is kept."
        )

    def claim(self, claim: object, most: Cost, name: str) -> bool:
        """Set aside the most a request may cost: True when it may be sent.

        False where it would fit only if requests under way cost less than they may; LimitError
        where it does not fit and none is under way.
        """
        with self._lock:
            seen = self._seen.setdefault(name, _Seen())
            most = Cost(math.ceil(most.tokens * seen.excess), most.money * seen.excess)
            under_way = [other for other in self._claims.values() if other.name == name]
            if self.limited and len(under_way) > seen.settled:
                return False
            under_way_cost = sum((other.most for other in self._claims.values()), most)
            times = _RESERVE if self._claims else 1
            if self._within(self.spent + under_way_cost * times):
                self._claims[claim] = _Claim(name, most)
                return True
            if self._claims:
                return False
        raise LimitError(
            f"{name}: the next request may use up to {self._figures(most)} and could pass "
            f"{self._describe_usage()}.\nEverything that arrived is kept. Raise the limit and run "
            "again to continue."
        )

    def settle(self, claim: object, real: Cost | None) -> None:
        """Count what a request did cost; None, where nobody knows, counts all that it claimed."""
        with self._lock:
            name, most = self._claims.pop(claim)
            seen = self._seen[name]
            seen.settled += 1
            if real is None:
                self.spent += most
                self.unanswered += most
                return
            self.spent += real
            tokens_ratio = real.tokens / most.tokens if most.tokens else 1.0
            money_ratio = real.money / most.money if most.money else 1.0
            seen.excess *= max(1.0, tokens_ratio, money_ratio)

    def _within(self, cost: Cost) -> bool:
        limits = self.limits
        tokens = limits.tokens is None or cost.tokens <= limits.tokens
        return tokens and (limits.money is None or cost.money <= limits.money)

    def _name_limits(self, tokens: str, money: str) -> str:
        """Words about tokens, about money or about both, as there are limits of them."""
        limits = ((self.limits.tokens, tokens), (self.limits.money, money))
        return " and ".join(words for limit, words in limits if limit is not None)

    def _figures(self, cost: Cost) -> str:
        return self._name_limits(f"{cost.tokens:,} tokens", f"${cost.dollars}")

    def _describe_usage(self) -> str:
        limit = self._figures(Cost(self.limits.tokens or 0, self.limits.money or 0.0))
        used = f"the limit of {limit}; used: {self._figures(self.spent)}"
        lost = f" ({self._figures(self.unanswered)} of it by requests without an answer)"
        return used + lost if self.unanswered.tokens else used
