"""A language model, ready to be asked: one class for local and hosted models alike."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from r2med.home import shelf
from r2med.remote.batch import Batch, ChatProgress
from r2med.remote.calls import Calls
from r2med.remote.exchange import ChatAnswer, ChatRequest, Message, Usage
from r2med.remote.limits import LimitError, Limits
from r2med.remote.local import LocalServer
from r2med.remote.registry import LLM, find_llm
from r2med.remote.server import Home, Server, find_server
from r2med.remote.session import Session
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
        self._usage = replace(self._usage, cached=self._usage.cached + len(found))
        if len(found) < len(wanted):
            self._ask(wanted, found, tell)
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

    def _ask(
        self,
        wanted: Mapping[str, ChatRequest],
        found: dict[str, ChatAnswer],
        tell: Callable[[ChatProgress], None] | None,
    ) -> None:
        session = self._connected()
        began = time.monotonic()
        try:
            Batch(self.llm, session, self._calls, self._spending, wanted, found, tell).run()
        finally:
            spending = self._spending
            self._usage = replace(
                self._usage,
                calls=spending.calls,
                prompt_tokens=spending.prompt_tokens,
                completion_tokens=spending.completion_tokens,
                money=spending.money,
                seconds=self._usage.seconds + time.monotonic() - began,
            )

    def _count(self, answers: Sequence[ChatAnswer]) -> None:
        finishes = [answer.finish for answer in answers]
        self._usage = replace(
            self._usage,
            refusals=self._usage.refusals + finishes.count("refusal"),
            empty=self._usage.empty + finishes.count("empty") + finishes.count("too-long"),
            truncated=self._usage.truncated + finishes.count("length"),
            damaged=self._calls.damaged,
        )


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
