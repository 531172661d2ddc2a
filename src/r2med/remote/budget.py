"""Prices, limits, and the budget that all requests of a command share."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

from r2med.errors import LimitError, UsageError
from r2med.settings import parse_settings, setting

#: Characters of English text in a token: the rule of thumb that vendors give.
CHARACTERS_PER_TOKEN = 4
#: How many times their claims requests may bill together without passing a limit.
_RESERVE = 2


@dataclass(frozen=True)
class Limits:
    """How much a command may use, and how fast it may send requests; None means unlimited."""

    tokens: int | None = setting(default=None, least=1)
    """Most tokens, prompts and completions together."""
    money: float | None = setting(default=None, least=0)
    """Most US dollars; the price of every model must be known."""
    concurrency: int = setting(default=16, least=1)
    """Most requests in progress at once."""
    timeout: float = setting(default=600.0, least=0.001)
    """Seconds to wait for one answer."""
    attempts: int = setting(default=6, least=1)
    """Times a request is tried before it counts as failed."""
    answer_bytes: int = setting(default=32_000_000, least=1)
    """Largest size of an answer after decompression; a larger one is not read."""
    backoff: float = setting(default=0.5, least=0)
    """Seconds before the first retry; doubled for each further retry, with random variation."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), field.metadata["least"]
            if value is not None and not least <= value < math.inf:
                raise UsageError(f"the limit of {field.name} is {value}, expected {least} or more.")

    @classmethod
    def from_environment(cls) -> Limits:
        """Read `R2MED_LLM_TOKENS`, `R2MED_LLM_MONEY` etc.; unset variables mean the default."""
        values = {}
        for field in fields(cls):
            value = os.environ.get(f"R2MED_LLM_{field.name.upper()}")
            if value:
                values[field.name] = value
        return parse_settings(cls, values, name="R2MED_LLM_*")


class Tokens(NamedTuple):
    """Token counts of one request, or their sums over several requests."""

    prompt: int = 0
    completion: int = 0


@dataclass(frozen=True)
class Price:
    """Prices in US dollars per million tokens."""

    prompt: float
    completion: float = 0.0

    def of(self, prompt_tokens: float, completion_tokens: float = 0) -> float:
        """Return the price of a number of tokens in US dollars."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1e6


@dataclass(frozen=True)
class RequestCost:
    """Tokens and US dollars that requests use; `money` is 0 if no price is known."""

    tokens: int = 0
    money: float = 0.0

    @classmethod
    def of(cls, tokens: Tokens, price: Price | None) -> RequestCost:
        """Return the cost of token counts at a price."""
        return cls(sum(tokens), price.of(*tokens) if price else 0.0)

    @property
    def dollars(self) -> str:
        """The US dollars as text, rounded up, so that the figure suffices as a limit."""
        decimals = 2
        if self.money > 0:
            decimals = max(2, 2 - math.floor(math.log10(self.money)))
        rounded_up = math.ceil(self.money * 10**decimals) / 10**decimals
        return f"{rounded_up:.{decimals}f}"

    def __mul__(self, times: int) -> RequestCost:
        return RequestCost(self.tokens * times, self.money * times)

    def __add__(self, cost: RequestCost) -> RequestCost:
        return RequestCost(self.tokens + cost.tokens, self.money + cost.money)


@dataclass(frozen=True)
class RequestEstimate:
    """The expected use of requests that have not been sent."""

    cached: int
    """Number of requests or texts with a cached answer, which cost nothing."""
    calls: int
    prompt_tokens: int
    completion_tokens: int
    money: float | None
    """US dollars; None if no price is known."""
    basis: str
    """The assumptions behind the figures, for the user."""


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text: a quarter of its characters, rounded up."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


def count_most_tokens(text: str) -> int:
    """Return an upper limit of a text's tokens: its bytes, since a token has at least one."""
    return len(text.encode("utf-8", "surrogatepass"))


class _Claim(NamedTuple):
    """The most that a request in progress may cost."""

    model: str
    most: RequestCost


@dataclass
class _ModelHistory:
    """The finished requests of one model."""

    settled: int = 0
    excess: float = 1.0
    """Factor by which claims are raised, because requests have cost more than was claimed."""


class Budget:
    """The limits of a command and its spending so far; safe to share among threads.

    Before a request is sent, it claims the most it may cost; afterwards it is settled at its real
    cost. Spending therefore stays within the limits, however many requests are in progress, if the
    server keeps to `max_tokens`.

    A server may ignore `max_tokens` and bill more than was claimed. Three rules limit the excess.
    The first request is sent alone, and each answer allows one more request at a time. Claims are
    raised by the largest excess of the model so far. While several requests are in progress, their
    claims count `_RESERVE` times, so near the limit requests are sent one by one. Spending then
    passes the limit by the excess of one request at most, unless requests in progress at the same
    time are the first to bill more than `_RESERVE` times their claims.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = Limits.from_environment() if limits is None else limits
        self.spent = RequestCost()
        self.unanswered = RequestCost()
        """The part of `spent` for requests without an answer, for which the full claim counts."""
        self._claims: dict[object, _Claim] = {}
        self._history: dict[str, _ModelHistory] = {}
        self._lock = threading.Lock()

    @property
    def is_limited(self) -> bool:
        """Whether tokens or money are limited."""
        return self.limits.tokens is not None or self.limits.money is not None

    def check_price(self, price: Price | None, model: str) -> None:
        """Raise UsageError if money is limited and the price of the model is unknown."""
        if self.limits.money is not None and price is None:
            raise UsageError(
                f"no price is known for {model}, so its cost cannot be limited. Give price_in "
                "and price_out (US dollars per million tokens; see docs/llms.md), or limit the "
                "tokens with --max-tokens."
            )

    def check_largest(self, costs: Sequence[RequestCost], model: str) -> None:
        """Raise an error if the most expensive request alone exceeds the limits."""
        largest = RequestCost(
            max((cost.tokens for cost in costs), default=0),
            max((cost.money for cost in costs), default=0.0),
        )
        if self._is_within_limits(largest):
            return
        enough = self._join_limited(
            f"--max-tokens {largest.tokens}", f"--max-cost {largest.dollars}"
        )
        error = LimitError if self.spent.tokens else UsageError
        raise error(
            f"{model}: one request may use up to {self._format(largest)}, more than "
            f"{self._describe_usage()}.\nGive at least {enough}, or make requests smaller "
            "([max_tokens=...] of a language model, [most_texts=...] of an encoder). All answers "
            "received so far are stored."
        )

    def claim(self, claim_id: object, most: RequestCost, model: str) -> bool:
        """Reserve the most that a request may cost; return whether it may be sent now.

        False means that it has to wait for requests in progress. LimitError is raised if the
        request does not fit and none is in progress.
        """
        with self._lock:
            history = self._history.setdefault(model, _ModelHistory())
            most = RequestCost(math.ceil(most.tokens * history.excess), most.money * history.excess)
            in_progress = [claim for claim in self._claims.values() if claim.model == model]
            if self.is_limited and len(in_progress) > history.settled:
                return False
            in_progress_cost = sum((claim.most for claim in self._claims.values()), most)
            times = _RESERVE if self._claims else 1
            if self._is_within_limits(self.spent + in_progress_cost * times):
                self._claims[claim_id] = _Claim(model, most)
                return True
            if self._claims:
                return False
        raise LimitError(
            f"{model}: the next request may use up to {self._format(most)} and could exceed "
            f"{self._describe_usage()}.\nAll answers received so far are stored. Raise the limit "
            "and run again to continue."
        )

    def settle(self, claim_id: object, cost: RequestCost | None) -> None:
        """Replace the claim of a finished request by its real cost; None counts the whole claim."""
        with self._lock:
            model, most = self._claims.pop(claim_id)
            history = self._history[model]
            history.settled += 1
            if cost is None:
                self.spent += most
                self.unanswered += most
                return
            self.spent += cost
            tokens_ratio = cost.tokens / most.tokens if most.tokens else 1.0
            money_ratio = cost.money / most.money if most.money else 1.0
            history.excess *= max(1.0, tokens_ratio, money_ratio)

    def _is_within_limits(self, cost: RequestCost) -> bool:
        limits = self.limits
        if limits.tokens is not None and cost.tokens > limits.tokens:
            return False
        return limits.money is None or cost.money <= limits.money

    def _join_limited(self, tokens: str, money: str) -> str:
        """Join the phrases about tokens and money, without the phrase of an unlimited one."""
        phrases = []
        if self.limits.tokens is not None:
            phrases.append(tokens)
        if self.limits.money is not None:
            phrases.append(money)
        return " and ".join(phrases)

    def _format(self, cost: RequestCost) -> str:
        return self._join_limited(f"{cost.tokens:,} tokens", f"${cost.dollars}")

    def _describe_usage(self) -> str:
        limit = self._format(RequestCost(self.limits.tokens or 0, self.limits.money or 0.0))
        usage = f"the limit of {limit}; used: {self._format(self.spent)}"
        if self.unanswered.tokens:
            usage += f" ({self._format(self.unanswered)} of it by requests without an answer)"
        return usage
