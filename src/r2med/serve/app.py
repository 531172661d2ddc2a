"""The search server over HTTP: `POST /search`, `POST /answer`, and MCP at `/mcp`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from r2med.errors import LimitError, R2MedError, UsageError
from r2med.serve.guard import LARGEST_BODY, Access, Guard
from r2med.serve.listener import report_in_one_line
from r2med.serve.mcp_server import create_mcp_server
from r2med.serve.search import SearchService, make_answer

#: The usual port of the search server.
PORT = 8643
#: Seconds in which the text of a request must arrive.
_BODY_SECONDS = 20
_STATUSES = {UsageError: 400, LimitError: 429, R2MedError: 422}


def create_search_app(service: SearchService, *, session: str = "") -> Starlette:
    """Create the application; `session` is used for requests that name no session."""
    manager = StreamableHTTPSessionManager(
        create_mcp_server(service, session),
        json_response=True,
        stateless=True,
        max_request_body_size=LARGEST_BODY,
    )

    async def describe(request: Request) -> Response:
        return JSONResponse(
            {
                "corpus": len(service.task.corpus),
                "documents": service.depth,
                "search": 'POST /search {"query": "...", "session": "..."}',
                "answer": 'POST /answer {"answer": "...", "session": "..."}',
                "mcp": "/mcp?session=...",
            }
        )

    async def search(request: Request) -> Response:
        values = await _read_body(request)
        passages = await service.search(_session(values, session), _text(values, "query"))
        return JSONResponse({"results": [{"id": hit.code, "text": hit.text} for hit in passages]})

    async def submit(request: Request) -> Response:
        values = await _read_body(request)
        await service.answer(_session(values, session), make_answer(values))
        return JSONResponse({"recorded": True})

    def refuse(request: Request, problem: Exception) -> Response:
        status = next(code for error, code in _STATUSES.items() if isinstance(problem, error))
        return JSONResponse({"error": str(problem)}, status)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        report_in_one_line(asyncio.get_running_loop())
        async with manager.run():
            yield

    return Starlette(
        routes=[
            Route("/", describe),
            Route("/search", search, methods=["POST"]),
            Route("/answer", submit, methods=["POST"]),
            Route("/mcp", _McpEndpoint(manager), methods=["GET", "POST"]),
        ],
        middleware=[Middleware(Guard, access=Access(needs_origin=False))],
        exception_handlers={R2MedError: refuse},
        lifespan=lifespan,
    )


class _McpEndpoint:
    """The MCP endpoint as an ASGI application.

    It is a class because a route passes unread requests to classes only.
    """

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


async def _read_body(request: Request) -> dict[str, object]:
    """Return the JSON object of a request."""
    if not request.headers.get("content-type", "").lower().startswith("application/json"):
        raise UsageError("Content-Type: expected application/json.")
    try:
        with anyio.fail_after(_BODY_SECONDS):
            body = await request.body()
        values = json.loads(body)
    except TimeoutError:
        raise UsageError("The request did not arrive in time. Send it again.") from None
    except (ValueError, RecursionError):
        raise UsageError("The request is not JSON, expected one object.") from None
    if not isinstance(values, dict):
        raise UsageError("The request is not an object, expected one.")
    return values


def _session(values: dict[str, object], default: str) -> str:
    return _text(values, "session") or default


def _text(values: dict[str, object], name: str) -> str:
    value = values.get(name, "")
    if not isinstance(value, str):
        raise UsageError(f"{name}: expected a text.")
    return value
