"""The door of the server: which requests and parameters may come in, what every answer says.

The server holds nobody's secrets, yet any page a browser shows may send requests to loopback. So
the Host header is checked (a stranger's domain that resolves to this machine is refused), a POST
must come from our own pages, and no answer may load or run anything from elsewhere. A wrong or
oversized parameter is one clean refusal.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import FormData, Headers, MutableHeaders, QueryParams
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from r2med.errors import UsageError, nearest
from r2med.explore.render import POLICY
from r2med.measure.metrics import parse_metric

LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: What every answer carries.
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
#: Characters of a parameter; queries that are typed in may be longer.
_LONGEST_VALUE = 500
#: Control characters but the ends of lines and tabs.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
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
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "").lower()
        name = _HOST.fullmatch(host)
        if name is None or (name[1] or name[2]) not in self._hosts:
            said = f"This server does not answer for the host {headers.get('host', '')[:100]!r}.\n"
            return PlainTextResponse(said, 421)
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            return PlainTextResponse("The address is too long.\n", 414)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered.\n", 405)
        if method == "POST":
            if urlsplit(headers.get("origin", "")).netloc.lower() != host:
                return PlainTextResponse("A form of another site cannot be sent here.\n", 403)
            length = headers.get("content-length", "")
            if not length.isascii() or not length.isdigit():
                return PlainTextResponse("The request does not say how long it is.\n", 411)
            if int(length) > _LARGEST_BODY:
                return PlainTextResponse(f"At most {_LARGEST_BODY:,} bytes are read.\n", 413)
        return None


class Parameters:
    """The parameters of a request; each is read at most once and by its own rule."""

    def __init__(self, values: QueryParams | FormData) -> None:
        self._values = values

    def text(self, name: str, *, longest: int = _LONGEST_VALUE) -> str | None:
        """A text without control characters; None where it is absent or empty."""
        values = self.texts(name, longest=longest)
        if len(values) > 1:
            raise UsageError(f"{name} is given {len(values)} times, expected once.")
        return values[0] if values else None

    def texts(self, name: str, *, longest: int = _LONGEST_VALUE) -> tuple[str, ...]:
        """All values of a parameter that may be repeated, each once."""
        values = [value for value in self._values.getlist(name) if value]
        for value in values:
            if not isinstance(value, str):
                raise UsageError(f"{name} is a file, expected a text.")
            if len(value) > longest:
                raise UsageError(f"{name} has {len(value):,} characters, at most {longest:,} fit.")
            if _CONTROL.search(value):
                raise UsageError(f"{name} holds a control character.")
        return tuple(dict.fromkeys(str(value) for value in values))

    def word(self, name: str, allowed: Collection[str]) -> str | None:
        """One of the allowed words."""
        value = self.text(name)
        if value is not None and value not in allowed:
            raise UsageError(f"{name} {value[:60]!r} is not known. {nearest(value, allowed)}")
        return value

    def metric(self) -> str:
        """The metric shown."""
        return str(parse_metric(self.text("metric", longest=40) or "ndcg@10"))
