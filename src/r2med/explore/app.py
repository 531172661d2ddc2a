"""The web application: which address shows which page, and the server that answers.

Every handler reads what is there and renders a page; only `Try it` does work, and only by POST.
Pages are imported when first asked for, so that the server starts at once.
"""

from __future__ import annotations

import socket
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
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

from r2med.errors import DamagedError, LimitError, MissingError, R2MedError, UsageError
from r2med.explore.guard import LOOPBACK, Guard, Parameters
from r2med.explore.library import Kept, Library, Snapshot, frugal
from r2med.explore.render import STATIC, server_link, static_file
from r2med.retrieve.conditions import Conditions

if TYPE_CHECKING:
    from r2med.systems.build import System

PORT = 8642
_TRIED = 20
#: Systems that stay ready for the next typed query.
_SYSTEMS = 4
#: Pages that are kept as long as the results stay as they are; each takes some 50 kB.
_PAGES = 250
_CHANGING = "no-store"
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
    explorer = Explorer(library, conditions or Conditions(), paid)
    drawing, one = explorer.kept(plot), anyio.CapacityLimiter(1)

    def of_task(request: Request, snapshot: Snapshot) -> Hashable:
        return snapshot.state_of(_task_address(snapshot, request)[0])

    async def drawn(request: Request) -> Response:
        # A slow handler: for one request at a time, and never by the threads of the pages.
        return await anyio.to_thread.run_sync(drawing, request, limiter=one)

    return Starlette(
        routes=[
            Route("/", explorer.kept(leaderboard)),
            Route("/leaderboard", explorer.kept(leaderboard)),
            Route("/leaderboard.csv", explorer.kept(leaderboard)),
            Route("/system", explorer.kept(system)),
            Route("/tasks", explorer.kept(overview)),
            Route("/task/{rest:path}", explorer.kept(task, of_task)),
            Route("/compare", explorer.kept(compare)),
            Route("/audits", explorer.kept(overview)),
            Route("/about", explorer.kept(overview)),
            Route("/plot/{name}", drawn),
            Route("/try", explorer.form),
            Route("/try", explorer.tried, methods=["POST"]),
            Route("/running", explorer.running),
            Route("/static/{name}", static),
            Route("/{rest:path}", nowhere),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={R2MedError: refused, Exception: refused},
        lifespan=_few_threads,
    )


def bound_socket(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port, the first free one from the usual one on."""
    last = ""
    for candidate in [port] if port is not None else [*range(PORT, PORT + _TRIED), 0]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as problem:
            listener.close()
            last = problem.strerror or str(problem)
        else:
            return listener
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
class Explorer:
    """What handlers share: the library, pages that were made, systems that stay ready."""

    library: Library
    conditions: Conditions
    paid: bool
    systems: Kept[System] = field(default_factory=lambda: Kept(_SYSTEMS))
    trying: Lock = field(default_factory=Lock)
    pages: Kept[tuple[bytes, Mapping[str, str]]] = field(default_factory=lambda: Kept(_PAGES))

    def kept(
        self,
        handler: Callable[[Request, Snapshot], Response],
        state: Callable[[Request, Snapshot], Hashable] = lambda request, snapshot: snapshot.state,
    ) -> Callable[[Request], Response]:
        """A handler whose answer depends on its address and the stored results alone.

        It is made once for as long as what it shows of the results, its `state`, stays as it is.
        """

        def answer(request: Request) -> Response:
            snapshot = self.library.snapshot()

            def make() -> tuple[bytes, Mapping[str, str]]:
                response = handler(request, snapshot)
                return bytes(response.body), dict(response.headers)

            address = bytes(request.scope["raw_path"]), bytes(request.scope["query_string"])
            body, headers = self.pages.get(
                (state(request, snapshot), *address),
                make,
                worth=lambda made: _CHANGING not in made[1].values(),
            )
            return Response(body, headers=headers)

        return answer

    def running(self, request: Request) -> Response:
        """Evaluations in this results folder."""
        from r2med.engine.status import read_statuses
        from r2med.explore.pages.about import running_page

        folder = self.library.folder
        return HTMLResponse(running_page(read_statuses(folder), str(folder), server_link))

    def form(self, request: Request) -> Response:
        """The empty form of `Try it`."""
        from r2med.explore.pages.trial import choices, trial_page

        return HTMLResponse(trial_page(choices(self.library.snapshot()), server_link))

    async def tried(self, request: Request) -> Response:
        """A typed query, run in a thread of its own."""
        form = await request.form(max_files=0, max_fields=10)
        return await run_in_threadpool(self._tried, Parameters(form))

    def _tried(self, values: Parameters) -> Response:
        from r2med.engine.trial import try_query
        from r2med.explore.pages.trial import LONGEST, choices, trial_page
        from r2med.systems.build import System

        offered = choices(self.library.snapshot())
        system = values.word("system", offered.systems) or offered.systems[0]
        name = values.word("task", [task for task, _ in offered.tasks])
        text = values.text("text", longest=LONGEST, lines=True) or ""
        if name is None:
            raise UsageError("no task is chosen.")
        choice = replace(offered, system=system, task=name, text=text)
        try:
            task = self.library.task(name)
            with self.trying:
                built = self.systems.get(system, lambda: System.from_spec(system, self.conditions))
                tried = try_query(built, task, text, paid=self.paid)
        except R2MedError as problem:
            page = trial_page(choice, server_link, problem=str(problem))
            return HTMLResponse(page, _status(problem))
        return HTMLResponse(trial_page(choice, server_link, tried))


def leaderboard(request: Request, snapshot: Snapshot) -> Response:
    """The leaderboard of a suite, or its rows as a file; without one, of the results at hand."""
    from r2med.explore.pages.leaderboard import View, leaderboard_page, shown_board

    view = View.of(Parameters(request.query_params), snapshot)
    if not request.url.path.endswith(".csv"):
        return HTMLResponse(leaderboard_page(snapshot, view, server_link))
    headers = {"Content-Disposition": f'attachment; filename="leaderboard-{view.suite}.csv"'}
    table = shown_board(view.board(snapshot), view).to_csv()
    return Response(table, media_type="text/csv", headers=headers)


def system(request: Request, snapshot: Snapshot) -> Response:
    """A system: its figures, settings and cost."""
    from r2med.explore.pages.system import system_page

    values = Parameters(request.query_params)
    suite, name = values.word("suite", snapshot.suites), values.text("system")
    if name is None:
        raise UsageError("no system is named.")
    suite = suite or snapshot.suite
    return HTMLResponse(
        system_page(snapshot, server_link, name, suite=suite, metric=values.metric())
    )


def overview(request: Request, snapshot: Snapshot) -> Response:
    """All tasks; leakage audits in the results folder; versions, licences and labels."""
    from r2med.explore.pages.about import about_page, audits_page
    from r2med.explore.pages.task import tasks_page

    if request.url.path == "/audits":
        return HTMLResponse(audits_page(snapshot.audits, snapshot.damaged_audits, server_link))
    page = tasks_page if request.url.path == "/tasks" else about_page
    return HTMLResponse(page(snapshot, server_link))


def task(request: Request, snapshot: Snapshot) -> Response:
    """A task, one of its queries, or one of its documents."""
    name, part, item = _task_address(snapshot, request)
    values = Parameters(request.query_params)
    systems, metric = values.texts("system"), values.metric()
    if part == "document":
        from r2med.explore.pages.document import document_pages

        query, of = values.text("query"), next(iter(systems), None)
        pages = document_pages(snapshot, server_link, name, [item], query_id=query, system=of)
        return HTMLResponse(pages[item])
    if part == "query":
        from r2med.explore.pages.query import DEPTHS, ORDERS, QueryData, query_lists, query_page

        data = QueryData(
            snapshot,
            name,
            item,
            systems=systems,
            metric=metric,
            order=values.word("order", ORDERS) or "difficulty",
            depth=int(values.word("depth", DEPTHS) or DEPTHS[0]),
        )
        lists = snapshot.library.lists.get(data.origin, lambda: query_lists(data, server_link))
        page = query_page(data, lists, server_link)
    else:
        from r2med.explore.pages.task import task_page

        of = next(iter(systems), None)
        page = task_page(snapshot, server_link, name, metric=metric, system=of)
    # A page that lacks data is made again, since it may be fetched meanwhile.
    missing = snapshot.data_of(name, {})[1]
    return HTMLResponse(page, headers={"Cache-Control": _CHANGING} if missing else {})


def compare(request: Request, snapshot: Snapshot) -> Response:
    """Systems on a task or a suite; `scope` names either."""
    from r2med.explore.pages.compare import compare_page

    values, names = Parameters(request.query_params), snapshot.suites
    scope = values.word("scope", [*names, *snapshot.tasks])
    task = values.word("task", snapshot.tasks) or (scope if scope not in names else None)
    suite = values.word("suite", names) or (scope if scope in names else None)
    page = compare_page(
        snapshot,
        server_link,
        suite=suite or snapshot.suite,
        task=task,
        systems=values.texts("system"),
        metric=values.metric(),
    )
    return HTMLResponse(page)


def plot(request: Request, snapshot: Snapshot) -> Response:
    """A figure, which takes some seconds to draw: pages name it and never wait for it.

    It is drawn by a process of its own, because the libraries would keep 100 MB of this one.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from r2med.explore.pages.leaderboard import draw_figure
    from r2med.systems.registry import KINDS

    values = Parameters(request.query_params)
    suite = values.word("suite", snapshot.suites)
    if suite is None:
        raise UsageError("the address of a figure names a suite.")
    theme = values.word("theme", ("light", "dark"), "light") or "light"
    board = snapshot.board(suite, metric=values.metric(), kind=values.word("kind", KINDS))
    name = str(request.path_params["name"])
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        svg = pool.submit(draw_figure, board, name, theme).result()
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
    from r2med.explore.pages.about import message_page

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
