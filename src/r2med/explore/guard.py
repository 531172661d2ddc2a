"""The door of the server: what may come in, and what every answer says of itself.

The server holds nobody's secrets, yet any page a browser shows may send requests to loopback. So
the Host header is checked (a stranger's domain that resolves to this machine is refused), a POST
must come from our own pages, and no answer may load or run anything from elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
#: What every answer carries.
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{name} {value}" for name, value in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
_LONGEST_ADDRESS = 8_000
_LARGEST_BODY = 64_000


class Guard:
    """Refuses what no page of ours would send, before anything else sees it."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = LOOPBACK) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        answer = self._app if refusal is None else refusal
        await answer(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if _host_name(host) not in self._hosts:
            return PlainTextResponse(
                f"This server does not answer for the host {host[:100]!r}.\n", 421
            )
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            return PlainTextResponse("The address is too long.\n", 414)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered.\n", 405)
        if scope["method"] == "POST":
            return self._posting(headers, host)
        return None

    def _posting(self, headers: Headers, host: str) -> PlainTextResponse | None:
        origin = headers.get("origin", "")
        if urlsplit(origin).netloc.lower() != host.lower():
            return PlainTextResponse("A form of another site cannot be sent here.\n", 403)
        length = headers.get("content-length", "")
        if not length.isascii() or not length.isdigit():
            return PlainTextResponse("The request does not say how long it is.\n", 411)
        if int(length) > _LARGEST_BODY:
            return PlainTextResponse(f"At most {_LARGEST_BODY:,} bytes are read.\n", 413)
        return None


def _host_name(host: str) -> str | None:
    """The name in a Host header, without its port; None where it is no such header."""
    match = _HOST.fullmatch(host.lower())
    return (match[1] or match[2]) if match else None
