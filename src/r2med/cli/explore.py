"""`r2med explore` and `r2med report`: results as pages, from a server, in a folder, in one file."""

from __future__ import annotations

import os
import re
import secrets
import socket
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.options import refuse_unread
from r2med.errors import UsageError, need
from r2med.report.console import echo, notice

_LIBRARIES = ("starlette", "uvicorn", "jinja2", "python_multipart")
#: Options of the server, which a bundle does not need.
_SERVING = (
    "host",
    "port",
    "allowed_host",
    "root_path",
    "trusted_proxy",
    "token",
    "trial",
    "open_page",
    "llm_url",
    "max_cost",
)
_SHORTEST_TOKEN = 16
_TOKEN = "R2MED_EXPLORE_TOKEN"  # the name of a variable of the environment, not a secret


def explore(
    context: typer.Context,
    results: options.Results = options.RESULTS,
    task: options.AnyTask = None,
    data_root: options.DataRoot = None,
    host: Annotated[
        str,
        options.option(
            "--host",
            heading=options.OUTPUT,
            help="The address to bind to; 0.0.0.0 for all of this machine.",
        ),
    ] = "127.0.0.1",
    port: options.Port = None,
    allowed_host: Annotated[
        list[str] | None,
        options.option(
            "--allowed-host",
            heading=options.OUTPUT,
            help="A host name to answer for, such as that of a proxy.",
        ),
    ] = None,
    root_path: Annotated[
        str,
        options.option(
            "--root-path",
            heading=options.OUTPUT,
            help="The path below which a proxy shows the pages.",
        ),
    ] = "",
    trusted_proxy: Annotated[
        list[str] | None,
        options.option(
            "--trusted-proxy",
            help="Trust X-Forwarded-Proto from this address; by default loopback.",
        ),
    ] = None,
    token: Annotated[
        bool,
        options.option(
            "--token/--no-token",
            help="Ask visitors for a secret token if others can reach the pages.",
        ),
    ] = True,
    trial: Annotated[
        list[str] | None,
        options.option("--try", help="A system to offer under Try it; may be a custom model."),
    ] = None,
    open_page: options.OpenBrowser = True,
    bundle: Annotated[
        Path | None,
        options.option(
            "--bundle",
            heading=options.OUTPUT,
            help="Write the pages as a static site into this folder instead.",
        ),
    ] = None,
    judgements: options.Judgements = "benchmark",
    without_texts: Annotated[
        bool,
        options.option(
            "--without-texts",
            heading=options.OUTPUT,
            help="Leave texts of queries and documents out of it.",
        ),
    ] = False,
    llm_url: options.LlmUrl = None,
    max_cost: options.MaxCost = None,
) -> None:
    """Look at results, tasks and queries in a web browser.

    Serves pages on this machine alone until Ctrl-C. They read stored results and change nothing.
    --task names folders of your own data, so that their texts can be shown. Queries that are typed
    in ask models that cost money only under --max-cost. With another --host or an --allowed-host,
    visitors need the token that is printed at the start, or the one in R2MED_EXPLORE_TOKEN.
    --bundle writes the pages as files, which need no server.
    """
    need(*_LIBRARIES, extra="web")
    from r2med.explore.library import Library

    if bundle is not None:
        refuse_unread(context, "with --bundle", *_SERVING)
        from r2med.explore.bundle import write_bundle

        library = Library(results, root=data_root, tasks=task, judgements=judgements)
        pages, size = write_bundle(bundle, library, texts=not without_texts, tell=notice)
        index = bundle / "index.html"
        echo(f"wrote {pages:,} pages ({size / 1e6:.1f} MB); open {index}")
        return
    refuse_unread(context, "without --bundle", "without_texts")
    from r2med.explore.app import create_app
    from r2med.serve.guard import LOOPBACK, Access
    from r2med.serve.listener import open_listener, run_server

    library = Library(results, root=data_root, tasks=task, judgements=judgements)
    names = [_host_name(name) for name in allowed_host or ()]
    root_path = _root_path(root_path)
    is_shared = host not in LOOPBACK or any(name not in LOOPBACK for name in names)
    secret = (os.environ.get(_TOKEN) or secrets.token_urlsafe(24)) if is_shared and token else None
    if secret is not None and len(secret) < _SHORTEST_TOKEN:
        raise UsageError(f"{_TOKEN}: expected at least {_SHORTEST_TOKEN} characters.")
    listener = open_listener(host, port)
    shown_host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    address = f"[{shown_host}]" if ":" in shown_host else shown_host
    url = f"http://{address}:{listener.getsockname()[1]}{root_path}/"
    page = f"{url}?token={secret}" if secret else url
    if is_shared:
        notice(
            f"{'Visitors with the token' if secret else 'All who can reach this server'} can read "
            "these results and texts, and nothing is encrypted. docs/deploy.md describes "
            "a proxy that encrypts it."
        )
    access = Access(
        hosts={
            *LOOPBACK,
            host.lower(),
            *names,
            *(_machine_names() if host not in LOOPBACK else ()),
        },
        any_address=host not in LOOPBACK,
        root_path=root_path,
        trusted_proxies=trusted_proxy or LOOPBACK,
        token=secret,
        host_hint="Allow it at the start with: r2med explore --allowed-host NAME\n",
    )
    app = create_app(
        library,
        access=access,
        resources=options.open_resources(context.params),
        paid=max_cost is not None,
        trial_systems=trial or (),
    )
    try:
        echo(f"r2med explore: {page} (Ctrl-C ends it)")
        run_server(app, listener, browse=page if open_page else None)
    except KeyboardInterrupt as stop:
        stop.add_note("the explorer has ended; results are as they were.")
        raise


def _host_name(name: str) -> str:
    """Return a host name in lower case; UsageError for an address with scheme, port or path."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+|[0-9a-fA-F:]+", name):
        raise UsageError(
            f"--allowed-host {name}: expected a host name alone, such as r2med.example."
        )
    return name.lower()


def _root_path(path: str) -> str:
    """Return a root path with a leading slash and none at the end; empty for the root."""
    path = f"/{path.strip('/')}" if path.strip("/") else ""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", path):
        raise UsageError(f"--root-path {path}: expected a path such as /r2med.")
    return path


def _machine_names() -> set[str]:
    """Return the names of this machine in lower case."""
    name = socket.gethostname().lower()
    return {name, name.partition(".")[0], f"{name.partition('.')[0]}.local"}


def report(
    systems: options.AnySystems = None,
    file: Annotated[Path, options.out("The file to write, e.g. report.html.")] = Path(
        "report.html"
    ),
    task: options.AnyTask = None,
    metric: options.Metric = options.METRIC,
    results: options.Results = options.RESULTS,
    with_texts: Annotated[
        bool,
        options.option(
            "--with-texts", help="Include the first query and document as each model saw them."
        ),
    ] = False,
) -> None:
    """Write stored results as one HTML file: tables, intervals, tests, figures and settings.

    Without systems, reports all that have results. Each is compared with the first. The file needs
    nothing else: mail it, print it, put it on a web server. It contains no text of a query or
    document unless you ask for it, and names no folder of this machine.
    """
    if file.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--out {file}: expected a file that ends in .html.")
    need(*_LIBRARIES, extra="web")
    from r2med.explore.report import report_page
    from r2med.storage import write_file

    page = report_page(
        *systems or (), task=task, metric=metric, results=results, texts=with_texts, tell=notice
    )
    write_file(file, page)
    echo(f"wrote {file} ({file.stat().st_size / 1e6:.2f} MB)")
