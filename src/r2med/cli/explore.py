"""`r2med explore`: the results, the tasks and every query in a web browser."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli.options import (
    RESULTS,
    AnyTask,
    DataRoot,
    LlmUrl,
    MaxCost,
    Results,
    conditions,
    refuse_unread,
)
from r2med.errors import MissingError

_LIBRARIES = {"starlette": "starlette", "uvicorn": "uvicorn", "jinja2": "jinja2"}
#: Options of the server, which a bundle does not need.
_SERVING = ("host", "port", "open_page", "llm_url", "max_cost")


def explore(
    context: typer.Context,
    results: Results = RESULTS,
    task: AnyTask = None,
    data_root: DataRoot = None,
    host: Annotated[
        str, typer.Option("--host", help="The address to bind to; anything else is warned of.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option("--port", min=0, max=65535, help="The port; by default a free one."),
    ] = None,
    open_page: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in your browser.")
    ] = True,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", help="Write the pages as a static site into this folder instead."),
    ] = None,
    without_texts: Annotated[
        bool,
        typer.Option("--without-texts", help="Leave texts of queries and documents out of it."),
    ] = False,
    llm_url: LlmUrl = None,
    max_cost: MaxCost = None,
) -> None:
    """Look at results, tasks and queries in a web browser.

    Serves pages on this machine alone until Ctrl-C. They read stored results and change nothing.
    --task names folders of your own data, so that their texts can be shown. Queries that are typed
    in ask models that cost money only under --max-cost. --bundle writes the pages as files, which
    need no server.
    """
    check_libraries()
    if bundle is not None:
        refuse_unread(context, "with --bundle", *_SERVING)
        _write(bundle, results, task, data_root, texts=not without_texts)
        return
    refuse_unread(context, "without --bundle", "without_texts")
    from r2med.explore.app import create_app
    from r2med.explore.guard import LOOPBACK
    from r2med.explore.library import Library
    from r2med.explore.server import bound_socket, open_browser, serve
    from r2med.report.console import echo, notice

    library = Library(results, root=data_root, tasks=task)
    listener = bound_socket(host, port)
    name = f"[{host}]" if ":" in host else host
    url = f"http://{name}:{listener.getsockname()[1]}/"
    if host not in LOOPBACK:
        notice(
            f"--host {host}: everyone who can reach this machine can read these results and texts. "
            "There is no password."
        )

    app = create_app(
        library,
        hosts={*LOOPBACK, host},
        conditions=conditions(llm_url=llm_url, max_cost=max_cost),
        paid=max_cost is not None,
    )
    echo(f"r2med explore: {url} (Ctrl-C ends it)")
    if open_page:
        open_browser(url)
    serve(app, listener)


def _write(
    folder: Path, results: Path, task: str | None, data_root: Path | None, *, texts: bool
) -> None:
    from r2med.explore.bundle import write_bundle
    from r2med.explore.library import Library
    from r2med.report.console import echo, notice

    library = Library(results, root=data_root, tasks=task)
    pages, size = write_bundle(folder, library, texts=texts, tell=notice)
    echo(f"wrote {folder / 'index.html'} and all it leads to: {pages:,} pages, {size / 1e6:.1f} MB")


def check_libraries() -> None:
    """Fail early, and say what to install, where a library is missing."""
    missing = [name for module, name in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise MissingError(f'The explorer needs {", ".join(missing)}: pip install "r2med[web]".')
