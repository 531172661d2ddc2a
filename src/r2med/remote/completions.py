"""The chat format that OpenAI-compatible servers share: what is sent, and what an answer means."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from r2med.errors import MissingError, UsageError
from r2med.remote.budget import Tokens, most_tokens_of, tokens_of
from r2med.remote.registry import LLM
from r2med.remote.requests import Failure, Job, RequestTimes, reported_tokens

#: Tokens that a chat format puts around a message, on average.
_FRAME = 4
#: The most that it puts around a message, and before a conversation: a system prompt of its own.
_MOST_FRAME, _MOST_PREFACE = 16, 128
#: Words and codes by which servers say that a prompt does not fit.
_TOO_LONG = re.compile(
    r"context[ _](size|window|length)|too many tokens|prompt is too long|string_above_max_length",
    re.IGNORECASE,
)
#: A lower log-probability is no figure of a model but a fault of its server.
_LEAST_LOG_PROBABILITY = -1e6
_FILTERED = frozenset({"content_filter", "content_policy_violation"})


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; the role is `system`, `user` or `assistant`.

    A single message of the role `bare` is no conversation but a text to be continued as it is.
    """

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
    alternatives: int = 0
    """Of a bare text: how many of the likeliest next tokens come with their log-probabilities."""

    @property
    def bare(self) -> bool:
        """Whether it is a text and not a conversation."""
        return self.messages[0].role == "bare"

    @property
    def path(self) -> str:
        """Where it is sent, below the server's address."""
        return "completions" if self.bare else "chat/completions"

    @cached_property
    def key(self) -> str:
        """Its address among the answers of a model."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["messages"] = [vars(message) for message in self.messages]
        if not self.alternatives:
            del values["alternatives"]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class ChatAnswer:
    """What a model wrote and what it took."""

    text: str
    finish: str
    """What the server says: `stop`, `length` (cut at the token limit), `refusal`, `empty` or
    `too-long` (the prompt). Whether a text declines is for its readers to judge."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """From sending the request to the last byte of its answer, while others were under way."""
    cached: bool
    money: float | None = None
    """US dollars by the price of its day; None where no price was known."""
    wall_seconds: float = 0.0
    """Its share of the wall time: while n requests are under way, each has 1/n of the time."""
    reasoning: str = ""
    """What the model thought before, where its server cuts that out of the text."""
    alternatives: Mapping[str, float] | None = None
    """Log-probabilities of the likeliest first tokens, where they were asked for."""


def to_job(llm: LLM, request: ChatRequest, *, limited: bool) -> Job:
    """The JSON of a request; each sample has a seed of its own where the model takes one.

    The most tokens it may use are worked out where there is a limit to keep.
    """
    sent: dict[str, object] = {"model": llm.model}
    if request.bare:
        sent["prompt"] = request.messages[0].content
    else:
        sent["messages"] = [{"role": m.role, "content": m.content} for m in request.messages]
    sent |= llm.parameters()
    if request.alternatives:
        sent["logprobs"] = request.alternatives
    if llm.seed is not None:
        sent["seed"] = llm.seed + request.sample
    if request.max_tokens is not None:
        sent[llm.max_tokens_as] = request.max_tokens
    if request.stop:
        sent["stop"] = list(request.stop)
    if not limited:
        return Job(sent)
    longest = request.max_tokens or llm.max_tokens or llm.output_limit
    if longest is None:
        raise UsageError(
            f"nobody knows how long an answer of {llm.name} may become, so a limit cannot be kept. "
            "Give it a max_tokens, or its output_limit in a file of your own; see docs/llms.md."
        )
    prompt = sum(most_tokens_of(m.role + m.content) + _MOST_FRAME for m in request.messages)
    return Job(sent, Tokens(_MOST_PREFACE + prompt, longest))


def prompt_tokens(request: ChatRequest) -> int:
    """About how many tokens a conversation has."""
    return sum(tokens_of(message.content) + _FRAME for message in request.messages)


def read_answer(
    llm: LLM, request: ChatRequest, value: Mapping[str, Any], times: RequestTimes
) -> ChatAnswer:
    """What an answer says; ValueError says why it cannot be read.

    Token counts that the server leaves out are estimated.
    """
    match value.get("choices"):
        case [dict(choice), *_]:
            message = {"content": choice.get("text")} if request.bare else choice.get("message")
        case _:
            error = value.get("error")
            raise ValueError(f"it holds no choices{f' but says {error!r}' if error else ''}")
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        raise ValueError("its first choice holds no message with a text")
    text = encodable(message.get("content") or "")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(reasoning, str) or "</think>" in text:
        reasoning = ""
    reason, spoken = choice.get("finish_reason"), (reasoning + text).rpartition("</think>")[2]
    if message.get("refusal") or reason == "content_filter":
        finish = "refusal"
    elif not spoken.strip():
        finish = "empty"
    else:
        finish = "length" if reason == "length" else "stop"
    estimated = Tokens(prompt_tokens(request), tokens_of(reasoning + text))
    prompt, new = reported_tokens(value) or estimated
    return ChatAnswer(
        text=text,
        finish=finish,
        prompt_tokens=prompt,
        completion_tokens=new,
        seconds=round(times.seconds, 4),
        wall_seconds=round(times.wall_seconds, 4),
        cached=False,
        money=llm.price.of(prompt, new) if llm.price else None,
        reasoning=encodable(reasoning.strip()),
        alternatives=_alternatives(llm, choice) if request.alternatives else None,
    )


def _alternatives(llm: LLM, choice: Mapping[str, Any]) -> dict[str, float]:
    """The first token's alternatives: one table per token (vLLM), or a list of rows (llama.cpp).

    A server that tells none would never tell any, so this is no ValueError, after which it would be
    asked again.
    """
    rows: list[tuple[Any, Any]]
    match choice.get("logprobs"):
        case {"top_logprobs": [{**table}, *_]}:
            rows = list(table.items())
        case {"content": [{"top_logprobs": [*listed]}, *_]}:
            objects = [row for row in listed if isinstance(row, dict)]
            rows = [(row.get("token"), row.get("logprob")) for row in objects]
        case _:
            rows = []
    log_probabilities = {
        token: float(value)
        for token, value in rows
        if isinstance(token, str) and _is_log_probability(value)
    }
    if not log_probabilities:
        raise MissingError(
            f"{llm.name}: the server gives no log-probabilities of the next token, without which "
            "an answer would be read as certain.\nUse a server that gives them on /completions, "
            "such as vLLM or llama.cpp, or another reranker."
        )
    return log_probabilities


def _is_log_probability(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and _LEAST_LOG_PROBABILITY <= cast("float", value) <= 0


def as_written(llm: LLM, answer: ChatAnswer) -> ChatAnswer:
    """The answer with its reasoning put back where the model's stripping looks for it.

    Done when an answer is used, not when it is kept, so that answers fit whatever the stripping.
    """
    if not answer.reasoning:
        return answer
    if llm.stripping != "think":
        return answer if answer.text.strip() else replace(answer, finish="empty")
    rest = f"\n</think>\n\n{answer.text}" if answer.text.strip() else ""
    return replace(answer, text=f"<think>\n{answer.reasoning}{rest}")


def encodable(text: str) -> str:
    """The text with half characters, which JSON may hold and UTF-8 may not, as question marks."""
    return text.encode("utf-8", "replace").decode()


def refusal_answer(failure: Failure) -> ChatAnswer | None:
    """The answer that a refused request amounts to, where only this request was at fault."""
    if failure.code in _FILTERED:
        return ChatAnswer("", "refusal", 0, 0, 0.0, cached=False)
    unfit = failure.status in (400, 413, 422)
    if unfit and _TOO_LONG.search(f"{failure.code} {failure.why}"):
        return ChatAnswer("", "too-long", 0, 0, 0.0, cached=False)
    return None


Wanted = TypeVar("Wanted")
Served = TypeVar("Served")
Returned = TypeVar("Returned")


def in_step(
    talks: Sequence[Generator[list[Wanted], list[Served], Returned]],
    serve: Callable[[list[Wanted]], Sequence[Served]],
) -> list[Returned]:
    """Advance all talks together, one batch of the wishes of all of them at a time.

    A talk yields what it wants answered next, receives the answers, and returns its outcome.
    """
    outcomes: dict[int, Returned] = {}
    answered: dict[int, Any] = dict.fromkeys(range(len(talks)))
    while answered:
        wanted: dict[int, list[Wanted]] = {}
        for index, answers in answered.items():
            try:
                wanted[index] = talks[index].send(answers)
            except StopIteration as end:
                outcomes[index] = end.value
        wishes = [wish for wishes_of_talk in wanted.values() for wish in wishes_of_talk]
        served = iter(serve(wishes) if wanted else ())
        answered = {
            index: [next(served) for _ in wishes_of_talk]
            for index, wishes_of_talk in wanted.items()
        }
    return [outcomes[index] for index in range(len(talks))]
