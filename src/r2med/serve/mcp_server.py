"""The search server over MCP: two tools, `search` and `submit_answer`.

The session is not an argument of the tools, so that a model neither sees nor chooses it: the
program that connects the agent names it, in the address (`/mcp?session=ID`) or at the start
(`--session ID`).
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from r2med.errors import R2MedError, UsageError
from r2med.serve.search import LONGEST_ANSWER, LONGEST_QUERY, SearchService, make_answer

SEARCH, SUBMIT = "search", "submit_answer"


def create_mcp_server(service: SearchService, session: str = "") -> Server[Any]:
    """Create the MCP server; `session` is used for connections that name no session."""

    async def list_tools(
        context: ServerRequestContext[Any], parameters: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools(service.depth))

    async def call_tool(
        context: ServerRequestContext[Any], parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            content = await _call(
                service, _session_of(context, session), parameters.name, parameters.arguments or {}
            )
        except R2MedError as problem:
            return types.CallToolResult(content=[_text(str(problem))], is_error=True)
        text = json.dumps(content, ensure_ascii=False, indent=1)
        return types.CallToolResult(content=[_text(text)], structured_content=content)

    return Server(
        "r2med",
        version=version("r2med"),
        instructions=(
            f"Search a fixed collection of {len(service.task.corpus):,} medical documents. When "
            "you know the answer, call submit_answer once."
        ),
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(service: SearchService, session: str) -> None:
    """Answer one client over standard input and output until it disconnects."""
    server = create_mcp_server(service, session)
    async with stdio_server() as (reader, writer):
        await server.run(reader, writer, server.create_initialization_options())


async def _call(
    service: SearchService, session: str, tool: str, arguments: dict[str, Any]
) -> dict[str, object]:
    if tool == SEARCH:
        passages = await service.search(session, arguments.get("query", ""))
        return {"results": [{"id": hit.code, "text": hit.text} for hit in passages]}
    if tool == SUBMIT:
        await service.answer(session, make_answer(arguments))
        return {"recorded": True}
    raise UsageError(f"no tool is named {tool[:60]!r}; the tools are {SEARCH} and {SUBMIT}.")


def _session_of(context: ServerRequestContext[Any], default: str) -> str:
    parameters = getattr(context.request, "query_params", {})
    return str(parameters.get("session") or default)


def _tools(depth: int) -> list[types.Tool]:
    text = {"type": "string", "minLength": 1}
    code = {"type": "string", "maxLength": 100}
    return [
        types.Tool(
            name=SEARCH,
            description=(
                f"Search the collection; returns up to {depth} documents with their ids and texts."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "query": {
                        **text,
                        "maxLength": LONGEST_QUERY,
                        "description": "What to search for.",
                    }
                },
                "required": ["query"],
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
        ),
        types.Tool(
            name=SUBMIT,
            description="Record the final answer to the question; call it once, at the end.",
            input_schema={
                "type": "object",
                "properties": {
                    "answer": {**text, "maxLength": LONGEST_ANSWER, "description": "The answer."},
                    "confidence": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 1,
                        "description": "Probability that the answer is correct.",
                    },
                    "citations": {
                        "type": "array",
                        "items": code,
                        "description": "Ids of the documents that support the answer.",
                    },
                },
                "required": ["answer"],
                "additionalProperties": False,
            },
            annotations=types.ToolAnnotations(read_only_hint=False, destructive_hint=False),
        ),
    ]


def _text(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)
