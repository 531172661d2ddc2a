"""A language model, ready to be asked: one class for local and hosted models alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType

from r2med.errors import MissingError
from r2med.home import shelf
from r2med.remote import wire
from r2med.remote.calls import Calls
from r2med.remote.exchange import ChatAnswer, ChatRequest, Message, Usage
from r2med.remote.limits import LimitError, Limits
from r2med.remote.local import LocalServer
from r2med.remote.registry import LLM, find_llm
from r2med.remote.server import Home, Server, find_server
from r2med.remote.session import Failure, Reply, Session
from r2med.remote.spending import Estimate, Price, Spending, prompt_tokens_of

__all__ = [
    "Chat",
    "ChatAnswer",
    "ChatProgress",
    "ChatRequest",
    "Estimate",
    "LimitError",
    "Limits",
    "Message",
    "Usage",
    "open_chat",
]

_ENVIRONMENT = "R2MED_LLM"


@dataclass(frozen=True)
class ChatProgress:
    """How far a batch of requests has come."""

    done: int
    total: int
    cached: int
    under_way: int
    seconds: float
    completion_tokens: int
    money: float | None

    @property
    def tokens_per_second(self) -> float:
        """New tokens a second over the whole batch."""
        return self.completion_tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before there is one."""
        made = self.done - self.cached
        return (self.total - self.done) * self.seconds / made if made else None


class Chat:
    """A configured model: registry entry, server, parameters and limits.

    Nothing is started or connected before a request is not answered from disk.
    """

    def __init__(
        self, llm: LLM, server: Server | LocalServer, limits: Limits, *, fresh: bool = False
    ) -> None:
        self.llm = llm
        self.limits = limits
        self._server = server
        self._session: Session | None = None
        self._calls = Calls(shelf("generations"), self.identity)
        self._since = time.time() if fresh else 0.0
        price = None
        if llm.price_in is not None and llm.price_out is not None:
            price = Price(llm.price_in, llm.price_out)
        self._spending = Spending(price, limits, name=llm.name)
        self._usage = Usage(money=self._spending.money)

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

    @property
    def usage(self) -> Usage:
        """What has been used since the chat was opened."""
        return self._usage

    def complete(
        self,
        requests: Sequence[ChatRequest],
        *,
        tell: Callable[[ChatProgress], None] | None = None,
    ) -> list[ChatAnswer]:
        """Answers in the order of the requests; each is on disk the moment it arrives.

        Refusals, empty and cut answers are answers. A limit raises LimitError, a server that
        fails for good MissingError; both after everything under way has arrived and is kept.
        """
        keys = [self._calls.key(request) for request in requests]
        found = self._stored(keys)
        wanted = dict(zip(keys, requests, strict=True))
        todo = [(key, request) for key, request in wanted.items() if key not in found]
        batch = _Batch(self, todo, found, len(wanted), tell)
        self._usage = replace(self._usage, cached=self._usage.cached + len(found))
        if todo:
            batch.run()
        answers = [found[key] for key in keys]
        self._count(answers)
        return answers

    def stored(self, requests: Sequence[ChatRequest]) -> list[ChatAnswer | None]:
        """The answers that are already on disk; asks nobody."""
        keys = [self._calls.key(request) for request in requests]
        found = self._stored(keys)
        return [found.get(key) for key in keys]

    def estimate(self, requests: Sequence[ChatRequest]) -> Estimate:
        """What completing the requests would use; answers on disk are free."""
        wanted = {self._calls.key(request): request for request in requests}
        found = self._stored(list(wanted))
        todo = [request for key, request in wanted.items() if key not in found]
        prompts = sum(prompt_tokens_of(request) for request in todo)
        if found:
            mean = round(sum(a.completion_tokens for a in found.values()) / len(found))
            told = f"{mean} new tokens an answer, the mean of {len(found)} on disk"
        else:
            mean = self.llm.expected_tokens
            told = f"{mean} new tokens an answer, expected of {self.llm.name}"
        new = sum(min(mean, request.max_tokens or mean) for request in todo)
        price = self._spending.price
        return Estimate(
            calls=len(todo),
            cached=len(found),
            prompt_tokens=prompts,
            completion_tokens=new,
            money=price.of(prompts, new) if price else None,
            basis=f"4 characters a token; {told}",
        )

    def close(self) -> None:
        """End connections, the local server if there is one, and this process's file."""
        if self._session is not None:
            self._session.close()
            self._session = None
        if isinstance(self._server, LocalServer):
            self._server.stop()
        self._calls.close()

    def _stored(self, keys: Sequence[str]) -> dict[str, ChatAnswer]:
        self._calls.refresh()
        stored = ((key, self._calls.get(key, since=self._since)) for key in keys)
        return {key: answer for key, answer in stored if answer is not None}

    def _connected(self) -> Session:
        if self._session is None:
            server = self._server
            place = Server(server.url()) if isinstance(server, LocalServer) else server
            self._session = Session(place, self.limits)
        return self._session

    def _count(self, answers: Sequence[ChatAnswer]) -> None:
        finishes = [answer.finish for answer in answers]
        self._usage = replace(
            self._usage,
            refusals=self._usage.refusals + finishes.count("refusal"),
            empty=self._usage.empty + finishes.count("empty") + finishes.count("too-long"),
            truncated=self._usage.truncated + finishes.count("length"),
        )


class _Batch:
    """Requests that the disk cannot answer, on their way."""

    def __init__(
        self,
        chat: Chat,
        todo: Sequence[tuple[str, ChatRequest]],
        found: dict[str, ChatAnswer],
        total: int,
        tell: Callable[[ChatProgress], None] | None,
    ) -> None:
        self.chat = chat
        self.todo = todo
        self.found = found
        self.total = total
        self.tell = tell
        self.cached = len(found)
        self.failures: list[Failure] = []
        self.over_limit = False
        self.started = time.monotonic()
        self.new_tokens = 0

    def run(self) -> None:
        """Ask, and keep every answer as it comes; then fail if one is missing."""
        chat = self.chat
        session = chat._connected()
        bodies = [wire.body(chat.llm, request) for _, request in self.todo]
        self.started = time.monotonic()
        try:
            for outcome in session.each(wire.PATH, bodies, check=wire.problem, admit=self._admit):
                self._take(outcome, session)
        finally:
            chat._calls.sync()
            self._account()
        if self.over_limit:
            raise LimitError(self._stopped())
        if self.failures:
            raise MissingError(self._failed())

    def _admit(self, place: int) -> bool:
        chat = self.chat
        request = self.todo[place][1]
        new = chat._spending.mean_completion(chat.llm.expected_tokens)
        new = min(new, request.max_tokens or chat.llm.max_tokens or new)
        self.over_limit = not chat._spending.begin(id(request), prompt_tokens_of(request), new)
        return not self.over_limit

    def _take(self, outcome: Reply | Failure, session: Session) -> None:
        key, request = self.todo[outcome.place]
        chat = self.chat
        if isinstance(outcome, Reply):
            about = prompt_tokens_of(request)
            answer = wire.answer(chat.llm, outcome.value, outcome.seconds, prompt_tokens=about)
            chat._calls.put(key, answer)
            self.found[key] = answer
            self.new_tokens += answer.completion_tokens
            chat._spending.end(id(request), answer.prompt_tokens, answer.completion_tokens)
        else:
            chat._spending.end(id(request))
            declined = wire.declined(outcome)
            if declined is None:
                self.failures.append(outcome)
            else:
                self.found[key] = declined
        if self.tell is not None:
            self.tell(self._progress(session))

    def _progress(self, session: Session) -> ChatProgress:
        return ChatProgress(
            done=len(self.found),
            total=self.total,
            cached=self.cached,
            under_way=session.pace.under_way,
            seconds=time.monotonic() - self.started,
            completion_tokens=self.new_tokens,
            money=self.chat._spending.money,
        )

    def _account(self) -> None:
        spending, usage = self.chat._spending, self.chat._usage
        self.chat._usage = replace(
            usage,
            calls=spending.calls,
            prompt_tokens=spending.prompt_tokens,
            completion_tokens=spending.completion_tokens,
            money=spending.money,
            seconds=usage.seconds + time.monotonic() - self.started,
        )

    def _kept(self) -> str:
        return f"{len(self.found):,} of {self.total:,} answers are here and kept"

    def _stopped(self) -> str:
        spending = self.chat._spending
        return (
            f"{self.chat.llm.name}: the next request would pass the limit of {spending.limit()}; "
            f"used: {spending.spent()}.\n{self._kept()}. Raise the limit and run again to go on."
        )

    def _failed(self) -> str:
        first = self.failures[0]
        missing = self.total - len(self.found)
        where = self.chat._connected().server.url
        return (
            f"{self.chat.llm.name} at {where}: {missing:,} of {self.total:,} requests have no "
            f"answer. The first: {first.why}.\n{self._kept()}; {_advice(first)}"
        )


def _advice(failure: Failure) -> str:
    if failure.status in (401, 403):
        return "the server does not accept the key, or wants one: see docs/llms.md."
    if failure.status == 404:
        return "check the server's address and the model's name on it ([model=...])."
    return "run again to ask for the rest."


@contextmanager
def open_chat(
    name: str,
    *,
    url: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    limits: Limits | None = None,
    fresh: bool = False,
) -> Iterator[Chat]:
    """Open a model by its registered name, or by any name on an OpenAI-compatible server.

    `url` (or R2MED_LLM_URL) names the server; `options` override the entry's fields; `limits` are
    the environment's unless given; `fresh` asks again for what earlier runs have on disk.
    """
    chat = make_chat(name, url=url, options=options, limits=limits, fresh=fresh)
    try:
        yield chat
    finally:
        chat.close()


def make_chat(
    name: str,
    *,
    url: str | None = None,
    options: Mapping[str, str] = MappingProxyType({}),
    limits: Limits | None = None,
    fresh: bool = False,
) -> Chat:
    """As `open_chat`, for callers who close it themselves."""
    somewhere = bool(url or os.environ.get(f"{_ENVIRONMENT}_URL"))
    llm = find_llm(name, anything=somewhere).overridden(options)
    allowed = Limits.from_environment() if limits is None else limits
    if llm.local and not url:
        return Chat(llm, LocalServer(llm), allowed, fresh=fresh)
    key_env = options.get("key_env", "")
    home = Home(llm.url, llm.key_env, _ENVIRONMENT)
    server = find_server(llm.name, home, url=url, key_env=key_env)
    return Chat(llm, server, allowed, fresh=fresh)
