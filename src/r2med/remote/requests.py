"""Parallel requests to one server, within limits and with retries; answers come as they arrive.

This uses aiohttp instead of the openai SDK: the format is the same and small, and the SDK takes 5
to 7 ms of CPU time per request instead of about 1, which would slow down many short requests.
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
from r2med.remote.budget import Budget, Price, RequestCost, Tokens
from r2med.remote.server import Server

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
#: Converts an answer: from the index of the request, the JSON and the times to a value.
ReadAnswer = Callable[[int, dict[str, Any], "RequestTimes"], T]

#: Statuses after which a request is tried again.
_RETRIED_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 522, 524, 529})
#: Statuses of 5xx that mean the server did no work, so that the request costs nothing.
_FREE_STATUSES = frozenset({503, 529})
#: The longest wait in seconds that a server may ask for; a longer one is a failure.
_LONGEST_WAIT = 600.0
_LONGEST_BACKOFF = 60.0
#: Failed requests in a row, without an answer between them, after which no more are sent.
_MOST_FAILURES_IN_A_ROW = 3
#: Seconds between two checks of the budget while requests are in progress.
_BUDGET_INTERVAL = 0.01
#: More tokens than this for one request are an error of the server's count.
_MOST_TOKENS = 10**9
#: Redirects that are followed within the server's address.
_MOST_REDIRECTS = 3
#: Seconds to keep an idle connection: fewer than servers do, so that no request meets a closed one.
_KEEP_ALIVE = 4.0


@dataclass(frozen=True)
class RequestTimes:
    """How long a request took."""

    seconds: float
    """Seconds from sending the request to the last byte of the answer."""
    wall_seconds: float
    """Share of the session's wall time: while n requests run, each counts 1/n of the time."""


class _SharedClock:
    """Divides the wall time of a session among the requests that are in progress."""

    def __init__(self) -> None:
        self._requests = 0
        self._shared_seconds = 0.0
        self._now = 0.0

    @contextmanager
    def request(self) -> Iterator[Callable[[], RequestTimes]]:
        """Count a request as in progress; the yielded function returns its times so far."""
        self._advance()
        self._requests += 1
        start, shared_start = self._now, self._shared_seconds

        def measure() -> RequestTimes:
            self._advance()
            return RequestTimes(self._now - start, self._shared_seconds - shared_start)

        try:
            yield measure
        finally:
            self._advance()
            self._requests -= 1

    def _advance(self) -> None:
        now = time.monotonic()
        if self._requests:
            self._shared_seconds += (now - self._now) / self._requests
        self._now = now


class ApiRequest(NamedTuple):
    """The JSON body of a request, and the most tokens it may use; 0 means no limit is set."""

    body: Mapping[str, object]
    most_tokens: Tokens = Tokens()


@dataclass(frozen=True)
class RequestFailure:
    """A request without an answer: the server refused it, or every attempt failed."""

    status: int | None
    """The HTTP status; None if no complete response arrived."""
    why: str
    code: str = ""
    """The server's error code, such as `context_length_exceeded`."""
    affects_all: bool = False
    """Whether every other request would fail too, as with a wrong key or an unknown model."""
    can_retry: bool = False
    """Whether another attempt may succeed."""

    def advice(self, *, unknown: str) -> str:
        """Return advice for the user.

        `unknown` is the advice if the server does not know the address or model.
        """
        if self.status in (401, 403):
            return "the server needs a key or does not accept this one: see docs/llms.md."
        return unknown if self.status == 404 else "run again to send the missing requests."


class Session:
    """An open connection to a server; requests run in an event loop on a separate thread.

    The thread allows use from ordinary code, from notebooks with a running event loop and from
    several callers at once, and connections stay open between calls.
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
        self._paused_until = 0.0
        self._clock = _SharedClock()
        self._proxy = server.proxy()
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        opening = _open(server.headers(), self.limits.timeout)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        self._http = asyncio.run_coroutine_threadsafe(opening, self._loop).result()
        self.close = weakref.finalize(self, _close, self._loop, thread, self._http)
        """Closes the connections and ends the thread; called when the session is deleted too."""

    def send_all(
        self,
        path: str,
        requests: Sequence[ApiRequest],
        read: ReadAnswer[T],
        *,
        start: Callable[[int], bool] = lambda index: True,
    ) -> Iterator[tuple[int, T | RequestFailure]]:
        """Send requests in parallel; yield the index and the answer of each as it arrives.

        At most `concurrency` answers are in progress or wait for the caller, so that a killed
        process loses no more than these. If the budget is used up or a request fails in a way that
        affects all, no new ones are sent, but those in progress are finished first, because they
        may already be paid for.

        Args:
            path: The endpoint, relative to the server's address.
            requests: The bodies to send, all to the same endpoint.
            read: Converts the JSON of an answer, on the session's thread and before another request
                is sent. Its ValueError explains why the JSON is invalid; the request is then
                tried again.
            start: Called just before a request is sent; the request is skipped if it returns False.

        Raises:
            LimitError: A limit is reached.
        """
        most = [RequestCost.of(request.most_tokens, self.price) for request in requests]
        self.budget.check_largest(most, self.name)
        arrived: queue.SimpleQueue[Future[T | RequestFailure]] = queue.SimpleQueue()
        in_progress: dict[Future[T | RequestFailure], int] = {}
        waiting = deque(range(len(requests)))
        problem: Exception | None = None
        failures_in_a_row = 0
        try:
            while waiting or in_progress:
                while waiting and len(in_progress) < self.limits.concurrency:
                    index = waiting.popleft()
                    if start(index):
                        sending = self._send(path, requests[index], partial(read, index))
                        future = asyncio.run_coroutine_threadsafe(sending, self._loop)
                        in_progress[future] = index
                        future.add_done_callback(arrived.put)
                if not in_progress:
                    continue
                future = arrived.get()
                index = in_progress.pop(future)
                try:
                    outcome = future.result()
                except Exception as error:
                    problem = problem or error
                    waiting.clear()
                    continue
                if not isinstance(outcome, RequestFailure):
                    failures_in_a_row = 0
                else:
                    if outcome.can_retry:
                        failures_in_a_row += 1
                    if outcome.affects_all or failures_in_a_row >= _MOST_FAILURES_IN_A_ROW:
                        waiting.clear()
                yield index, outcome
        finally:
            for future in in_progress:
                future.cancel()
        if problem is not None:
            raise problem

    async def _send(
        self, path: str, request: ApiRequest, read: Callable[[dict[str, Any], RequestTimes], T]
    ) -> T | RequestFailure:
        """Try a request, within the budget, until it is answered or `attempts` are used up."""
        data = json.dumps(request.body, ensure_ascii=False).encode("utf-8", "replace")
        most = RequestCost.of(request.most_tokens, self.price)
        claim_id, attempt = object(), 0
        while True:
            attempt += 1
            async with self._slots:  # shared by all callers of this session
                while (pause := self._paused_until - time.monotonic()) > 0:
                    await asyncio.sleep(pause)
                while not self.budget.claim(claim_id, most, self.name):
                    await asyncio.sleep(_BUDGET_INTERVAL)
                cost = None
                try:
                    outcome, cost = await self._attempt(path, data, read)
                finally:
                    self.budget.settle(claim_id, cost)
            if not isinstance(outcome, RequestFailure) or not outcome.can_retry:
                return outcome
            if attempt >= self.limits.attempts:
                tries = f" (tried {attempt} times)" if attempt > 1 else ""
                return replace(outcome, why=outcome.why + tries)
            await asyncio.sleep(_backoff(attempt, self.limits.backoff))

    async def _attempt(
        self, path: str, data: bytes, read: Callable[[dict[str, Any], RequestTimes], T]
    ) -> tuple[T | RequestFailure, RequestCost | None]:
        """Return the outcome of one attempt, and its cost; the cost is None if not known."""
        with self._clock.request() as measure:
            return await self._exchange(path, data, lambda value: read(value, measure()))

    async def _exchange(
        self, path: str, data: bytes, read: Callable[[dict[str, Any]], T]
    ) -> tuple[T | RequestFailure, RequestCost | None]:
        import aiohttp

        content, most = bytearray(), self.limits.answer_bytes
        try:
            async with self._post(path, data) as response:
                is_compressed = response.headers.get("Content-Encoding", "identity") != "identity"
                unpack = zlib.decompressobj(wbits=47).decompress if is_compressed else None
                async for chunk in response.content.iter_any():
                    content += unpack(chunk, most + 1) if unpack else chunk
                    if len(content) > most:
                        why = (
                            f"the answer is larger than the limit of {most:,} bytes "
                            "(R2MED_LLM_ANSWER_BYTES)"
                        )
                        return RequestFailure(response.status, why), None
        except (aiohttp.ClientError, TimeoutError, zlib.error) as problem:
            is_unsent = isinstance(
                problem, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            message = self.server.redact(str(problem)) or type(problem).__name__
            why = f"the connection failed: {message}"
            if isinstance(problem, TimeoutError) and not is_unsent:
                why = f"no answer within {self.limits.timeout:g} s"
            cost = RequestCost() if is_unsent else None
            return RequestFailure(None, why, can_retry=True), cost
        if response.status != 200:
            return self._read_refusal(response.status, response.headers, bytes(content))
        value = _parse_object(bytes(content))
        try:
            if value is None:
                raise ValueError("it is not a JSON object")
            answer = read(value)
        except (ValueError, RecursionError) as problem:
            why = f"the server's answer cannot be read: {self.server.redact(str(problem))}"
            return RequestFailure(None, why, can_retry=True), self._read_cost(value)
        return answer, self._read_cost(value)

    def _read_cost(self, value: Mapping[str, Any] | None) -> RequestCost | None:
        """Return the cost that a server reports, also for a failure; None if it reports none."""
        tokens = read_token_usage(value or {})
        return None if tokens is None else RequestCost.of(tokens, self.price)

    @asynccontextmanager
    async def _post(self, path: str, data: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the response to a request; redirects within the server's address are followed.

        A redirect to another address is not followed, because it would send the prompt, which may
        contain patient data, to a server that the user did not choose.
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
    ) -> tuple[RequestFailure, RequestCost | None]:
        if 300 <= status < 400:
            target = self.server.redact(headers.get("Location", "") or "no address")
            why = (
                f"HTTP {status}: the server redirects to {target}. This is not followed, so that "
                "prompts are sent only to the address you gave. If it is right, give it instead"
            )
            return RequestFailure(status, why, affects_all=True), RequestCost()
        message, code = _read_error(content)
        message = self.server.redact(message)
        why = f"HTTP {status}{': ' + message if message else ''}"
        cost = self._read_cost(_parse_object(content))
        if cost is None and (400 <= status < 500 or status in _FREE_STATUSES):
            cost = RequestCost()
        if status not in _RETRIED_STATUSES or code == "insufficient_quota":
            affects_all = status in (401, 402, 403, 404, 405) or code == "insufficient_quota"
            return RequestFailure(status, why, code, affects_all), cost
        requested_wait = parse_retry_after(headers)
        if requested_wait is not None and requested_wait > _LONGEST_WAIT:
            why = f"{why}; the server asks to wait {requested_wait:,.0f} s"
            return RequestFailure(status, why, code, affects_all=True), cost
        self._paused_until = max(self._paused_until, time.monotonic() + (requested_wait or 0.0))
        return RequestFailure(status, why, code, can_retry=True), cost


async def _open(headers: Mapping[str, str], timeout: float) -> aiohttp.ClientSession:
    """Return an HTTP client that leaves answers compressed; unpacking could exhaust the memory."""
    import aiohttp

    default_headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    return aiohttp.ClientSession(
        headers={**default_headers, **headers},
        timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=30),
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
        auto_decompress=False,
        trust_env=False,
    )


def _close(
    loop: asyncio.AbstractEventLoop, thread: threading.Thread, http: aiohttp.ClientSession
) -> None:
    asyncio.run_coroutine_threadsafe(http.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def parse_retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait; None if it does not.

    `Retry-After-Ms` is in milliseconds, `Retry-After` in seconds or an HTTP date.
    """
    retry_after = headers.get("Retry-After", "")
    for number, per_second in ((headers.get("Retry-After-Ms", ""), 1000.0), (retry_after, 1.0)):
        with suppress(ValueError):
            seconds = float(number) / per_second
            if 0 <= seconds < float("inf"):
                return seconds
    with suppress(ValueError):
        date = parsedate_to_datetime(retry_after)
        if not date.tzinfo:
            date = date.replace(tzinfo=UTC)
        return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())
    return None


def _backoff(attempt: int, first: float) -> float:
    """Return the seconds to wait after failed attempt number `attempt`, counted from 1.

    The time varies randomly, so that clients do not all retry at once.
    """
    longest = min(_LONGEST_BACKOFF, first * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1.0)


def _parse_object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _origin(url: str) -> tuple[str, str | None, int | None] | None:
    """Return scheme, host and port of an address; None if it is not valid."""
    try:
        parts = urlsplit(url)
        default_port = {"http": 80, "https": 443}.get(parts.scheme)
        return parts.scheme, parts.hostname, parts.port or default_port
    except ValueError:
        return None


def read_token_usage(value: Mapping[str, Any]) -> Tokens | None:
    """Return the tokens that a server reports; None if it reports none or impossible numbers."""
    match value.get("usage"):
        case {"prompt_tokens": prompt, "completion_tokens": completion} if _are_counts(
            prompt, completion
        ):
            return Tokens(prompt, completion)
        case {"total_tokens": total} | {"prompt_tokens": total} if _are_counts(total):
            return Tokens(total)
    return None


def _are_counts(*values: object) -> bool:
    """Whether all values are plausible numbers of tokens."""
    return all(
        isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS
        for value in values
    )


def _read_error(content: bytes) -> tuple[str, str]:
    """Return the message and the code of an error response, in the formats that servers use."""
    value = _parse_object(content) or {}
    error = value.get("error", value)
    if not isinstance(error, dict):
        error = {"message": error}
    message = error.get("message")
    if not isinstance(message, str):
        message = content.decode("utf-8", "replace")
    codes = (error.get(name) for name in ("code", "type"))
    return message, next((code for code in codes if isinstance(code, str)), "")
