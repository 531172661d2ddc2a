"""The request and answer format of OpenAI-compatible servers, for chats and bare texts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar, cast

from r2med.errors import MissingError, UsageError
from r2med.remote.budget import Tokens, count_most_tokens, estimate_tokens
from r2med.remote.registry import LLM
from r2med.remote.requests import ApiRequest, RequestFailure, RequestTimes, read_token_usage

#: Tokens that a chat template adds to a message, on average and at most.
_TEMPLATE_TOKENS, _MOST_TEMPLATE_TOKENS = 4, 16
#: The most tokens that a chat template adds to a conversation: a default system prompt.
_MOST_SYSTEM_PROMPT_TOKENS = 128
#: Messages and codes with which servers reject a prompt that is too long.
_TOO_LONG = re.compile(
    r"context[ _](size|window|length)|too many tokens|prompt is too long|string_above_max_length",
    re.IGNORECASE,
)
#: A lower log-probability is an error of the server, such as minus infinity written as a number.
_LEAST_LOG_PROBABILITY = -1e6
_CONTENT_FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})


@dataclass(frozen=True)
class Message:
    """One turn of a conversation; the role is `system`, `user` or `assistant`.

    A single message with the role `bare` is a text to continue, without a chat template.
    """

    role: str
    content: str


@dataclass(frozen=True)
class ChatRequest:
    """A conversation, or a bare text, that a model is asked to continue."""

    messages: tuple[Message, ...]
    sample: int = 0
    """Number of this answer if several are wanted; each has another seed and cache entry."""
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    """Most tokens of the answer; None uses the setting of the model."""
    alternatives: int = 0
    """For a bare text, how many of the likeliest next tokens to return with log-probabilities."""

    @property
    def bare(self) -> bool:
        """Whether this is a bare text instead of a conversation."""
        return self.messages[0].role == "bare"

    @property
    def path(self) -> str:
        """The endpoint, relative to the server's address."""
        return "completions" if self.bare else "chat/completions"

    @cached_property
    def key(self) -> str:
        """The key of the request among the cached answers of a model."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["messages"] = [vars(message) for message in self.messages]
        if not self.alternatives:
            del values["alternatives"]
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@dataclass(frozen=True)
class ChatAnswer:
    """The text that a model wrote, with its tokens, cost and time."""

    text: str
    finish: str
    """How the answer ended, according to the server: `stop`, `length` (cut at the token limit),
    `refusal`, `empty` or `too-long` (the prompt). The text itself is not searched for refusals."""
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    """Seconds from sending the request to the last byte; other requests may run meanwhile."""
    cached: bool
    money: float | None = None
    """US dollars, at the price when the request was sent; None if no price was known."""
    wall_seconds: float = 0.0
    """Share of the session's wall time: while n requests run, each counts 1/n of the time."""
    reasoning: str = ""
    """The reasoning before the answer, if the server returns it separately from the text."""
    alternatives: Mapping[str, float] | None = None
    """Log-probabilities of the likeliest first tokens; None if the request did not ask for them."""


def build_request(llm: LLM, request: ChatRequest, *, is_limited: bool) -> ApiRequest:
    """Build the JSON body of a request; samples differ in their seed if the model takes one.

    With `is_limited`, the most tokens that the request may use are computed too.
    """
    body: dict[str, object] = {"model": llm.model}
    if request.bare:
        body["prompt"] = request.messages[0].content
    else:
        body["messages"] = [{"role": m.role, "content": m.content} for m in request.messages]
    body |= llm.parameters()
    if request.alternatives:
        body["logprobs"] = request.alternatives
    if llm.seed is not None:
        body["seed"] = llm.seed + request.sample
    if request.max_tokens is not None:
        body[llm.max_tokens_as] = request.max_tokens
    if request.stop:
        body["stop"] = list(request.stop)
    if not is_limited:
        return ApiRequest(body)
    longest = request.max_tokens or llm.max_tokens or llm.output_limit
    if longest is None:
        raise UsageError(
            f"the longest possible answer of {llm.name} is not known, so tokens and money cannot "
            "be limited. Set max_tokens, or output_limit in your llms.toml; see docs/llms.md."
        )
    prompt = _MOST_SYSTEM_PROMPT_TOKENS + sum(
        count_most_tokens(message.role + message.content) + _MOST_TEMPLATE_TOKENS
        for message in request.messages
    )
    return ApiRequest(body, Tokens(prompt, longest))


def estimate_prompt_tokens(request: ChatRequest) -> int:
    """Return about how many tokens a conversation has."""
    return sum(estimate_tokens(message.content) + _TEMPLATE_TOKENS for message in request.messages)


def read_answer(
    llm: LLM, request: ChatRequest, value: Mapping[str, Any], times: RequestTimes
) -> ChatAnswer:
    """Read an answer from the JSON of a response; ValueError says why it cannot be read.

    Token counts that the server does not report are estimated.
    """
    match value.get("choices"):
        case [dict(choice), *_]:
            message = {"content": choice.get("text")} if request.bare else choice.get("message")
        case _:
            error = value.get("error")
            raise ValueError(f"it has no choices{f' but the error {error!r}' if error else ''}")
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | None):
        raise ValueError("its first choice has no message with a text")
    text = replace_lone_surrogates(message.get("content") or "")
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(reasoning, str) or "</think>" in text:
        reasoning = ""
    after_reasoning = (reasoning + text).rpartition("</think>")[2]
    finish_reason = choice.get("finish_reason")
    if message.get("refusal") or finish_reason == "content_filter":
        finish = "refusal"
    elif not after_reasoning.strip():
        finish = "empty"
    else:
        finish = "length" if finish_reason == "length" else "stop"
    tokens = read_token_usage(value)
    if tokens is None:
        tokens = Tokens(estimate_prompt_tokens(request), estimate_tokens(reasoning + text))
    return ChatAnswer(
        text=text,
        finish=finish,
        prompt_tokens=tokens.prompt,
        completion_tokens=tokens.completion,
        seconds=round(times.seconds, 4),
        wall_seconds=round(times.wall_seconds, 4),
        cached=False,
        money=llm.price.of(*tokens) if llm.price else None,
        reasoning=replace_lone_surrogates(reasoning.strip()),
        alternatives=_read_alternatives(llm, choice) if request.alternatives else None,
    )


def _read_alternatives(llm: LLM, choice: Mapping[str, Any]) -> dict[str, float]:
    """Return the log-probabilities of the first token and its alternatives.

    vLLM sends one table per token, llama.cpp a list of rows. A server without log-probabilities
    never sends any, so this raises MissingError, after which the request is not sent again.
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
            f"{llm.name}: the server does not return log-probabilities of the next token, which "
            "this reranker needs.\nUse a server that returns them on /completions, such as vLLM or "
            "llama.cpp, or another reranker."
        )
    return log_probabilities


def _is_log_probability(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and _LEAST_LOG_PROBABILITY <= cast("float", value) <= 0


def restore_reasoning(llm: LLM, answer: ChatAnswer) -> ChatAnswer:
    """Return the answer with separately returned reasoning put back between <think> tags.

    This is done when an answer is used, not when it is stored, so that a stored answer suits every
    `stripping` setting.
    """
    if not answer.reasoning:
        return answer
    if llm.stripping != "think":
        return answer if answer.text.strip() else replace(answer, finish="empty")
    text = f"<think>\n{answer.reasoning}"
    if answer.text.strip():
        text += f"\n</think>\n\n{answer.text}"
    return replace(answer, text=text)


def replace_lone_surrogates(text: str) -> str:
    """Replace lone surrogates, which JSON may contain and UTF-8 may not, by question marks."""
    return text.encode("utf-8", "replace").decode()


def answer_from_refusal(failure: RequestFailure) -> ChatAnswer | None:
    """Return an empty answer if a server refused a request for its content or its length.

    None means that the failure has another cause, so that the request has no answer.
    """
    if failure.code in _CONTENT_FILTER_CODES:
        return ChatAnswer("", "refusal", 0, 0, 0.0, cached=False)
    is_client_error = failure.status in (400, 413, 422)
    if is_client_error and _TOO_LONG.search(f"{failure.code} {failure.why}"):
        return ChatAnswer("", "too-long", 0, 0, 0.0, cached=False)
    return None


Request = TypeVar("Request")
Answer = TypeVar("Answer")
Outcome = TypeVar("Outcome")


def run_in_step(
    conversations: Sequence[Generator[list[Request], list[Answer], Outcome]],
    answer_all: Callable[[list[Request]], Sequence[Answer]],
) -> list[Outcome]:
    """Run conversations in parallel; the next requests of all of them are answered as one batch.

    A conversation yields its next requests, receives their answers, and returns its outcome.
    """
    outcomes: dict[int, Outcome] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(conversations)))
    while answers:
        requests: dict[int, list[Request]] = {}
        for index, conversation_answers in answers.items():
            try:
                requests[index] = conversations[index].send(conversation_answers)
            except StopIteration as end:
                outcomes[index] = end.value
        batch = list(chain.from_iterable(requests.values()))
        batch_answers = iter(answer_all(batch) if requests else ())
        answers = {
            index: list(islice(batch_answers, len(conversation_requests)))
            for index, conversation_requests in requests.items()
        }
    return [outcomes[index] for index in range(len(conversations))]
