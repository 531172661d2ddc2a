"""A language model, ready to be asked: one class for local and hosted models alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from r2med.errors import MissingError
from r2med.paths import cache_folder, home_folder
from r2med.remote.answers import Answers
from r2med.remote.budget import Budget, Estimate, Limits, Tokens
from r2med.remote.completions import (
    ChatAnswer,
    ChatRequest,
    as_written,
    prompt_tokens,
    read_answer,
    refusal_answer,
    to_job,
)
from r2med.remote.registry import LLM, find_llm
from r2med.remote.requests import Failure, Job, RequestTimes, Session
from r2med.remote.server import LocalServer, Server, find_server

_ENVIRONMENT = "R2MED_LLM"
#: Seconds between two looks for answers that another process is asking for.
_LOOK_AGAIN = 0.1

Tell = Callable[[str], None]
#: Hears what is under way, how many requests are done, of how many, and the seconds so far.
Show = Callable[[str, int, int, float], None]


class Chat:
    """A configured model: registry entry, server, parameters and budget.

    Nothing is read, started or connected before the first request; `close` ends what was started,
    and a later request starts it again.
    """

    def __init__(self, llm: LLM, server: Server | LocalServer, remote: Remote) -> None:
        self.llm = llm
        self.budget = remote.budget
        self.price = llm.price
        self.budget.check_price(self.price, llm.name)
        self._server = server
        self._session: Session | None = None
        with suppress(OSError):  # the shelf's former name
            (home_folder() / "generations").rename(cache_folder("answers"))
        since = time.time() if remote.fresh else 0.0
        self._answers = Answers(
            cache_folder("answers"), self.identity, since=since, tell=remote.tell
        )
        self.taken: list[ChatAnswer] = []
        """Every answer since the chat was made, without its words."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides an answer besides the request, as JSON values; no secrets, nothing asked."""
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
        show: Show = lambda *_: None,
        taken: list[ChatAnswer] | None = None,
    ) -> list[ChatAnswer]:
        """Answers in the order of the requests; each is on disk the moment it arrives.

        The requests are conversations, or all of them bare texts. `taken` collects every distinct
        answer without its words, so that a caller can tell what its own requests used.

        Refusals, empty and cut answers are answers. A limit raises LimitError, a server that
        fails for good MissingError; both after everything under way has arrived and is kept.
        """
        wanted = {request.key: request for request in requests}
        answers = self._read_stored(wanted)
        try:
            if len(answers) < len(wanted):
                _Batch(self, wanted, answers, show).run(self._connect())
        finally:
            counted = [replace(a, text="", reasoning="") for a in answers.values()]
            self.taken += counted
            if taken is not None:
                taken += counted
        return [as_written(self.llm, answers[request.key]) for request in requests]

    def usage(self, answers: Sequence[ChatAnswer] | None = None) -> dict[str, Any]:
        """What some answers took, or all since the chat was made.

        Money is None where no price is known; an answer kept without its cost has today's price.
        """
        new_answers, cached = list[ChatAnswer](), list[ChatAnswer]()
        answers = self.taken if answers is None else answers
        for answer in answers:
            (cached if answer.cached else new_answers).append(answer)

        def money(answers: Sequence[ChatAnswer]) -> float | None:
            price = self.price
            if price is None:
                return None
            return sum(
                price.of(a.prompt_tokens, a.completion_tokens) if a.money is None else a.money
                for a in answers
            )

        prompts, new = (
            sum(a.prompt_tokens for a in new_answers),
            sum(a.completion_tokens for a in new_answers),
        )
        return {
            "calls": len(new_answers),
            "cached": len(cached),
            "prompt_tokens": prompts,
            "completion_tokens": new,
            "tokens": prompts + new,
            "money": money(new_answers),
            "cached_tokens": sum(a.prompt_tokens + a.completion_tokens for a in cached),
            "cached_money": money(cached),
            "answer_seconds": round(sum(answer.wall_seconds for answer in answers), 3),
            "request_p50": _percentile([answer.seconds for answer in answers], 50),
            "request_p95": _percentile([answer.seconds for answer in answers], 95),
        }

    def estimate(self, requests: Iterable[ChatRequest], *, length: int | None = None) -> Estimate:
        """What completing the requests would use; answers on disk are free.

        `length` is how many tokens an answer needs that says no more than it was asked for.
        """
        expected = self.llm.expected_tokens
        if length is not None and not self.llm.reasoning:
            expected = min(expected, length)
        whence = f"expected of {self.llm.name}"
        limits = {r.key: Tokens(prompt_tokens(r), r.max_tokens or 0) for r in requests}
        stored = self._read_stored(limits)
        if stored:
            expected = round(sum(a.completion_tokens for a in stored.values()) / len(stored))
            whence = f"the mean of {len(stored):,} on disk"
        todo = [tokens for key, tokens in limits.items() if key not in stored]
        new = sum(min(expected, limit.completion or expected) for limit in todo)
        tokens = Tokens(sum(limit.prompt for limit in todo), new)
        date, source = self.llm.price_date, self.llm.price_source
        dated = f"; prices of {date} ({source})" if date else ""
        return Estimate(
            already_here=len(stored),
            calls=len(todo),
            prompt_tokens=tokens.prompt,
            completion_tokens=tokens.completion,
            money=self.price.of(*tokens) if self.price else None,
            basis=f"4 characters per token; {expected} new tokens per answer, {whence}{dated}",
        )

    def close(self) -> None:
        """End connections, the local server if there is one, and this process's file."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if isinstance(self._server, LocalServer):
            self._server.stop()
        self._answers.close()

    def _read_stored(self, wanted: Iterable[str]) -> dict[str, ChatAnswer]:
        self._answers.refresh()
        stored = ((key, self._answers.get(key)) for key in wanted)
        return {key: answer for key, answer in stored if answer is not None}

    def _connect(self) -> Session:
        if self._session is None:
            server = self._server
            index = Server(server.url()) if isinstance(server, LocalServer) else server
            self._session = Session(index, self.budget, name=self.llm.name, price=self.price)
        return self._session


def _percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the smallest value that at least so many percent of the values do not exceed."""
    if not values:
        return None
    rank = -(-percent * len(values) // 100)
    return round(sorted(values)[max(rank, 1) - 1], 4)


@dataclass
class _Batch:
    """Requests that the disk cannot answer, on their way."""

    chat: Chat
    wanted: Mapping[str, ChatRequest]
    answers: dict[str, ChatAnswer]
    show: Show
    new_tokens: int = 0
    money: float = 0.0
    failures: list[Failure] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    started: float = field(default_factory=time.monotonic)

    def run(self, session: Session) -> None:
        """Ask, and keep every answer on disk as it arrives; fail if one is missing in the end."""
        llm, budget = self.chat.llm, self.chat.budget
        todo = [key for key in self.wanted if key not in self.answers]
        jobs = {key: to_job(llm, self.wanted[key], limited=budget.limited) for key in todo}
        try:
            while todo:
                self._ask(session, todo, [jobs[key] for key in todo])
                if self.failures:
                    raise MissingError(self._describe_failures(session))
                self.answers |= self.chat._read_stored(
                    key for key in todo if key not in self.answers
                )
                todo = [key for key in todo if key not in self.answers]
                if todo:  # another process is asking for these
                    time.sleep(_LOOK_AGAIN)
        finally:
            for key in list(self.reserved):
                self._release(key)
            self.chat._answers.sync(at_once=True)

    def _ask(self, session: Session, keys: Sequence[str], jobs: Sequence[Job]) -> None:
        def read(index: int, value: dict[str, Any], times: RequestTimes) -> ChatAnswer:
            key = keys[index]
            answer = read_answer(self.chat.llm, self.wanted[key], value, times)
            self.chat._answers.put(key, answer)
            return answer

        path, reserve = self.wanted[keys[0]].path, lambda index: self._reserve(keys[index])
        for index, outcome in session.each(path, jobs, read, start=reserve):
            key = keys[index]
            self._release(key)
            answer = refusal_answer(outcome) if isinstance(outcome, Failure) else outcome
            if answer is not None:
                self.answers[key] = answer
                self.new_tokens += answer.completion_tokens
                self.money += answer.money or 0.0
            elif isinstance(outcome, Failure):
                self.failures.append(outcome)
            seconds = time.monotonic() - self.started
            speed = f"{self.new_tokens / max(seconds, 1e-9):,.0f} tokens/s"
            cost = f" · ${self.money:,.2f}" if self.money else ""
            description = f"asking {self.chat.llm.name} · {speed}{cost}"
            self.show(description, len(self.answers), len(self.wanted), seconds)
            self.chat._answers.sync()

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
        done, total = len(self.answers), len(self.wanted)
        advice = first.advice(
            unknown="check the server's address (--llm-url or R2MED_LLM_URL) and that it serves "
            f"{llm.model!r}.\nIf it calls the model otherwise, write its name in place of "
            f"{llm.name}, or set model under [{llm.name}] in a file of your own "
            "(R2MED_LLM_CONFIG); see docs/llms.md."
        )
        return (
            f"{llm.name} at {session.server.url}: {total - done:,} of {total:,} requests "
            f"have no answer. The first: {first.why}.\n{done:,} of {total:,} answers are here and "
            f"kept; {advice}"
        )


class Remote:
    """All that a command asks of models behind HTTP: one budget, and one chat per model."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        url: str | None = None,
        fresh: bool = False,
        tell: Tell = lambda _: None,
    ) -> None:
        self.budget = Budget(limits)
        self.url = url
        self.fresh = fresh
        self.tell = tell
        self._chats: dict[tuple[object, ...], Chat] = {}

    def chat(self, name: str, options: Mapping[str, str] = MappingProxyType({})) -> Chat:
        """A model by its registered name, or by any name on an OpenAI-compatible server.

        `options` override the entry's fields. The same name and options give the same chat.
        """
        key = (name, *sorted(options.items()))
        if key not in self._chats:
            somewhere = bool(self.url or os.environ.get(f"{_ENVIRONMENT}_URL"))
            llm = find_llm(name, anything=somewhere).override(options)
            server: Server | LocalServer
            if llm.local and not self.url:
                server = LocalServer(llm)
            else:
                server = find_server(
                    llm.name,
                    own_url=llm.url,
                    own_key_env=llm.key_env,
                    environment=_ENVIRONMENT,
                    url=self.url,
                )
            self._chats[key] = Chat(llm, server, self)
        return self._chats[key]

    def close(self) -> None:
        """End what the chats started; they start it again when they are asked again."""
        for chat in self._chats.values():
            chat.close()
