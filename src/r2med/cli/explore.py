"""`r2med explore` and `r2med report`: results as pages, from a server, in a folder, in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, need
from r2med.report.console import echo, notice

_LIBRARIES = ("starlette", "uvicorn", "jinja2")
#: Options of the server, which a bundle does not need.
_SERVING = ("host", "port", "open_page", "llm_url", "max_cost")


def explore(
    context: typer.Context,
    results: options.Results = options.RESULTS,
    task: options.AnyTask = None,
    data_root: options.DataRoot = None,
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
    llm_url: options.LlmUrl = None,
    max_cost: options.MaxCost = None,
) -> None:
    """Look at results, tasks and queries in a web browser.

    Serves pages on this machine alone until Ctrl-C. They read stored results and change nothing.
    --task names folders of your own data, so that their texts can be shown. Queries that are typed
    in ask models that cost money only under --max-cost. --bundle writes the pages as files, which
    need no server.
    """
    need(*_LIBRARIES, extra="web")
    from r2med.explore.library import Library

    if bundle is not None:
        refuse_unread(context, "with --bundle", *_SERVING)
        from r2med.explore.bundle import write_bundle

        library = Library(results, root=data_root, tasks=task)
        pages, size = write_bundle(bundle, library, texts=not without_texts, tell=notice)
        index = bundle / "index.html"
        echo(f"wrote {index} and all it leads to: {pages:,} pages, {size / 1e6:.1f} MB")
        return
    refuse_unread(context, "without --bundle", "without_texts")
    from r2med.explore.app import bound_socket, create_app, serve
    from r2med.explore.guard import LOOPBACK

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
        conditions=options.conditions(context.params),
        paid=max_cost is not None,
    )
    try:
        echo(f"r2med explore: {url} (Ctrl-C ends it)")
        serve(app, listener, browse=url if open_page else None)
    except KeyboardInterrupt as stop:
        stop.add_note("the explorer has ended; results are as they were.")
        raise


def report(
    systems: options.AnySystems = None,
    file: Annotated[Path, options.out("The file to write, e.g. report.html.")] = Path(
        "report.html"
    ),
    task: options.AnyTask = None,
    metric: options.Metric = options.METRIC,
    results: options.Results = options.RESULTS,
) -> None:
    """Write stored results as one HTML file: tables, intervals, tests, figures and settings.

    Without systems all that have results; the others are compared with the first. The file needs
    nothing else: mail it, print it, put it on a web server.
    """
    if file.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {file}: expected a file that ends in .html.")
    need(*_LIBRARIES, extra="web")
    from r2med.atomic import write_file
    from r2med.explore.report import report_page

    page = report_page(*systems or (), task=task, metric=metric, results=results, tell=notice)
    write_file(file, page)
    echo(f"wrote {file} ({file.stat().st_size / 1e6:.2f} MB)")
