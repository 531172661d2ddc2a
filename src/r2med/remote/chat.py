"""A language model, ready to be asked: one class for local and hosted models alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from r2med.errors import MissingError
from r2med.home import home, shelf
from r2med.remote.answers import Answers
from r2med.remote.budget import Budget, Cost, Estimate, Limits, Price, Tokens
from r2med.remote.completions import (
    ChatAnswer,
    ChatRequest,
    as_written,
    declined,
    most_tokens,
    prompt_tokens,
    read_answer,
    to_job,
)
from r2med.remote.registry import LLM, find_llm
from r2med.remote.requests import Failure, Job, Session
from r2med.remote.server import LocalServer, Server, find_server

_ENVIRONMENT = "R2MED_LLM"
#: Seconds between two looks for answers that another process is asking for.
_LOOK_AGAIN = 0.1

Tell = Callable[[str], None]
#: Hears what is under way, how many requests are done, of how many, and the seconds so far.
Show = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Usage:
    """What answers took; money is in US dollars, None where no price is known."""

    calls: int = 0
    """Answers that were asked for; tokens and money below are theirs."""
    cached: int = 0
    """Answers that were on disk."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money: float | None = None
    cached_tokens: int = 0
    """Prompt and completion tokens that the cached answers took when they were made."""
    cached_money: float | None = None
    answer_seconds: float = 0.0
    """The times that all answers took, added up; cached ones as recorded."""

    @classmethod
    def of(cls, answers: Collection[ChatAnswer], price: Price | None) -> Usage:
        """What some answers took; an answer kept without its cost has the price of today."""

        def money(some: Sequence[ChatAnswer]) -> float | None:
            if price is None:
                return None
            today = ((a, price.of(a.prompt_tokens, a.completion_tokens)) for a in some)
            return sum(cost if a.money is None else a.money for a, cost in today)

        made = [answer for answer in answers if not answer.cached]
        cached = [answer for answer in answers if answer.cached]
        return cls(
            calls=len(made),
            cached=len(cached),
            prompt_tokens=sum(a.prompt_tokens for a in made),
            completion_tokens=sum(a.completion_tokens for a in made),
            money=money(made),
            cached_tokens=sum(a.prompt_tokens + a.completion_tokens for a in cached),
            cached_money=money(cached),
            answer_seconds=sum(a.seconds for a in answers),
        )

    def __add__(self, other: Usage) -> Usage:
        return self._combined(other, 1)

    def since(self, before: Usage) -> Usage:
        """What was done after an earlier moment."""
        return self._combined(before, -1)

    def facts(self) -> dict[str, object]:
        """What a stage records of its calls, as JSON values."""
        tokens = self.prompt_tokens + self.completion_tokens
        return {**asdict(self), "tokens": tokens, "answer_seconds": round(self.answer_seconds, 3)}

    def _combined(self, other: Usage, sign: int) -> Usage:
        values: dict[str, Any] = {}
        for name, value in asdict(self).items():
            change = getattr(other, name)
            values[name] = None if value is change is None else (value or 0) + sign * (change or 0)
        return Usage(**values)


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
            (home() / "generations").rename(shelf("answers"))
        self._answers = Answers(shelf("answers"), self.identity, tell=remote.tell)
        self._since = time.time() if remote.fresh else 0.0
        self.usage = Usage.of((), self.price)
        """What all answers took since the chat was made."""

    @property
    def identity(self) -> Mapping[str, object]:
        """What decides an answer besides the request, as JSON values; no secrets, nothing asked."""
        if isinstance(self._server, LocalServer):
            server = {"kind": "local", "weights": self.llm.local_sha256[:16]}
        else:
            server = {"kind": "openai-compatible", "url": self._server.url}
        return {
            "model": self.llm.model,
            "server": server,
            "parameters": self.llm.parameters(),
        }

    def complete(
        self, requests: Sequence[ChatRequest], *, show: Show = lambda *_: None
    ) -> list[ChatAnswer]:
        """Answers in the order of the requests; each is on disk the moment it arrives.

        The requests are conversations, or all of them bare texts.

        Refusals, empty and cut answers are answers. A limit raises LimitError, a server that
        fails for good MissingError; both after everything under way has arrived and is kept.
        """
        wanted = {request.key: request for request in requests}
        batch = _Batch(self, wanted, self._stored(wanted), show)
        try:
            if len(batch.answers) < len(wanted):
                batch.run(self._connected())
        finally:
            self.usage += Usage.of(batch.answers.values(), self.price)
        return [as_written(self.llm, batch.answers[request.key]) for request in requests]

    def estimate(self, requests: Sequence[ChatRequest], *, length: int | None = None) -> Estimate:
        """What completing the requests would use; answers on disk are free.

        `length` is how many tokens an answer needs that says no more than it was asked for.
        """
        wanted = {request.key: request for request in requests}
        answers = self._stored(wanted)
        todo = [request for key, request in wanted.items() if key not in answers]
        prompts = sum(prompt_tokens(request) for request in todo)
        if answers:
            mean = round(sum(a.completion_tokens for a in answers.values()) / len(answers))
            basis = f"{mean} new tokens per answer, the mean of {len(answers)} on disk"
        else:
            mean = self.llm.expected_tokens
            if length is not None and not self.llm.reasoning:
                mean = min(mean, length)
            basis = f"{mean} new tokens per answer, expected of {self.llm.name}"
        new = sum(min(mean, request.max_tokens or mean) for request in todo)
        estimate = Estimate(
            calls=len(todo),
            already_here=len(answers),
            prompt_tokens=prompts,
            completion_tokens=new,
            money=self.price.of(prompts, new) if self.price else None,
            basis=f"4 characters per token; {basis}{self.llm.priced}",
        )
        return estimate.at_most(self.most(todo), self.price)

    def most(self, requests: Sequence[ChatRequest]) -> Tokens | None:
        """The most tokens that requests may use; None where an answer has no known limit."""
        most = [most_tokens(self.llm, request) for request in requests]
        known = [each for each in most if each is not None]
        sums = Tokens(sum(m.prompt for m in known), sum(m.completion for m in known))
        return sums if len(known) == len(most) else None

    def close(self) -> None:
        """End connections, the local server if there is one, and this process's file."""
        session, self._session = self._session, None
        if session is not None:
            session.close()
        if isinstance(self._server, LocalServer):
            self._server.stop()
        self._answers.close()

    def _stored(self, wanted: Mapping[str, ChatRequest]) -> dict[str, ChatAnswer]:
        self._answers.refresh()
        stored = ((key, self._answers.get(key, since=self._since)) for key in wanted)
        return {key: answer for key, answer in stored if answer is not None}

    def _connected(self) -> Session:
        if self._session is None:
            server = self._server
            place = Server(server.url()) if isinstance(server, LocalServer) else server
            self._session = Session(place, self.budget, name=self.llm.name, price=self.price)
        return self._session


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
        most = [Cost.of(job.most, self.chat.price) for job in jobs.values()]
        budget.check_one(most, llm.name)
        try:
            while todo:
                self._ask(session, todo, [jobs[key] for key in todo])
                if self.failures:
                    raise MissingError(self._failed(session))
                todo = [key for key in todo if key not in self.answers]
                if todo:  # another process is asking for these
                    time.sleep(_LOOK_AGAIN)
        finally:
            for key in list(self.reserved):
                self._release(key)
            self.chat._answers.sync(at_once=True)

    def _ask(self, session: Session, keys: Sequence[str], jobs: Sequence[Job]) -> None:
        def read(place: int, value: dict[str, Any], seconds: float) -> ChatAnswer:
            key = keys[place]
            answer = read_answer(self.chat.llm, self.wanted[key], value, seconds)
            self.chat._answers.put(key, answer)
            self._release(key)
            return answer

        path, reserve = self.wanted[keys[0]].path, lambda place: self._reserve(keys[place])
        for place, outcome in session.each(path, jobs, read, start=reserve):
            key = keys[place]
            if not isinstance(outcome, Failure):
                self.answers[key] = outcome
                self.new_tokens += outcome.completion_tokens
                self.money += outcome.money or 0.0
            else:
                self._release(key)
                if (answered := declined(outcome)) is not None:
                    self.answers[key] = answered
                else:
                    self.failures.append(outcome)
            seconds = time.monotonic() - self.started
            speed = f"{self.new_tokens / max(seconds, 1e-9):,.0f} tokens/s"
            cost = f" · ${self.money:,.2f}" if self.money else ""
            what = f"asking {self.chat.llm.name} · {speed}{cost}"
            self.show(what, len(self.answers), len(self.wanted), seconds)
            self.chat._answers.sync()

    def _reserve(self, key: str) -> bool:
        """Whether to ask: nobody else is asking, and nobody has answered in the meantime."""
        if not self.chat._answers.reserve(key):
            return False
        self.reserved.add(key)
        answer = self.chat._answers.get(key, since=self.chat._since)
        if answer is None:
            return True
        self.answers[key] = answer
        self._release(key)
        return False

    def _release(self, key: str) -> None:
        self.chat._answers.release(key)
        self.reserved.discard(key)

    def _failed(self, session: Session) -> str:
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
            llm = find_llm(name, anything=somewhere).overridden(options)
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
                    key_env=options.get("key_env", ""),
                )
            self._chats[key] = Chat(llm, server, self)
        return self._chats[key]

    def close(self) -> None:
        """End what the chats started; they start it again when they are asked again."""
        for chat in self._chats.values():
            chat.close()
