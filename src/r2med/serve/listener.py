"""The HTTP server: its socket, limits on connections, and one line per failure.

uvicorn never closes a connection that sends no request, and at the limit of open files its log
grows without end. So connections have a limit and a time in which a request must arrive; at the
limit the longest idle connection makes room for a new one.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import socket
import threading
import webbrowser
from contextlib import suppress
from typing import Any

from starlette.applications import Starlette
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from r2med.errors import UsageError

#: The usual port of the explorer and the review page.
PORT = 8642
#: Open connections, and seconds in which one must send a whole request.
MOST_CONNECTIONS = 200
REQUEST_SECONDS = 20.0
#: Connections that wait at the socket. The event loop accepts as many at once before it checks
#: their number, so a larger value could exhaust the open files.
_BACKLOG = 100
#: Seconds in which the same error of the event loop is logged once.
_REPEAT_SECONDS = 30.0
#: Numbers of malloc.h: the most heaps, and the size from which a block gets separate pages.
_M_ARENA_MAX, _M_MMAP_THRESHOLD = -8, -3
_log = logging.getLogger("r2med.serve")


class _Connection(H11Protocol):  # type: ignore[misc]
    """A connection that is closed if no request arrives in time, or if others need its place."""

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Close the longest idle connection if there are too many, then accept this one."""
        self._waiting_since = self.loop.time()
        if len(self.connections) >= MOST_CONNECTIONS:
            idle = [connection for connection in self.connections if _is_idle(connection)]
            if idle:
                oldest = min(idle, key=lambda connection: connection._waiting_since)
                self.connections.discard(oldest)
                oldest.transport.abort()
            else:
                transport.abort()
        super().connection_made(transport)
        self._check_later()

    def on_response_complete(self) -> None:
        """Start the time limit for the next request."""
        self._waiting_since = self.loop.time()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the time limit."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _check_later(self) -> None:
        self._timer = self.loop.call_later(REQUEST_SECONDS / 4, self._check)

    def _check(self) -> None:
        waited = self.loop.time() - self._waiting_since
        if _is_idle(self) and waited > REQUEST_SECONDS:
            self.transport.abort()
        elif not self.transport.is_closing():
            self._check_later()


def _is_idle(connection: Any) -> bool:
    """Whether no request of a connection is being answered."""
    return connection.cycle is None or connection.cycle.response_complete


def open_listener(host: str, port: int | None, *, usual: int = PORT) -> socket.socket:
    """Open a listening socket; without a port, at `usual` or, if that is taken, at any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    problem = ""
    for candidate in (usual, 0) if port is None else (port,):
        try:
            return socket.create_server((host, candidate), family=family, backlog=_BACKLOG)
        except OSError as error:
            problem = error.strerror or str(error)
    raise UsageError(f"--host {host} --port {port}: {problem}. Choose another with --port.")


def run_server(app: Starlette, listener: socket.socket, *, browse: str | None = None) -> None:
    """Answer requests until interrupted, first those that already wait at the socket.

    `browse` is a page to open in the user's browser.
    """
    limit_heaps()
    if browse:
        threading.Thread(target=webbrowser.open, args=(browse,), daemon=True).start()
    config = Config(
        app,
        http=_Connection,
        ws="none",
        log_level="critical",
        access_log=False,
        lifespan="on",
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=5,
    )
    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()


def report_in_one_line(loop: asyncio.AbstractEventLoop) -> None:
    """Log errors of the event loop, such as too many open files, without a traceback.

    The event loop of Python 3.11 reports an error for each connection that it cannot accept, so an
    equal line is not logged again within `_REPEAT_SECONDS`.
    """
    logged_at: dict[str, float] = {}

    def report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        reason = f": {type(error).__name__}: {error}" if error else ""
        line = " ".join(f"{context.get('message', '')}{reason}".split())[:500]
        now = loop.time()
        for earlier, logged in list(logged_at.items()):
            if now - logged > _REPEAT_SECONDS:
                del logged_at[earlier]
        if line not in logged_at:
            logged_at[line] = now
            _log.error("%s", line)

    loop.set_exception_handler(report)


def limit_heaps() -> None:
    """Let glibc return the memory of large values at once instead of keeping it per thread."""
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(_M_ARENA_MAX, 1)
        libc.mallopt(_M_MMAP_THRESHOLD, 1 << 17)
