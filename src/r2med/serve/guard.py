"""Access rules of our servers: which requests are accepted, and the headers of every answer.

Any page in the user's browser may send requests to loopback. So the Host header must be a name
that this server answers for (which stops DNS rebinding), a POST of a browser must come from our
pages, other sites may link to pages but not embed them, and no answer may load or run anything from
elsewhere.
Outside loopback each request needs a secret token: in the address, or in the cookie that the server
sets when it receives a token in an address.
"""

from __future__ import annotations

import hmac
import logging
import re
import traceback
from collections.abc import Collection
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from r2med.report.console import visible
from r2med.serve.headers import HEADERS

LOOPBACK = ("localhost", "127.0.0.1", "::1")
COOKIE = "r2med-token"
_log = logging.getLogger("r2med.serve")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{1,5})?")
_LONGEST_ADDRESS = 8_000
LARGEST_BODY = 64_000


@dataclass(frozen=True)
class Access:
    """Who may reach the server, and at which address."""

    hosts: Collection[str] = LOOPBACK
    """Host names that the server answers for, in lower case."""
    any_address: bool = False
    """Whether the server also answers for any IP address, as it must if it is bound to all
    addresses."""
    root_path: str = ""
    """The path below which a proxy shows the server, such as /r2med."""
    trusted_proxies: Collection[str] = field(default=LOOPBACK)
    """Addresses whose X-Forwarded-Proto header is believed."""
    token: str | None = None
    """The secret that every request must contain; None if no secret is needed."""
    needs_origin: bool = True
    """Whether a POST must name its origin, as browsers do; programs such as agents name none."""
    host_hint: str = ""
    """How to allow another host; part of the message that refuses a request."""

    def allows_host(self, name: str) -> bool:
        """Whether the server answers for a host name or address, given without its port."""
        return name in self.hosts or (self.any_address and _is_address(name))


class Guard:
    """Middleware that refuses requests of other sites and hosts, and reports errors in one line."""

    def __init__(self, app: ASGIApp, access: Access | None = None) -> None:
        self._app = app
        self._access = access or Access()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        scope = self._without_root_path(scope)
        answer = self._refusal(scope) or self._ask_for_token(scope) or self._app
        try:
            await answer(scope, receive, send_with_headers)
        except ClientDisconnect:  # the client closed the connection; not an error of the server
            return
        except Exception as error:
            _log.error("%s", failure_line(scope, error))
            if not started:
                text = "The program failed on this page; the terminal it was started in says why.\n"
                await PlainTextResponse(text, 500)(scope, receive, send_with_headers)

    def _without_root_path(self, scope: Scope) -> Scope:
        """Return the scope without the root path, which some proxies leave in the address."""
        root = self._access.root_path
        if not root or not (scope["path"] == root or scope["path"].startswith(f"{root}/")):
            return scope
        raw_path = scope.get("raw_path", b"")
        return {
            **scope,
            "path": scope["path"].removeprefix(root) or "/",
            "raw_path": raw_path.removeprefix(root.encode()) or b"/",
        }

    def _refusal(self, scope: Scope) -> Response | None:
        headers, method = Headers(scope=scope), scope["method"]
        host = headers.get("host", "").lower()
        name = _HOST.fullmatch(host)
        if name is None or not self._access.allows_host(name[1] or name[2]):
            text = f"This server does not answer for the host {headers.get('host', '')[:100]!r}.\n"
            return PlainTextResponse(text + self._access.host_hint, 421)
        if len(scope.get("raw_path", b"")) + len(scope["query_string"]) > _LONGEST_ADDRESS:
            return PlainTextResponse("The address is too long.\n", 414)
        if method not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered.\n", 405)
        if headers.get("sec-fetch-site") == "cross-site" and not _is_followed_link(headers):
            return PlainTextResponse("Another site may link to pages, not embed them.\n", 403)
        if method == "POST":
            if not self._is_origin_allowed(headers.get("origin"), host):
                return PlainTextResponse("A form of another site cannot be sent here.\n", 403)
            length = headers.get("content-length", "")
            if not length.isascii() or not length.isdigit():
                return PlainTextResponse("The request does not state its length.\n", 411)
            if int(length) > LARGEST_BODY:
                return PlainTextResponse(f"At most {LARGEST_BODY:,} bytes are read.\n", 413)
        return None

    def _is_origin_allowed(self, origin: str | None, host: str) -> bool:
        if origin is None:
            return not self._access.needs_origin
        return self._is_same_origin(origin, host)

    def _is_same_origin(self, origin: str, host: str) -> bool:
        """Whether a form comes from our pages.

        A proxy may change the Host header or remove its port, so a form may come from any allowed
        host. On loopback, where other servers listen too, the ports must be equal.
        """
        try:
            parts = urlsplit(origin.lower())
            name = parts.hostname
        except ValueError:
            return False
        if parts.scheme not in ("http", "https") or name is None:
            return False
        allowed = name not in LOOPBACK and self._access.allows_host(name)
        return parts.netloc == host or allowed

    def _ask_for_token(self, scope: Scope) -> Response | None:
        """Return None if a request may pass, otherwise a refusal or a redirect.

        A request with the token in its address is redirected to the address without it, and the
        token is stored as a cookie.
        """
        token = self._access.token
        if token is None:
            return None
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        candidate = next((value for name, value in pairs if name == "token"), None)
        if candidate is not None and _is_equal(candidate, token):
            remaining = urlencode([(name, value) for name, value in pairs if name != "token"])
            path = self._access.root_path + scope.get("raw_path", b"/").decode("latin-1")
            # One leading slash: "//name" would be the address of another host.
            address = "/" + path.lstrip("/") + (f"?{remaining}" if remaining else "")
            redirect = RedirectResponse(address, 303)
            redirect.set_cookie(
                COOKIE,
                token,
                httponly=True,
                samesite="lax",
                secure=self._is_encrypted(scope),
                path=self._access.root_path or "/",
            )
            return redirect
        if _is_equal(Request(scope).cookies.get(COOKIE, ""), token):
            return None
        text = "This explorer needs its token.\n"
        text += "Open the address with ?token=... that `r2med explore` printed when it started.\n"
        return PlainTextResponse(text, 401)

    def _is_encrypted(self, scope: Scope) -> bool:
        client = (scope.get("client") or ("",))[0]
        if client in self._access.trusted_proxies:
            forwarded = Headers(scope=scope).get("x-forwarded-proto")
            return bool((forwarded or scope["scheme"]) == "https")
        return bool(scope["scheme"] == "https")


def failure_line(scope: Scope, error: Exception) -> str:
    """Describe a failure in one line: the request, the error, and the line of code."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    line = f"{scope['method']} {scope['path'][:200]}: {type(error).__name__}: {error}{where}"
    return visible(" ".join(line.split()))[:500]


def _is_equal(candidate: str, token: str) -> bool:
    return hmac.compare_digest(candidate.encode(), token.encode())


def _is_followed_link(headers: Headers) -> bool:
    """Whether a browser asks for a whole page because the user followed a link."""
    mode, destination = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return bool(mode == "navigate" and destination == "document")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
