"""The client of language models: `Chat` is one configured model, local or hosted."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from r2med.errors import MissingError
from r2med.paths import cache_folder
from r2med.remote.answers import Answers
from r2med.remote.budget import Budget, Limits, RequestEstimate, Tokens
from r2med.remote.completions import (
    ChatAnswer,
    ChatRequest,
    answer_from_refusal,
    build_request,
    estimate_prompt_tokens,
    read_answer,
    restore_reasoning,
)
from r2med.remote.registry import LLM, find_llm
from r2med.remote.requests import ApiRequest, RequestFailure, RequestTimes, Session
from r2med.remote.server import LocalServer, Server, find_server

_ENVIRONMENT = "R2MED_LLM"
#: Seconds between two checks for answers to requests that another process has sent.
_POLL_INTERVAL = 0.1

Warn = Callable[[str], None]
#: Callback for progress: a description, requests done, requests in total, seconds so far.
ShowProgress = Callable[[str, int, int, float], None]


class Chat:
    """A configured model: registry entry, server, parameters and budget.

    Files, connections and the local server are opened by the first request. After `close`, the next
    request opens them again.
    """

    def __init__(self, llm: LLM, server: Server | LocalServer, remote: Remote) -> None:
        self.llm = llm
        self.budget = remote.budget
        self.price = llm.price
        self.budget.check_price(self.price, llm.name)
        self._server = server
        self._session: Session | None = None
        since = time.time() if remote.fresh else 0.0
        self._answers = Answers(
            cache_folder("answers"), self.identity, since=since, warn=remote.warn
        )
        self.received: list[ChatAnswer] = []
        """Every answer received since this object was created, without its text."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything besides the request that can change an answer, as JSON values; no secrets."""
        if isinstance(self._server, LocalServer):
            server = {"kind": "local", "weights": self.llm.local_sha256[:16]}
        else:
            server = {"kind": "openai-compatible"}
            if self.llm.server == "url":
                server["url"] = self._server.url
        return {
            "model": self.llm.model,
            "server": server,
            "parameters": self.llm.parameters(),
        }

    def complete(
        self,
        requests: Sequence[ChatRequest],
        *,
        show: ShowProgress = lambda *_: None,
        received: list[ChatAnswer] | None = None,
    ) -> list[ChatAnswer]:
        """Return the answers in the order of the requests; each is stored when it arrives.

        Refusals and empty or cut answers are answers too.

        Args:
            requests: All of them conversations, or all of them bare texts.
            show: Callback for progress.
            received: A list to which every distinct answer is added, without its text, so that the
                caller can count what its own requests used.

        Raises:
            LimitError: A limit is reached. Requests in progress are finished and stored first.
            MissingError: The server keeps failing. Requests in progress are finished first too.
        """
        distinct = {request.key: request for request in requests}
        answers = self._read_stored(distinct)
        try:
            if len(answers) < len(distinct):
                _Batch(self, distinct, answers, show).run(self._connect())
        finally:
            without_text = [replace(a, text="", reasoning="") for a in answers.values()]
            self.received += without_text
            if received is not None:
                received += without_text
        return [restore_reasoning(self.llm, answers[request.key]) for request in requests]

    def usage(self, answers: Sequence[ChatAnswer] | None = None) -> dict[str, Any]:
        """Return tokens, money and seconds of some answers, by default of all received so far.

        Money is None if no price is known; for an answer stored without its cost, today's price
        counts.
        """
        answers = self.received if answers is None else answers
        new_answers = [answer for answer in answers if not answer.cached]
        cached_answers = [answer for answer in answers if answer.cached]
        prompt_tokens = sum(answer.prompt_tokens for answer in new_answers)
        completion_tokens = sum(answer.completion_tokens for answer in new_answers)
        return {
            "calls": len(new_answers),
            "cached": len(cached_answers),
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "tokens": prompt_tokens + completion_tokens,
            "money": self._sum_money(new_answers),
            "cached_tokens": sum(a.prompt_tokens + a.completion_tokens for a in cached_answers),
            "cached_money": self._sum_money(cached_answers),
            "answer_seconds": round(sum(answer.wall_seconds for answer in answers), 3),
            "request_p50": _percentile([answer.seconds for answer in answers], 50),
            "request_p95": _percentile([answer.seconds for answer in answers], 95),
        }

    def estimate(
        self, requests: Iterable[ChatRequest], *, length: int | None = None
    ) -> RequestEstimate:
        """Estimate tokens and money for the requests; cached answers are free.

        `length` is the number of tokens of an answer without reasoning or explanations.
        """
        expected = self.llm.expected_tokens
        if length is not None and not self.llm.reasoning:
            expected = min(expected, length)
        basis = f"expected of {self.llm.name}"
        distinct = {
            request.key: Tokens(estimate_prompt_tokens(request), request.max_tokens or 0)
            for request in requests
        }
        stored = self._read_stored(distinct)
        if stored:
            expected = round(sum(a.completion_tokens for a in stored.values()) / len(stored))
            basis = f"the mean of {len(stored):,} on disk"
        missing = [tokens for key, tokens in distinct.items() if key not in stored]
        total = Tokens(
            prompt=sum(tokens.prompt for tokens in missing),
            completion=sum(min(expected, tokens.completion or expected) for tokens in missing),
        )
        date, source = self.llm.price_date, self.llm.price_source
        price_basis = f"; prices of {date} ({source})" if date else ""
        return RequestEstimate(
            cached=len(stored),
            calls=len(missing),
            prompt_tokens=total.prompt,
            completion_tokens=total.completion,
            money=self.price.of(*total) if self.price else None,
            basis=f"4 characters per token; {expected} new tokens per answer, {basis}{price_basis}",
        )

    def close(self) -> None:
        """Close connections, the local server and this process's file."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if isinstance(self._server, LocalServer):
            self._server.stop()
        self._answers.close()

    def _sum_money(self, answers: Sequence[ChatAnswer]) -> float | None:
        price = self.price
        if price is None:
            return None
        return sum(
            price.of(answer.prompt_tokens, answer.completion_tokens)
            if answer.money is None
            else answer.money
            for answer in answers
        )

    def _read_stored(self, keys: Iterable[str]) -> dict[str, ChatAnswer]:
        self._answers.refresh()
        stored = ((key, self._answers.get(key)) for key in keys)
        return {key: answer for key, answer in stored if answer is not None}

    def _connect(self) -> Session:
        if self._session is None:
            server = self._server
            if isinstance(server, LocalServer):
                server = Server(server.url())
            self._session = Session(server, self.budget, name=self.llm.name, price=self.price)
        return self._session


def _percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that at least `percent` percent of the values do not exceed."""
    if not values:
        return None
    rank = math.ceil(percent * len(values) / 100)
    return round(sorted(values)[max(rank, 1) - 1], 4)


@dataclass
class _Batch:
    """The requests of one call of `Chat.complete`, while those without a stored answer are sent."""

    chat: Chat
    requests: Mapping[str, ChatRequest]
    """All requests by key, including those with a stored answer."""
    answers: dict[str, ChatAnswer]
    """Answers by key of the request; filled as answers arrive."""
    show: ShowProgress
    new_tokens: int = 0
    money: float = 0.0
    failures: list[RequestFailure] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    def run(self, session: Session) -> None:
        """Send the requests and store every answer as it arrives.

        Raises MissingError if a request remains without an answer.
        """
        llm, is_limited = self.chat.llm, self.chat.budget.is_limited
        missing = [key for key in self.requests if key not in self.answers]
        api_requests = {
            key: build_request(llm, self.requests[key], is_limited=is_limited) for key in missing
        }
        try:
            while missing:
                self._send(session, missing, [api_requests[key] for key in missing])
                if self.failures:
                    raise MissingError(self._describe_failures(session))
                self.answers |= self.chat._read_stored(
                    key for key in missing if key not in self.answers
                )
                missing = [key for key in missing if key not in self.answers]
                if missing:  # another process has sent these
                    time.sleep(_POLL_INTERVAL)
        finally:
            for key in list(self.reserved):
                self._release(key)
            self.chat._answers.sync(at_once=True)

    def _send(
        self, session: Session, keys: Sequence[str], api_requests: Sequence[ApiRequest]
    ) -> None:
        def read(index: int, value: dict[str, Any], times: RequestTimes) -> ChatAnswer:
            key = keys[index]
            answer = read_answer(self.chat.llm, self.requests[key], value, times)
            self.chat._answers.put(key, answer)
            return answer

        def reserve(index: int) -> bool:
            return self._reserve(keys[index])

        path = self.requests[keys[0]].path
        for index, outcome in session.send_all(path, api_requests, read, start=reserve):
            self._release(keys[index])
            self._count(keys[index], outcome)
            self._show_progress()
            self.chat._answers.sync()

    def _count(self, key: str, outcome: ChatAnswer | RequestFailure) -> None:
        answer = answer_from_refusal(outcome) if isinstance(outcome, RequestFailure) else outcome
        if answer is not None:
            self.answers[key] = answer
            self.new_tokens += answer.completion_tokens
            self.money += answer.money or 0.0
        elif isinstance(outcome, RequestFailure):
            self.failures.append(outcome)

    def _show_progress(self) -> None:
        seconds = time.monotonic() - self.started
        speed = f"{self.new_tokens / max(seconds, 1e-9):,.0f} tokens/s"
        cost = f" · ${self.money:,.2f}" if self.money else ""
        description = f"asking {self.chat.llm.name} · {speed}{cost}"
        self.show(description, len(self.answers), len(self.requests), seconds)

    def _reserve(self, key: str) -> bool:
        if not self.chat._answers.reserve(key):
            return False
        self.reserved.add(key)
        return True

    def _release(self, key: str) -> None:
        self.chat._answers.release(key)
        self.reserved.discard(key)

    def _describe_failures(self, session: Session) -> str:
        llm, first = self.chat.llm, self.failures[0]
        done, total = len(self.answers), len(self.requests)
        advice = first.advice(
            unknown="check the server's address (--llm-url or R2MED_LLM_URL) and that it serves "
            f"{llm.model!r}.\nIf the server has another name for the model, use that name instead "
            f"of {llm.name}, or set model under [{llm.name}] in your llms.toml "
            "(R2MED_LLM_CONFIG); see docs/llms.md."
        )
        return (
            f"{llm.name} at {session.server.url}: {total - done:,} of {total:,} requests "
            f"have no answer. The first: {first.why}.\n{done:,} of {total:,} answers are stored; "
            f"{advice}"
        )


class Remote:
    """The models behind HTTP that a command uses: one budget for all, one `Chat` per model."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        url: str | None = None,
        fresh: bool = False,
        warn: Warn = lambda _: None,
    ) -> None:
        self.budget = Budget(limits)
        self.url = url
        self.fresh = fresh
        self.warn = warn
        self._chats: dict[tuple[object, ...], Chat] = {}

    def chat(self, name: str, options: Mapping[str, str] = MappingProxyType({})) -> Chat:
        """Return the chat of a registered model, or of any model on an OpenAI-compatible server.

        `options` override fields of the entry. The same name and options return the same object.
        """
        key = (name, *sorted(options.items()))
        if key not in self._chats:
            has_server = bool(self.url or os.environ.get(f"{_ENVIRONMENT}_URL"))
            llm = find_llm(name, allow_unknown=has_server).override(options)
            server: Server | LocalServer
            if llm.local and not self.url:
                server = LocalServer(llm)
            else:
                server = find_server(
                    llm.name,
                    entry_url=llm.url,
                    entry_key_env=llm.key_env,
                    environment=_ENVIRONMENT,
                    url=self.url,
                )
            self._chats[key] = Chat(llm, server, self)
        return self._chats[key]

    def close(self) -> None:
        """Close all chats; a chat opens again at its next request."""
        for chat in self._chats.values():
            chat.close()
