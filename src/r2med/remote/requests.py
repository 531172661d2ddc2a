"""Many requests to one server at once: within limits, retried, handed over as they arrive.

aiohttp rather than the openai SDK: the wire format is the same and small, and the SDK's own work
(5 to 7 ms of CPU per request where this takes about 1) would cap how fast many short answers come.
"""

from __future__ import annotations

import asyncio
import json
import queue
import random
import threading
import time
import weakref
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from r2med.errors import need
from r2med.remote.budget import Budget, Cost, Price, Tokens
from r2med.remote.server import Server

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
#: From a request's place, the JSON of its answer and the seconds it took to a value.
Read = Callable[[int, dict[str, Any], float], T]

#: Statuses that another attempt may turn into success.
_PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 522, 524, 529})
#: Statuses by which a server says that it did not do the work, besides all of 4xx.
_UNDONE = frozenset({503, 529})
#: The longest wait that a server may ask for; more is a failure that says so.
_LONGEST_WAIT = 600.0
_LONGEST_BACKOFF = 60.0
#: Requests given up in a row, with no answer between them, before the server counts as gone.
_GIVEN_UP = 3
#: Seconds between two looks for room in the budget while requests are under way.
_ROOM_AGAIN = 0.01
#: Seconds an idle connection is kept: less than servers do, so that none is closed under a request.
_KEEP_ALIVE = 4.0


class Job(NamedTuple):
    """A request to be made, and the most tokens it may use, where there is a limit to keep."""

    body: Mapping[str, object]
    most: Tokens = Tokens()


@dataclass(frozen=True)
class Failure:
    """A request without an answer: the server refused it, or it failed once too often."""

    status: int | None
    """None where no whole answer came at all."""
    why: str
    code: str = ""
    """The server's own word for it, such as `context_length_exceeded`."""
    hopeless: bool = False
    """Whether every other request would meet the same: a wrong key, an unknown model."""
    passing: bool = False
    """Whether another try may succeed."""

    def advice(self, *, unknown: str) -> str:
        """What to do; `unknown` is said where the server knows no such address or model."""
        if self.status in (401, 403):
            return "the server does not accept the key, or wants one: see docs/llms.md."
        return unknown if self.status == 404 else "run again to ask for the rest."


class Session:
    """An open connection to a server; requests run on a thread of its own.

    A thread, so that plain code, notebooks with a running event loop and several callers at once
    can all use it, and connections stay open between calls.
    """

    def __init__(
        self, server: Server, budget: Budget, *, name: str, price: Price | None = None
    ) -> None:
        need("aiohttp", extra="llm")
        self.server = server
        self.budget = budget
        self.limits = budget.limits
        self.name = name
        self.price = price
        self._held_until = 0.0
        self._proxy = server.proxy()
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        opening = _open(server.headers(), self.limits.timeout)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        self._http = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.close = weakref.finalize(self, _end, self._loop, thread, self._http)
        """Ends the connections and the thread; happens by itself when nobody has the session."""

    def each(
        self,
        path: str,
        jobs: Sequence[Job],
        read: Read[T],
        *,
        start: Callable[[int], bool] = lambda place: True,
    ) -> Iterator[tuple[int, T | Failure]]:
        """Every answer with the place of its job as it arrives, in whatever order.

        No more answers are under way or wait for the caller than requests may run at once, so that
        a kill loses no more. `read` turns the JSON of an answer into a value, on the session's own
        thread and before another request begins; its ValueError says what is wrong with the JSON,
        which is then asked for again. `start` is called just before a request is made and may say
        no. Once the budget has no room, what is under way still arrives, then LimitError is raised;
        the same when a request proves hopeless, because what is under way may already be paid for.
        """
        self.budget.check_one([Cost.of(job.most, self.price) for job in jobs], self.name)
        arrived: queue.SimpleQueue[Future[T | Failure]] = queue.SimpleQueue()
        under_way: dict[Future[T | Failure], int] = {}
        waiting = deque(range(len(jobs)))
        problem: Exception | None = None
        given_up = 0
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.limits.concurrency:
                    place = waiting.popleft()
                    if start(place):
                        sending = self._send(path, jobs[place], partial(read, place))
                        future = asyncio.run_coroutine_threadsafe(sending, self._loop)
                        under_way[future] = place
                        future.add_done_callback(arrived.put)
                if not under_way:
                    continue
                future = arrived.get()
                place = under_way.pop(future)
                try:
                    outcome = future.result()
                except Exception as error:
                    problem = problem or error
                    waiting.clear()
                    continue
                if isinstance(outcome, Failure):
                    given_up += outcome.passing
                    if outcome.hopeless or given_up >= _GIVEN_UP:
                        waiting.clear()
                else:
                    given_up = 0
                yield place, outcome
        finally:
            for future in under_way:
                future.cancel()
        if problem is not None:
            raise problem

    async def _send(
        self, path: str, job: Job, read: Callable[[dict[str, Any], float], T]
    ) -> T | Failure:
        """Try until there is an answer, each try within the budget."""
        data = json.dumps(job.body, ensure_ascii=False).encode("utf-8", "replace")
        most = Cost.of(job.most, self.price)
        claim, attempt = object(), 0
        while True:
            attempt += 1
            async with self._slots:  # of all who use this session
                while (pause := self._held_until - time.monotonic()) > 0:
                    await asyncio.sleep(pause)
                while not self.budget.claim(claim, most, self.name):
                    await asyncio.sleep(_ROOM_AGAIN)
                cost = None
                try:
                    outcome, cost = await self._attempt(path, data, read)
                finally:
                    self.budget.settle(claim, cost)
            if not isinstance(outcome, Failure) or not outcome.passing:
                return outcome
            if attempt >= self.limits.attempts:
                tries = f" (tried {attempt} times)" if attempt > 1 else ""
                return replace(outcome, why=outcome.why + tries)
            await asyncio.sleep(_backoff(attempt, self.limits.backoff))

    async def _attempt(
        self, path: str, data: bytes, read: Callable[[dict[str, Any], float], T]
    ) -> tuple[T | Failure, Cost | None]:
        """How one try ended, and what it used; None where nobody knows."""
        import aiohttp

        began, content = time.monotonic(), bytearray()
        url, most = f"{self.server.url}/{path}", self.limits.answer_bytes
        try:
            async with self._http.post(url, data=data, proxy=self._proxy) as response:
                packed = response.headers.get("Content-Encoding", "identity") != "identity"
                unpack = zlib.decompressobj(wbits=47).decompress if packed else None
                async for piece in response.content.iter_any():
                    content += unpack(piece, most + 1) if unpack else piece
                    if len(content) > most:
                        why = (
                            f"the answer is larger than {most:,} bytes, which is the most that is "
                            "read (R2MED_LLM_ANSWER_BYTES)"
                        )
                        return Failure(response.status, why), None
        except (aiohttp.ClientError, TimeoutError, zlib.error) as problem:
            unsent = isinstance(
                problem, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            words = self.server.shown(str(problem)) or type(problem).__name__
            why = f"the connection failed: {words}"
            if isinstance(problem, TimeoutError) and not unsent:
                why = f"no answer within {self.limits.timeout:g} s"
            return Failure(None, why, passing=True), Cost() if unsent else None
        if response.status != 200:
            return self._refused(response.status, response.headers, bytes(content))
        seconds = time.monotonic() - began
        value = _object(bytes(content))
        try:
            if value is None:
                raise ValueError("it is not a JSON object")
            answer = read(value, seconds)
        except (ValueError, RecursionError) as problem:
            why = f"the server's answer cannot be read: {self.server.shown(str(problem))}"
            return Failure(None, why, passing=True), None
        tokens = used(value)
        return answer, None if tokens is None else Cost.of(tokens, self.price)

    def _refused(
        self, status: int, headers: Mapping[str, str], content: bytes
    ) -> tuple[Failure, Cost | None]:
        words, code = _complaint(content)
        words = self.server.shown(words)
        why = f"HTTP {status}{': ' + words if words else ''}"
        cost = Cost() if 400 <= status < 500 or status in _UNDONE else None
        if status not in _PASSING or code == "insufficient_quota":
            hopeless = status in (401, 402, 403, 404, 405) or code == "insufficient_quota"
            return Failure(status, why, code, hopeless), cost
        asked = asked_wait(headers)
        if asked is not None and asked > _LONGEST_WAIT:
            longer = f"{why}; the server asks to wait {asked:,.0f} s"
            return Failure(status, longer, code, hopeless=True), cost
        self._held_until = max(self._held_until, time.monotonic() + (asked or 0.0))
        return Failure(status, why, code, passing=True), cost


async def _open(headers: Mapping[str, str], timeout: float) -> aiohttp.ClientSession:
    """A client that unpacks nothing: a few bytes may unpack to more than memory holds."""
    import aiohttp

    own = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return aiohttp.ClientSession(
        headers={**own, **headers},
        timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=30),
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
        auto_decompress=False,
        trust_env=False,
    )


def _end(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, http: aiohttp.ClientSession
) -> None:
    asyncio.run_coroutine_threadsafe(http.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that `Retry-After` (a number or an HTTP date) or `Retry-After-Ms` asks to wait."""
    asked = headers.get("Retry-After", "")
    for number, unit in ((headers.get("Retry-After-Ms", ""), 1000.0), (asked, 1.0)):
        with suppress(ValueError):
            seconds = float(number) / unit
            if 0 <= seconds < float("inf"):
                return seconds
    with suppress(ValueError):
        moment = parsedate_to_datetime(asked)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
    return None


def _backoff(attempt: int, first: float) -> float:
    """Seconds before the attempt after this one (from 1), varied so that clients do not march."""
    longest = min(_LONGEST_BACKOFF, first * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1.0)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def used(value: Mapping[str, Any]) -> Tokens | None:
    """The tokens that a server says it used; None where it does not."""
    match value.get("usage"):
        case {"prompt_tokens": int(prompt), "completion_tokens": int(new)} if min(prompt, new) >= 0:
            return Tokens(prompt, new)
        case {"total_tokens": int(total)} | {"prompt_tokens": int(total)} if total >= 0:
            return Tokens(total)
    return None


def _complaint(content: bytes) -> tuple[str, str]:
    """A server's words about what is wrong, and its code for it, in the shapes servers use."""
    value = _object(content) or {}
    error = value.get("error", value)
    error = error if isinstance(error, dict) else {"message": error}
    words = error.get("message")
    code = next((error[k] for k in ("code", "type") if isinstance(error.get(k), str)), "")
    return (words if isinstance(words, str) else content.decode("utf-8", "replace")), code
