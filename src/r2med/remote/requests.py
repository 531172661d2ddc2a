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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import urljoin, urlsplit

from r2med.errors import need
from r2med.remote.budget import Budget, Cost, Price, Tokens
from r2med.remote.server import Server

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
#: From a request's place, the JSON of its answer and the times it took to a value.
Read = Callable[[int, dict[str, Any], "RequestTimes"], T]

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
#: A server that reports more tokens than this for one request reports nonsense.
_MOST_TOKENS = 10**9
#: Redirects that are followed within the server's own address.
_MOST_REDIRECTS = 3
#: Seconds an idle connection is kept: less than servers do, so that none is closed under a request.
_KEEP_ALIVE = 4.0


@dataclass(frozen=True)
class RequestTimes:
    """How long a request took."""

    seconds: float
    """From sending it to the last byte of its answer."""
    wall_seconds: float
    """Its share of the wall time: while n requests are under way, each has 1/n of the time."""


class _SharedClock:
    """Divides the wall time of a session among the requests that are under way."""

    def __init__(self) -> None:
        self._under_way = 0
        self._shared = 0.0
        self._last = 0.0

    @contextmanager
    def request(self) -> Iterator[Callable[[], RequestTimes]]:
        """Count a request; the yielded function returns its times so far."""
        self._advance()
        self._under_way += 1
        began, began_shared = self._last, self._shared

        def times() -> RequestTimes:
            self._advance()
            return RequestTimes(self._last - began, self._shared - began_shared)

        try:
            yield times
        finally:
            self._advance()
            self._under_way -= 1

    def _advance(self) -> None:
        now = time.monotonic()
        if self._under_way:
            self._shared += (now - self._last) / self._under_way
        self._last = now


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
        self._clock = _SharedClock()
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
        start: Callable[[int], bool] = lambda index: True,
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
                    index = waiting.popleft()
                    if start(index):
                        sending = self._send(path, jobs[index], partial(read, index))
                        future = asyncio.run_coroutine_threadsafe(sending, self._loop)
                        under_way[future] = index
                        future.add_done_callback(arrived.put)
                if not under_way:
                    continue
                future = arrived.get()
                index = under_way.pop(future)
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
                yield index, outcome
        finally:
            for future in under_way:
                future.cancel()
        if problem is not None:
            raise problem

    async def _send(
        self, path: str, job: Job, read: Callable[[dict[str, Any], RequestTimes], T]
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
        self, path: str, data: bytes, read: Callable[[dict[str, Any], RequestTimes], T]
    ) -> tuple[T | Failure, Cost | None]:
        """How one try ended, and what it used; None where nobody knows."""
        with self._clock.request() as times:
            return await self._try(path, data, lambda value: read(value, times()))

    async def _try(
        self, path: str, data: bytes, read: Callable[[dict[str, Any]], T]
    ) -> tuple[T | Failure, Cost | None]:
        import aiohttp

        content, most = bytearray(), self.limits.answer_bytes
        try:
            async with self._post(path, data) as response:
                packed = response.headers.get("Content-Encoding", "identity") != "identity"
                unpack = zlib.decompressobj(wbits=47).decompress if packed else None
                async for chunk in response.content.iter_any():
                    content += unpack(chunk, most + 1) if unpack else chunk
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
            words = self.server.redact(str(problem)) or type(problem).__name__
            why = f"the connection failed: {words}"
            if isinstance(problem, TimeoutError) and not unsent:
                why = f"no answer within {self.limits.timeout:g} s"
            return Failure(None, why, passing=True), Cost() if unsent else None
        if response.status != 200:
            return self._read_refusal(response.status, response.headers, bytes(content))
        value = _object(bytes(content))
        try:
            if value is None:
                raise ValueError("it is not a JSON object")
            answer = read(value)
        except (ValueError, RecursionError) as problem:
            why = f"the server's answer cannot be read: {self.server.redact(str(problem))}"
            return Failure(None, why, passing=True), self._usage_cost(value)
        return answer, self._usage_cost(value)

    def _usage_cost(self, value: Mapping[str, Any] | None) -> Cost | None:
        """What a server says a request cost, also where it failed; None where it does not say."""
        tokens = reported_tokens(value or {})
        return None if tokens is None else Cost.of(tokens, self.price)

    @asynccontextmanager
    async def _post(self, path: str, data: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """The response to a request, after redirects within the server's own address.

        A redirect elsewhere is not followed: it would carry the prompt, and perhaps patients' data,
        to a server that the user did not name.
        """
        url = f"{self.server.url}/{path}"
        for remaining in range(_MOST_REDIRECTS, -1, -1):
            async with self._http.post(
                url, data=data, proxy=self._proxy, allow_redirects=False
            ) as response:
                target = urljoin(url, response.headers.get("Location", ""))
                follows = response.status in (307, 308) and _origin(target) == _origin(url)
                if not (follows and remaining):
                    yield response
                    return
                url = target

    def _read_refusal(
        self, status: int, headers: Mapping[str, str], content: bytes
    ) -> tuple[Failure, Cost | None]:
        if 300 <= status < 400:
            target = self.server.redact(headers.get("Location", "") or "no address")
            why = (
                f"HTTP {status}: the server redirects to {target}, which is not followed, so that "
                "prompts go to no address but the one you gave. If it is right, give it instead"
            )
            return Failure(status, why, hopeless=True), Cost()
        words, code = _complaint(content)
        words = self.server.redact(words)
        why = f"HTTP {status}{': ' + words if words else ''}"
        cost = self._usage_cost(_object(content))
        if cost is None and (400 <= status < 500 or status in _UNDONE):
            cost = Cost()
        if status not in _PASSING or code == "insufficient_quota":
            hopeless = status in (401, 402, 403, 404, 405) or code == "insufficient_quota"
            return Failure(status, why, code, hopeless), cost
        requested_wait = asked_wait(headers)
        if requested_wait is not None and requested_wait > _LONGEST_WAIT:
            longer = f"{why}; the server asks to wait {requested_wait:,.0f} s"
            return Failure(status, longer, code, hopeless=True), cost
        self._held_until = max(self._held_until, time.monotonic() + (requested_wait or 0.0))
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
    requested_wait = headers.get("Retry-After", "")
    for number, unit in ((headers.get("Retry-After-Ms", ""), 1000.0), (requested_wait, 1.0)):
        with suppress(ValueError):
            seconds = float(number) / unit
            if 0 <= seconds < float("inf"):
                return seconds
    with suppress(ValueError):
        moment = parsedate_to_datetime(requested_wait)
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


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Scheme, host and port of an address; None where it has none."""
    try:
        parts = urlsplit(url)
        default_port = {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, parts.port or default_port
    except ValueError:
        return None


def reported_tokens(value: Mapping[str, Any]) -> Tokens | None:
    """The tokens that a server reports; None where it reports none that could be."""
    match value.get("usage"):
        case {"prompt_tokens": prompt, "completion_tokens": new} if _are_counts(prompt, new):
            return Tokens(prompt, new)
        case {"total_tokens": total} | {"prompt_tokens": total} if _are_counts(total):
            return Tokens(total)
    return None


def _are_counts(*values: object) -> bool:
    """Whether all values are whole numbers that a request can have used as tokens."""
    return all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
        for value in values
    )


def _complaint(content: bytes) -> tuple[str, str]:
    """A server's words about what is wrong, and its code for it, in the shapes servers use."""
    value = _object(content) or {}
    error = value.get("error", value)
    error = error if isinstance(error, dict) else {"message": error}
    words = error.get("message")
    code = next((error[k] for k in ("code", "type") if isinstance(error.get(k), str)), "")
    return (words if isinstance(words, str) else content.decode("utf-8", "replace")), code
