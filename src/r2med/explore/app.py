"""The web application: which address shows which page.

Every handler reads what is there and renders a page; only `Try it` does work, and only by POST.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib.resources import files
from threading import Lock
from typing import cast
from urllib.parse import unquote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from r2med.engine.status import read_statuses
from r2med.errors import DamagedError, LimitError, MissingError, R2MedError, UsageError
from r2med.explore.guard import LOOPBACK, Guard
from r2med.explore.library import Kept, Library, Shelf, known_task
from r2med.explore.pages.about import about_page, running_page
from r2med.explore.pages.audits import audits_page
from r2med.explore.pages.compare import compare_data, compare_page
from r2med.explore.pages.document import document_data, document_page
from r2med.explore.pages.leaderboard import ORIGINS, View, leaderboard_page, shown_rows
from r2med.explore.pages.messages import message_page
from r2med.explore.pages.query import DEPTHS, query_data, query_page
from r2med.explore.pages.system import system_data, system_page
from r2med.explore.pages.task import task_data, task_page, tasks_page
from r2med.explore.pages.trial import LONGEST, choices, excerpts, trial_page
from r2med.explore.parameters import Parameters
from r2med.explore.plots import Plots
from r2med.explore.render import server_link
from r2med.measure.metrics import HEADLINE
from r2med.results.diagnosis.causes import TOP
from r2med.results.leaderboard import Leaderboard
from r2med.results.movement import ORDERS, Order
from r2med.results.overlap import stored_audits
from r2med.results.published import works
from r2med.retrieve.conditions import Conditions
from r2med.systems.build import System
from r2med.systems.registry import KINDS
from r2med.tasks.registry import find_suite, suites

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
#: Systems that stay ready for the next typed query.
_SYSTEMS = 4
#: Pages that are kept as long as the results stay as they are; each takes some 50 kB.
_PAGES = 400
_CHANGING = "no-store"
_THREADS = 4
_STATIC = ("explore.css", "explore.js", "icon.svg")


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
    explorer = Explorer(library, Plots(library), conditions or Conditions(), paid)
    return Starlette(
        routes=[
            Route("/", explorer.kept(explorer.leaderboard)),
            Route("/leaderboard", explorer.kept(explorer.leaderboard)),
            Route("/leaderboard.csv", explorer.kept(explorer.csv)),
            Route("/system", explorer.kept(explorer.system)),
            Route("/tasks", explorer.kept(explorer.tasks)),
            Route("/task/{rest:path}", explorer.kept(explorer.task)),
            Route("/compare", explorer.kept(explorer.compare)),
            Route("/try", _page(explorer.form)),
            Route("/try", explorer.tried, methods=["POST"]),
            Route("/running", _page(explorer.running)),
            Route("/audits", _page(explorer.audits)),
            Route("/about", explorer.kept(explorer.about)),
            Route("/plot/{name}", explorer.kept(explorer.plot)),
            Route("/static/{name}", _page(static)),
            Route("/{rest:path}", _page(nowhere)),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={Exception: broken},
        lifespan=_few_threads,
    )


@dataclass(frozen=True)
class _Made:
    """An answer that can be given again."""

    body: bytes
    headers: Mapping[str, str]

    @classmethod
    def of(cls, response: Response) -> _Made:
        return cls(response.body, dict(response.headers))

    def response(self) -> Response:
        return Response(self.body, headers=self.headers)


@dataclass(frozen=True)
class Explorer:
    """The handlers of all pages."""

    library: Library
    plots: Plots
    conditions: Conditions
    paid: bool
    systems: Kept[System] = field(default_factory=lambda: Kept(_SYSTEMS))
    trying: Lock = field(default_factory=Lock)
    pages: Kept[_Made] = field(default_factory=lambda: Kept(_PAGES))

    def kept(self, handler: Callable[[Request, Shelf], Response]) -> Callable[[Request], Response]:
        """A handler whose answer depends on its address and the stored results alone.

        It is made once for as long as the results stay as they are.
        """

        def answer(request: Request) -> Response:
            shelf = self.library.shelf()
            address = bytes(request.scope["raw_path"]), bytes(request.scope["query_string"])
            made = self.pages.get(
                (shelf.state, *address),
                lambda: _Made.of(handler(request, shelf)),
                worth=lambda page: _CHANGING not in page.headers.values(),
            )
            return made.response()

        return _page(answer)

    def leaderboard(self, request: Request, shelf: Shelf) -> Response:
        """The leaderboard of a suite; without one, of the results at hand."""
        view, board = self._board(shelf, Parameters(request.query_params))
        page = leaderboard_page(
            board,
            view,
            server_link,
            metrics=sorted({*HEADLINE, view.metric}),
            damaged=shelf.damaged,
            older=shelf.older,
            folder=str(self.library.folder),
        )
        return HTMLResponse(page)

    def csv(self, request: Request, shelf: Shelf) -> Response:
        """The rows that the leaderboard shows, as a file."""
        view, board = self._board(shelf, Parameters(request.query_params))
        seen = replace(board, rows=tuple(shown_rows(board, view)))
        name = f'attachment; filename="leaderboard-{view.suite}.csv"'
        return Response(seen.to_csv(), media_type="text/csv", headers={"Content-Disposition": name})

    def _board(self, shelf: Shelf, values: Parameters) -> tuple[View, Leaderboard]:
        view = leaderboard_view(values, shelf)
        board = self.library.board(
            shelf,
            view.suite,
            metric=view.metric,
            kind=view.kind,
            family=view.family,
            clean=view.clean,
        )
        return view, board

    def system(self, request: Request, shelf: Shelf) -> Response:
        """A system: its figures, settings and cost."""
        values = Parameters(request.query_params)
        suite = values.word("suite", [each.name for each in suites()]) or suite_at_hand(shelf)
        name = values.text("system")
        if name is None:
            raise UsageError("no system is named.")
        board = self.library.board(shelf, suite, metric=values.metric())
        return HTMLResponse(system_page(system_data(shelf, board, name), server_link))

    def tasks(self, request: Request, shelf: Shelf) -> Response:
        """All tasks, and what is known of each."""
        return HTMLResponse(tasks_page(self.library, shelf, server_link))

    def task(self, request: Request, shelf: Shelf) -> Response:
        """A task, one of its queries, or one of its documents."""
        name, part, item = _task_address(self.library, shelf, request)
        values = Parameters(request.query_params)
        systems, metric = values.texts("system"), values.metric()
        if part == "document":
            document = document_data(
                self.library,
                shelf,
                name,
                item,
                query_id=values.text("query"),
                system=systems[0] if systems else None,
            )
            return HTMLResponse(document_page(document, server_link))
        if part == "query":
            query = query_data(
                self.library,
                shelf,
                name,
                item,
                systems=systems,
                metric=metric,
                order=cast(Order, values.word("order", ORDERS, "difficulty")),
                depth=int(values.word("depth", DEPTHS, DEPTHS[0]) or TOP),
            )
            return HTMLResponse(query_page(query, server_link), headers=_keeping(query.missing))
        data = task_data(self.library, shelf, name, metric=metric, system=next(iter(systems), None))
        return HTMLResponse(task_page(data, server_link), headers=_keeping(data.missing))

    def compare(self, request: Request, shelf: Shelf) -> Response:
        """Systems on a task or a suite; `scope` names either."""
        values = Parameters(request.query_params)
        names = [each.name for each in suites()]
        scope = values.word("scope", [*names, *shelf.tasks])
        task = values.word("task", shelf.tasks) or (scope if scope not in names else None)
        suite = values.word("suite", names) or (scope if scope in names else None)
        data = compare_data(
            self.library,
            shelf,
            suite=suite or suite_at_hand(shelf),
            task=task,
            systems=values.texts("system"),
            metric=values.metric(),
        )
        return HTMLResponse(compare_page(data, server_link))

    def running(self, request: Request) -> Response:
        """Evaluations in this results folder."""
        statuses = read_statuses(self.library.folder)
        return HTMLResponse(running_page(statuses, str(self.library.folder), server_link))

    def audits(self, request: Request) -> Response:
        """Leakage audits in the results folder."""
        damaged: list[str] = []
        audits = stored_audits(self.library.folder, damaged.append)
        return HTMLResponse(audits_page(audits, damaged, server_link))

    def about(self, request: Request, shelf: Shelf) -> Response:
        """Versions, licences and labels."""
        return HTMLResponse(about_page(self.library, shelf, server_link))

    def form(self, request: Request) -> Response:
        """The empty form of `Try it`."""
        return HTMLResponse(trial_page(choices(self.library, self.library.shelf()), server_link))

    async def tried(self, request: Request) -> Response:
        """A typed query, run in a thread of its own."""
        form = await request.form(max_files=0, max_fields=10)
        return await run_in_threadpool(_page(lambda _: self._tried(Parameters(form))), request)

    def _tried(self, values: Parameters) -> Response:
        from r2med.engine.trial import try_query

        offered = choices(self.library, self.library.shelf())
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
                found = try_query(built, task, text, paid=self.paid)
        except R2MedError as problem:
            page = trial_page(choice, server_link, problem=str(problem))
            return HTMLResponse(page, _status(problem))
        marked = excerpts(found, self.library, task)
        return HTMLResponse(trial_page(choice, server_link, tried=found, task=task, marked=marked))

    def plot(self, request: Request, shelf: Shelf) -> Response:
        """A figure, drawn once for as long as the results stay as they are."""
        name = str(request.path_params["name"])
        svg = self.plots.svg(name, shelf, Parameters(request.query_params))
        return Response(svg, media_type="image/svg+xml")


def _keeping(missing: str) -> dict[str, str]:
    """Pages that lack data are made again, since it may be fetched meanwhile."""
    return {"Cache-Control": _CHANGING} if missing else {}


def leaderboard_view(values: Parameters, shelf: Shelf) -> View:
    """What of the leaderboard an address asks for."""
    suite = values.word("suite", [each.name for each in suites()]) or suite_at_hand(shelf)
    tasks = [entry.name for entry in find_suite(suite).entries]
    return View(
        suite=suite,
        metric=values.metric(),
        kind=values.word("kind", KINDS),
        family=values.word("family", {entry.family for entry in find_suite(suite).entries}),
        origin=values.word("origin", ORIGINS),
        source=values.word("source", works()),
        clean=values.word("clean", ("yes",)) is not None,
        search=values.text("search", longest=200),
        sort=values.word("sort", ("mean", "system", "gain", *tasks), "mean") or "mean",
        down=values.word("order", ("up", "down"), "down") == "down",
        whole=values.word("rows", ("all",)) is not None,
        chosen=values.texts("system"),
    )


def suite_at_hand(shelf: Shelf) -> str:
    """The suite of the newest result; R2MED where there is none."""
    return next((result.suite for result in shelf.results if result.suite), "full")


def _task_address(library: Library, shelf: Shelf, request: Request) -> tuple[str, str, str]:
    """The task, and the query or document of it, that a path names.

    Names may hold slashes. Those of an item are escaped, so that its name is the last segment.
    """
    raw = bytes(request.scope["raw_path"]).decode("ascii", "replace")
    rest = raw.partition("/task/")[2]
    name = unquote(rest)
    if known_task(library, shelf, name):
        return name, "", ""
    for part in ("query", "document"):
        head, found, item = rest.rpartition(f"/{part}/")
        if found and known_task(library, shelf, unquote(head)):
            return unquote(head), part, unquote(item)
    raise MissingError(f"There is no task {name[:100]!r}, and no result of one.")


def static(request: Request) -> Response:
    """A file of the package, by its name alone."""
    name = str(request.path_params["name"])
    if name not in _STATIC:
        raise MissingError(f"There is no file {name[:100]!r}.")
    content = (files("r2med.explore") / "static" / name).read_bytes()
    kind = next(kind for ending, kind in _TYPES.items() if name.endswith(ending))
    return Response(content, media_type=kind)


def nowhere(request: Request) -> Response:
    """No page has this address."""
    raise MissingError("There is no page at this address.")


@asynccontextmanager
async def _few_threads(app: Starlette) -> AsyncIterator[None]:
    """Pages are made by a few threads: more would only share the interpreter and hold memory."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    yield


def broken(request: Request, problem: Exception) -> Response:
    """A defect of the program: the page says so, and the terminal has the details."""
    text = "The program failed on this page; the terminal it was started in says where."
    return HTMLResponse(message_page(500, text, server_link), 500)


def _page(handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
    """A handler whose errors are pages that say what to do."""

    def answer(request: Request) -> Response:
        try:
            return handler(request)
        except R2MedError as problem:
            status = _status(problem)
            return HTMLResponse(message_page(status, str(problem), server_link), status)

    return answer


def _status(problem: R2MedError) -> int:
    if isinstance(problem, UsageError):
        return 400
    if isinstance(problem, LimitError):
        return 403
    return 404 if isinstance(problem, MissingError | DamagedError) else 422
