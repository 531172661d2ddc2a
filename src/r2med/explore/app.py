"""The web application: which address shows which page, and the server that answers.

Every handler reads what is there and renders a page; only `Try it` does work, and only by POST.
"""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from r2med.engine.status import read_statuses
from r2med.errors import DamagedError, LimitError, MissingError, R2MedError, UsageError
from r2med.explore.guard import LOOPBACK, Guard, Parameters
from r2med.explore.library import Kept, Library, Snapshot, frugal
from r2med.explore.pages.about import about_page, audits_page, message_page, running_page
from r2med.explore.pages.compare import compare_page
from r2med.explore.pages.document import document_page
from r2med.explore.pages.leaderboard import View, draw_figure, leaderboard_page, shown_board
from r2med.explore.pages.query import DEPTHS, ORDERS, QueryData, query_page
from r2med.explore.pages.system import system_page
from r2med.explore.pages.task import task_page, tasks_page
from r2med.explore.pages.trial import LONGEST, offered, trial_page
from r2med.explore.render import STATIC, server_link, static_file
from r2med.retrieve.conditions import Conditions
from r2med.systems.registry import KINDS

if TYPE_CHECKING:
    from r2med.systems.build import System

PORT = 8642
#: Systems that stay ready for the next typed query.
_SYSTEMS = 4
#: Pages that are kept as long as the results stay as they are; each takes some 50 kB.
_PAGES = 250
_THREADS = 4
#: The statuses of refusals, the first that fits.
_STATUSES = {
    UsageError: 400,
    LimitError: 403,
    MissingError: 404,
    DamagedError: 404,
    R2MedError: 422,
    Exception: 500,
}

Handler = Callable[[Request, Snapshot], Response | str]


def create_app(
    library: Library,
    *,
    hosts: Collection[str] = LOOPBACK,
    conditions: Conditions | None = None,
    paid: bool = False,
) -> Starlette:
    """The application over one library; `hosts` are the names it answers for.

    Queries that are typed in run under `conditions`; models that cost money only where `paid`.
    """
    trials = _Trials(library, conditions or Conditions(), paid)
    pages: Kept[Response] = Kept(_PAGES)
    one = anyio.CapacityLimiter(1)

    def kept(handler: Handler) -> Callable[[Request], Response]:
        """A handler whose answer depends on its address and the snapshot alone: it is made once."""

        def answer(request: Request) -> Response:
            snapshot = library.snapshot()

            def make() -> Response:
                made = handler(request, snapshot)
                return HTMLResponse(made) if isinstance(made, str) else made

            address = request.scope["raw_path"], request.scope["query_string"]
            return pages.get((snapshot.state, *address), make)

        return answer

    async def drawn(request: Request) -> Response:
        # A slow handler: for one request at a time, and never by the threads of the pages.
        return await anyio.to_thread.run_sync(kept(plot), request, limiter=one)

    def running(request: Request) -> Response:
        folder = library.folder
        return HTMLResponse(running_page(read_statuses(folder), str(folder), server_link))

    return Starlette(
        routes=[
            Route("/", kept(leaderboard)),
            Route("/leaderboard", kept(leaderboard)),
            Route("/leaderboard.csv", kept(leaderboard)),
            Route("/system", kept(system)),
            Route("/tasks", kept(lambda _, snapshot: tasks_page(snapshot, server_link))),
            Route("/task/{rest:path}", kept(task)),
            Route("/compare", kept(compare)),
            Route("/audits", kept(audits)),
            Route("/about", kept(lambda _, snapshot: about_page(snapshot, server_link))),
            Route("/plot/{name}", drawn),
            Route("/try", kept(lambda _, snapshot: trial_page(snapshot, server_link))),
            Route("/try", trials.answer, methods=["POST"]),
            Route("/running", running),
            Route("/static/{name}", static),
            Route("/{rest:path}", nowhere),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={R2MedError: refused, Exception: refused},
        lifespan=_few_threads,
    )


def bound_socket(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port, at the usual one or else at any free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = ""
    for candidate in (PORT, 0) if port is None else (port,):
        try:
            return socket.create_server((host, candidate), family=family, backlog=128)
        except OSError as problem:
            last = problem.strerror or str(problem)
    raise UsageError(f"--host {host} --port {port}: {last}. Choose another with --port.")


def serve(app: Starlette, listener: socket.socket, *, browse: str | None = None) -> None:
    """Answer requests until interrupted; those that come earlier wait at the listening socket.

    `browse` is a page to open in the user's browser.
    """
    from uvicorn import Config, Server

    frugal()
    if browse:
        threading.Thread(target=webbrowser.open, args=(browse,), daemon=True).start()
    config = Config(app, log_level="error", access_log=False, lifespan="on", server_header=False)
    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()


@dataclass(frozen=True)
class _Trials:
    """Runs typed queries, one at a time, through systems that stay ready for the next one."""

    library: Library
    conditions: Conditions
    paid: bool
    ready: Kept[System] = field(default_factory=lambda: Kept(_SYSTEMS))
    trying: Lock = field(default_factory=Lock)

    async def answer(self, request: Request) -> Response:
        """A typed query, run in a thread of its own."""
        form = await request.form(max_files=0, max_fields=10)
        return await run_in_threadpool(self._tried, Parameters(form))

    def _tried(self, values: Parameters) -> Response:
        from r2med.engine.trial import try_query
        from r2med.systems.build import System

        snapshot = self.library.snapshot()
        systems, tasks = offered(snapshot)
        system = values.word("system", systems) or systems[0]
        name = values.word("task", tasks)
        text = values.text("text", longest=LONGEST) or ""
        if name is None:
            raise UsageError("no task is chosen.")
        page = partial(trial_page, snapshot, server_link, system=system, task=name, text=text)
        try:
            task = self.library.task(name)
            with self.trying:
                built = self.ready.get(system, lambda: System.from_spec(system, self.conditions))
                tried = try_query(built, task, text, paid=self.paid)
        except R2MedError as problem:
            return HTMLResponse(page(problem=str(problem)), _status(problem))
        return HTMLResponse(page(tried=tried))


def leaderboard(request: Request, snapshot: Snapshot) -> Response | str:
    """The leaderboard of a suite, or its rows as a file; without one, of the results at hand."""
    view = View.of(Parameters(request.query_params), snapshot)
    if not request.url.path.endswith(".csv"):
        return leaderboard_page(snapshot, view, server_link)
    headers = {"Content-Disposition": f'attachment; filename="leaderboard-{view.suite}.csv"'}
    table = shown_board(view.board(snapshot), view).to_csv()
    return Response(table, media_type="text/csv", headers=headers)


def system(request: Request, snapshot: Snapshot) -> str:
    """A system: its figures, settings and cost."""
    values = Parameters(request.query_params)
    suite = values.word("suite", snapshot.suites) or snapshot.suite
    name = values.text("system")
    if name is None:
        raise UsageError("no system is named.")
    return system_page(snapshot, server_link, name, suite=suite, metric=values.metric())


def audits(request: Request, snapshot: Snapshot) -> str:
    """Leakage audits in the results folder."""
    return audits_page(snapshot.audits, snapshot.damaged_audits, server_link)


def task(request: Request, snapshot: Snapshot) -> str:
    """A task, one of its queries, or one of its documents."""
    name, part, item = _task_address(snapshot, request)
    values = Parameters(request.query_params)
    systems, metric = values.texts("system"), values.metric()
    first = next(iter(systems), None)
    if part == "document":
        query = values.text("query")
        return document_page(snapshot, server_link, name, item, query_id=query, system=first)
    if part == "query":
        data = QueryData(
            snapshot,
            name,
            item,
            systems=systems,
            metric=metric,
            order=values.word("order", ORDERS) or "difficulty",
            depth=int(values.word("depth", DEPTHS) or DEPTHS[0]),
        )
        return query_page(data, server_link)
    return task_page(snapshot, server_link, name, metric=metric, system=first)


def compare(request: Request, snapshot: Snapshot) -> str:
    """Systems on a task or a suite; `scope` names either, and so do `task` and `suite`."""
    values, known = Parameters(request.query_params), [*snapshot.suites, *snapshot.tasks]
    scopes = [values.word(name, known) for name in ("scope", "task", "suite")]
    return compare_page(
        snapshot,
        server_link,
        scope=next(filter(None, scopes), snapshot.suite),
        systems=values.texts("system"),
        metric=values.metric(),
    )


def plot(request: Request, snapshot: Snapshot) -> Response:
    """A figure, which takes some seconds to draw: pages name it and never wait for it.

    It is drawn by a process of its own, because the libraries would keep 100 MB of this one.
    """
    values = Parameters(request.query_params)
    suite = values.word("suite", snapshot.suites)
    if suite is None:
        raise UsageError("the address of a figure names a suite.")
    theme = values.word("theme", ("light", "dark")) or "light"
    board = snapshot.board(suite, metric=values.metric(), kind=values.word("kind", KINDS))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        svg = pool.submit(draw_figure, board, str(request.path_params["name"]), theme).result()
    return Response(svg, media_type="image/svg+xml")


def static(request: Request) -> Response:
    """A file of the package, by its name alone."""
    name = str(request.path_params["name"])
    if name not in STATIC:
        raise MissingError(f"There is no file {name[:100]!r}.")
    return Response(static_file(name), media_type=STATIC[name])


def nowhere(request: Request) -> Response:
    """No page has this address."""
    raise MissingError("There is no page at this address.")


def refused(request: Request, problem: Exception) -> Response:
    """A page that says what to do; of a defect of the program the terminal has the details."""
    status, why = _status(problem), str(problem)
    if status == 500:
        why = "The program failed on this page; the terminal it was started in says why."
    return HTMLResponse(message_page(status, why, server_link), status)


def _status(problem: Exception) -> int:
    return next(status for kind, status in _STATUSES.items() if isinstance(problem, kind))


def _task_address(snapshot: Snapshot, request: Request) -> tuple[str, str, str]:
    """The task, and the query or document of it, that a path names.

    Names may hold slashes. Those of an item are escaped, so that its name is the last segment.
    """

    def known(name: str) -> bool:
        return name in snapshot.tasks or snapshot.library.knows(name)

    raw = bytes(request.scope["raw_path"]).decode("ascii", "replace")
    rest = raw.partition("/task/")[2]
    name = unquote(rest)
    if known(name):
        return name, "", ""
    for part in ("query", "document"):
        head, separator, item = rest.rpartition(f"/{part}/")
        if separator and known(unquote(head)):
            return unquote(head), part, unquote(item)
    raise MissingError(f"There is no task {name[:100]!r}, and no result of one.")


@asynccontextmanager
async def _few_threads(app: Starlette) -> AsyncIterator[None]:
    """Pages are made by a few threads: more would only share the interpreter and hold memory."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    yield
