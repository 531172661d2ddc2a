"""`r2med serve`: a search server for outside agents."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, need, plural
from r2med.paths import slug
from r2med.report.console import echo, notice

if TYPE_CHECKING:
    from r2med.serve.search import SearchService
    from r2med.tasks.task import Task


def serve(
    context: typer.Context,
    system: options.System,
    task: options.Task,
    k: Annotated[
        int, options.option("--k", min=1, max=100, help="Documents per question or search.")
    ] = 5,
    session: Annotated[
        str,
        options.option(
            "--session",
            help="Session of requests that name none, such as the id of a query.",
        ),
    ] = "",
    stdio: Annotated[
        bool,
        options.option(
            "--stdio",
            heading=options.OUTPUT,
            help="Serve one MCP client over standard input and output instead.",
        ),
    ] = False,
    log: Annotated[
        Path | None,
        options.option(
            "--log",
            heading=options.OUTPUT,
            help="Folder of the log; by default r2med-calls/<task>/<system>.",
        ),
    ] = None,
    port: options.Port = None,
    data_root: options.DataRoot = None,
    device: options.Device = None,
    trust_remote_code: options.TrustRemoteCode = False,
    llm_url: options.LlmUrl = None,
    max_tokens: options.MaxTokens = None,
    max_cost: options.MaxCost = None,
) -> None:
    """Let an outside agent search the corpus of one task with one system.

    Answers on this machine alone until Ctrl-C, over HTTP (POST /search, POST /answer) and MCP
    (/mcp, tools `search` and `submit_answer`). Every call is one retrieval, and is in the log
    before it is answered. Name a session after the id of the query that the agent works on;
    `r2med agents score LOG --task T` then scores it. Documents are shown under codes, because
    ids of R2MED name the query. Systems that cost money need --max-cost.
    """
    need("starlette", "uvicorn", "mcp", extra="serve")
    from r2med.agents.call_log import CallLog, Setup
    from r2med.serve.search import SearchService, check_session
    from r2med.systems.build import System

    if stdio:
        refuse_unread(context, "with --stdio", "port")
    options.refuse_unused_model_options(context, [system])
    loaded = _load_task(task, data_root)
    with options.open_resources(context.params) as resources:
        built = System.from_spec(system, resources)
        folder = log or Path("r2med-calls") / slug(loaded.name) / slug(str(built))
        setup = Setup(loaded.name, loaded.hash, str(built), k)
        calls = CallLog(folder, setup, warn=notice)
        service = SearchService(built, loaded, calls, k=k, paid=max_cost is not None)
        try:
            if stdio:
                _serve_stdio(service, check_session(session))
            else:
                _serve_http(service, check_session(session), port, folder)
        except KeyboardInterrupt as stop:
            stop.add_note(f"the server has ended; every call is in {folder}.")
            raise
        finally:
            calls.close()


def _serve_stdio(service: SearchService, session: str) -> None:
    import anyio

    from r2med.serve.mcp_server import serve_stdio

    anyio.run(serve_stdio, service, session)


def _serve_http(service: SearchService, session: str, port: int | None, folder: Path) -> None:
    from r2med.serve.app import PORT, create_search_app
    from r2med.serve.listener import open_listener, run_server

    listener = open_listener("127.0.0.1", port, usual=PORT)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    documents = plural(len(service.task.corpus), "document")
    echo(f"r2med serve: {url}/search and {url}/mcp ({documents}; Ctrl-C ends it)")
    echo(f"log: {folder}")
    run_server(create_search_app(service, session=session), listener)


def _load_task(task: str, data_root: Path | None) -> Task:
    from r2med.tasks.load import load_tasks

    loaded = list(load_tasks(task, root=data_root))
    if len(loaded) != 1:
        raise UsageError(f"--task {task} names {len(loaded)} tasks; a server has one.")
    return loaded[0]
