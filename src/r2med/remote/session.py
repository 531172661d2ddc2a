"""Many requests to one server at once: paced, retried, and handed over the moment they arrive.

aiohttp rather than the openai SDK: the wire format is the same and small, and the SDK's own work
(5 to 7 ms of CPU a request where this takes about 1) would cap how fast many short answers come.
"""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from r2med.errors import MissingError
from r2med.remote.limits import Limits
from r2med.remote.pace import Pace
from r2med.remote.retrying import CONGESTED, LONGEST_WAIT, PASSING, asked_wait, backoff
from r2med.remote.server import Server

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")
Body = Mapping[str, object]
#: Whether a request's JSON answer is what was asked for: None, or what is wrong with it.
Check = Callable[[int, dict[str, Any]], str | None]

#: Requests given up in a row, with no answer between them, before the server counts as gone.
_GIVEN_UP = 3


@dataclass(frozen=True)
class Reply:
    """A server's answer to one request."""

    place: int
    value: dict[str, Any]
    seconds: float
    attempts: int


@dataclass(frozen=True)
class Failure:
    """A request without an answer: the server refused it, or it failed once too often."""

    place: int
    status: int | None
    """None where no whole answer came at all."""
    why: str
    code: str = ""
    """The server's own word for it, such as `context_length_exceeded`."""
    hopeless: bool = False
    """Whether every other request would meet the same: a wrong key, an unknown model."""

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

    def __init__(self, server: Server, limits: Limits) -> None:
        self.server = server
        self.limits = limits
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._http: aiohttp.ClientSession | None = None
        try:
            self.pace: Pace = self._wait_for(self._open())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connections and the thread."""
        if self._loop.is_closed():
            return
        self._wait_for(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def each(
        self,
        path: str,
        bodies: Sequence[Body],
        *,
        check: Check,
        admit: Callable[[int], bool] = lambda place: True,
    ) -> Iterator[Reply | Failure]:
        """Every answer as it arrives, in whatever order; ends early when `admit` says no.

        What is under way when a request proves hopeless is still waited for, because it may
        already be paid for.
        """
        arrived: queue.SimpleQueue[Reply | Failure | BaseException | None] = queue.SimpleQueue()
        work = self._drive(path, bodies, check, admit, arrived.put)
        driving = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            while (item := arrived.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            driving.cancel()

    async def _drive(
        self,
        path: str,
        bodies: Sequence[Body],
        check: Check,
        admit: Callable[[int], bool],
        hand_over: Callable[[Reply | Failure | BaseException | None], None],
    ) -> None:
        tasks: set[asyncio.Task[None]] = set()
        given_up = 0
        stopped = False

        async def answer(place: int, body: Body) -> None:
            nonlocal given_up, stopped
            try:
                outcome = await self._send(path, place, body, check)
            finally:
                await self.pace.leave()
            if isinstance(outcome, Reply):
                given_up = 0
            elif outcome.status is None or outcome.status in PASSING:
                given_up += 1
            stopped |= given_up >= _GIVEN_UP or (isinstance(outcome, Failure) and outcome.hopeless)
            hand_over(outcome)

        try:
            for place, body in enumerate(bodies):
                await self.pace.enter()
                if stopped or not admit(place):
                    await self.pace.leave()
                    break
                task = asyncio.create_task(answer(place, body))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
            await asyncio.gather(*tasks)
            hand_over(None)
        except BaseException as problem:
            for task in tasks:
                task.cancel()
            hand_over(problem)
            raise

    async def _send(self, path: str, place: int, body: Body, check: Check) -> Reply | Failure:
        data = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        attempt = 0
        while True:
            attempt += 1
            outcome, wait = await self._attempt(path, place, data, check, attempt)
            if isinstance(outcome, Reply) or wait is None:
                return outcome
            if attempt >= self.limits.attempts:
                return _after(outcome, attempt)
            await asyncio.sleep(wait)

    async def _attempt(
        self, path: str, place: int, data: bytes, check: Check, attempt: int
    ) -> tuple[Reply | Failure, float | None]:
        """One try: its outcome, and how long to wait before the next, None where none helps."""
        import aiohttp

        started = time.monotonic()
        pause = backoff(attempt, self.limits.backoff)
        try:
            http = cast("aiohttp.ClientSession", self._http)
            async with http.post(f"{self.server.url}/{path}", data=data) as response:
                content = await response.read()
        except TimeoutError:
            self.pace.congested(started)
            return Failure(place, None, f"no answer within {self.limits.timeout:g} s"), pause
        except aiohttp.ClientError as problem:
            return Failure(place, None, self._told(problem)), pause
        seconds = time.monotonic() - started
        if response.status != 200:
            return self._refused(place, response.status, response.headers, content, started, pause)
        value = _object(content)
        wrong = "it is not JSON" if value is None else check(place, value)
        if value is None or wrong:
            return Failure(place, None, f"the server's answer cannot be read: {wrong}"), pause
        self.pace.succeeded(seconds)
        return Reply(place, value, seconds, attempt), None

    def _refused(
        self,
        place: int,
        status: int,
        headers: Mapping[str, str],
        content: bytes,
        started: float,
        pause: float,
    ) -> tuple[Failure, float | None]:
        why, code = _complaint(content)
        why = f"HTTP {status}{': ' + self.server.redacted(why) if why else ''}"
        if status in CONGESTED:
            self.pace.congested(started)
        if status not in PASSING or code == "insufficient_quota":
            hopeless = status in (401, 402, 403, 404, 405) or code == "insufficient_quota"
            return Failure(place, status, why, code, hopeless), None
        asked = asked_wait(headers)
        if asked is not None and asked > LONGEST_WAIT:
            longer = f"{why}; the server asks to wait {asked:,.0f} s"
            return Failure(place, status, longer, code, hopeless=True), None
        if asked is not None:
            self.pace.hold(asked)
        return Failure(place, status, why, code), max(asked or 0.0, pause if asked is None else 0.0)

    def _told(self, problem: Exception) -> str:
        words = self.server.redacted(str(problem)) or type(problem).__name__
        return f"the connection failed: {words}"

    async def _open(self) -> Pace:
        try:
            import aiohttp
        except ImportError:
            raise MissingError(
                "Talking to a server needs aiohttp, which is not installed: "
                "pip install 'r2med[llm]'."
            ) from None
        self._http = aiohttp.ClientSession(
            headers={"Content-Type": "application/json", **self.server.headers()},
            timeout=aiohttp.ClientTimeout(total=self.limits.timeout, sock_connect=30),
            connector=aiohttp.TCPConnector(limit=0),
            trust_env=True,
        )
        return Pace(self.limits.concurrency)

    async def _close(self) -> None:
        if self._http is not None:
            await self._http.close()

    def _wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result()


def _after(failure: Failure, attempts: int) -> Failure:
    why = f"{failure.why} (tried {attempts} times)" if attempts > 1 else failure.why
    return Failure(failure.place, failure.status, why, failure.code, failure.hopeless)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _complaint(content: bytes) -> tuple[str, str]:
    """A server's words about what is wrong, and its code for it, in the shapes servers use."""
    value = _object(content)
    if value is None:
        return " ".join(content[:200].decode("utf-8", "replace").split()), ""
    error = value.get("error", value)
    if not isinstance(error, dict):
        return str(error)[:500], ""
    said = error.get("message") or error.get("detail") or ""
    code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    return str(said)[:500], str(code or "")
