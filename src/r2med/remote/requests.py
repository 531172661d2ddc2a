"""Many requests to one server at once: within limits, retried, handed over as they arrive.

aiohttp rather than the openai SDK: the wire format is the same and small, and the SDK's own work
(5 to 7 ms of CPU per request where this takes about 1) would cap how fast many short answers come.
"""

from __future__ import annotations

import asyncio
import json
import queue
import random
import signal
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from r2med.errors import MissingError
from r2med.remote.budget import Budget, Cost, Limits, Price, Tokens
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
    wait: float | None = None
    """Seconds before it that the server asks for."""

    def advice(self, *, unknown: str) -> str:
        """What to do; `unknown` is said where the server knows no such address or model."""
        if self.status in (401, 403):
            return "the server does not accept the key, or wants one: see docs/llms.md."
        return unknown if self.status == 404 else "run again to ask for the rest."


#: What arrives from the thread that asks: a place and its outcome, a defect, a signal, or None at
#: the end.
_Item = tuple[int, T | Failure] | BaseException | signal.Signals | None


class Session:
    """An open connection to a server; requests run on a thread of its own.

    A thread, so that plain code, notebooks with a running event loop and several callers at once
    can all use it, and connections stay open between calls.
    """

    def __init__(
        self, server: Server, budget: Budget, *, name: str, price: Price | None = None
    ) -> None:
        self.server = server
        self.budget = budget
        self.limits = budget.limits
        self.name = name
        self.price = price
        self._held_until = 0.0
        self._proxy = server.proxy()
        self._slots = asyncio.Semaphore(self.limits.concurrency)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        thread.start()
        opening = asyncio.run_coroutine_threadsafe(_open(server, self.limits), self._loop)
        try:
            self._http = opening.result()
        except BaseException:
            _end(self._loop, thread)
            raise
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
        Ctrl-C is heard between two answers: what arrived is handed over before KeyboardInterrupt is
        raised.
        """
        arrived: queue.SimpleQueue[_Item[T]] = queue.SimpleQueue()
        problem: BaseException | None = None
        with _signals_into(arrived.put):
            untaken = asyncio.Semaphore(self.limits.concurrency)
            driving: list[asyncio.Task[None]] = []

            def begin() -> None:
                work = self._drive(path, jobs, read, start, arrived.put, untaken)
                driving.append(self._loop.create_task(work))
                driving[0].add_done_callback(lambda task: arrived.put(None))

            def cancel() -> None:
                self._loop.call_soon_threadsafe(lambda: driving[0].cancel())

            self._loop.call_soon_threadsafe(begin)
            try:
                while (item := arrived.get()) is not None:
                    if isinstance(item, signal.Signals):
                        cancel()
                    elif isinstance(item, BaseException):
                        problem = problem or item
                    else:
                        yield item
                        self._loop.call_soon_threadsafe(untaken.release)
            finally:
                cancel()
        if problem is not None:
            raise problem

    async def _drive(
        self,
        path: str,
        jobs: Sequence[Job],
        read: Read[T],
        start: Callable[[int], bool],
        hand_over: Callable[[_Item[T]], None],
        untaken: asyncio.Semaphore,
    ) -> None:
        """Start the requests in order."""
        tasks: list[asyncio.Task[None]] = []
        given_up, stopped = 0, False

        async def ask(place: int) -> None:
            nonlocal given_up, stopped
            try:
                outcome = await self._send(path, jobs[place], partial(read, place))
            except Exception as problem:
                stopped = True
                untaken.release()
                hand_over(problem)
                return
            finally:
                self._slots.release()
            if isinstance(outcome, Failure):
                given_up += outcome.status is None or outcome.status in _PASSING
                stopped = stopped or outcome.hopeless or given_up >= _GIVEN_UP
            else:
                given_up = 0
            hand_over((place, outcome))

        try:
            for place in range(len(jobs)):
                await untaken.acquire()
                await self._slots.acquire()
                if not stopped and start(place):
                    tasks.append(asyncio.create_task(ask(place)))
                else:
                    self._slots.release()
                    untaken.release()
            await asyncio.gather(*tasks)
        except Exception as problem:
            hand_over(problem)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(
        self, path: str, job: Job, read: Callable[[dict[str, Any], float], T]
    ) -> T | Failure:
        """Try until there is an answer, each try within the budget."""
        data = json.dumps(job.body, ensure_ascii=False).encode("utf-8", "replace")
        most = Cost.of(job.most, self.price)
        claim, attempt = object(), 0
        while True:
            attempt += 1
            while (pause := self._held_until - time.monotonic()) > 0:
                await asyncio.sleep(pause)
            while (room := self.budget.claim(claim, most)) is not True:
                if room is False:
                    raise self.budget.reached(self.name, most)
                await asyncio.wrap_future(room)
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
            backoff = _backoff(attempt, self.limits.backoff)
            await asyncio.sleep(backoff if outcome.wait is None else outcome.wait)

    async def _attempt(
        self, path: str, data: bytes, read: Callable[[dict[str, Any], float], T]
    ) -> tuple[T | Failure, Cost | None]:
        """How one try ended, and what it used; None where nobody knows."""
        import aiohttp

        began = time.monotonic()
        unsent = (aiohttp.ClientConnectorError, getattr(aiohttp, "ConnectionTimeoutError", ()))
        try:
            url = f"{self.server.url}/{path}"
            async with self._http.post(url, data=data, proxy=self._proxy) as response:
                content = await self._content(response)
        except (aiohttp.ClientError, TimeoutError, zlib.error) as problem:
            words = self.server.shown(str(problem)) or type(problem).__name__
            why = f"the connection failed: {words}"
            if isinstance(problem, TimeoutError) and not isinstance(problem, unsent):
                why = f"no answer within {self.limits.timeout:g} s"
            cost = Cost() if isinstance(problem, unsent) else None
            return Failure(None, why, passing=True), cost
        if content is None:
            why = (
                f"the answer is larger than {self.limits.answer_bytes:,} bytes, which is the most "
                "that is read (R2MED_LLM_ANSWER_BYTES)"
            )
            return Failure(response.status, why), None
        if response.status != 200:
            return self._refused(response.status, response.headers, content)
        seconds = time.monotonic() - began
        value = _object(content)
        try:
            if value is None:
                raise ValueError("it is not a JSON object")
            answer = read(value, seconds)
        except (ValueError, RecursionError) as problem:
            why = f"the server's answer cannot be read: {self.server.shown(str(problem))}"
            return Failure(None, why, passing=True), None
        tokens = _used(value)
        return answer, None if tokens is None else Cost.of(tokens, self.price)

    async def _content(self, response: aiohttp.ClientResponse) -> bytes | None:
        """The answer's bytes, unpacked where a server packs unasked; None where it is too large."""
        packed = response.headers.get("Content-Encoding", "identity").lower() != "identity"
        unpack = zlib.decompressobj(wbits=47) if packed else None
        most = self.limits.answer_bytes
        content = bytearray()
        async for piece in response.content.iter_any():
            content += unpack.decompress(piece, most + 1) if unpack else piece
            if len(content) > most:
                return None
        return bytes(content)

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
        return Failure(status, why, code, passing=True, wait=asked), cost


async def _open(server: Server, limits: Limits) -> aiohttp.ClientSession:
    try:
        import aiohttp
    except ImportError:
        raise MissingError(
            "Talking to a server needs aiohttp, which is not installed: pip install 'r2med[llm]'."
        ) from None
    return aiohttp.ClientSession(
        headers={
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",
            **server.headers(),
        },
        timeout=aiohttp.ClientTimeout(total=limits.timeout, sock_connect=30),
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE),
        auto_decompress=False,
        trust_env=False,
    )


def _end(
    loop: asyncio.AbstractEventLoop,
    thread: threading.Thread,
    http: aiohttp.ClientSession | None = None,
) -> None:
    if http is not None:
        asyncio.run_coroutine_threadsafe(http.close(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that `Retry-After` (a number or an HTTP date) or `Retry-After-Ms` asks to wait."""
    for name, unit in (("Retry-After-Ms", 1000.0), ("Retry-After", 1.0)):
        with suppress(ValueError):
            seconds = float(headers.get(name, "")) / unit
            if 0 <= seconds < float("inf"):
                return seconds
    try:
        moment = parsedate_to_datetime(headers.get("Retry-After", ""))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


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


def _used(value: Mapping[str, Any]) -> Tokens | None:
    """The tokens that a server says it used; None where it does not."""
    match value.get("usage"):
        case {"prompt_tokens": int(prompt), "completion_tokens": int(new)} if min(prompt, new) >= 0:
            return Tokens(prompt, new)
        case {"total_tokens": int(total)} if total >= 0:
            return Tokens(total)
    return None


def _complaint(content: bytes) -> tuple[str, str]:
    """A server's words about what is wrong, and its code for it, in the shapes servers use."""
    value = _object(content)
    error = None if value is None else value.get("error", value)
    if not isinstance(error, dict):
        return (error if isinstance(error, str) else content.decode("utf-8", "replace")), ""
    words = error.get("message") or error.get("detail") or ""
    code = next((error[k] for k in ("code", "type") if isinstance(error.get(k), str)), "")
    return (words if isinstance(words, str) else content.decode("utf-8", "replace")), code


@contextmanager
def _signals_into(put: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Hand signals over instead of interrupting whatever runs; a second one interrupts at once.

    Only signals that have a handler in Python, and only on the main thread: elsewhere none arrive.
    The handler of a signal that came is called when the block has ended.
    """
    heard: list[int] = []
    here = threading.current_thread() is threading.main_thread()
    handlers = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM) if here}
    before: dict[int, Any] = {which: each for which, each in handlers.items() if callable(each)}

    def handle(number: int, frame: object) -> None:
        restore()
        heard.append(number)
        put(signal.Signals(number))

    def restore() -> None:
        for which, handler in before.items():
            signal.signal(which, handler)

    try:
        for which in before:
            signal.signal(which, handle)
        yield
    finally:
        restore()
    for number in heard:
        before[number](number, None)
