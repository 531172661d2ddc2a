"""The web application: which address shows which page.

Every handler reads stored files and renders a page. Only `Try it` runs systems, one query at a time
in a separate queue, so that a slow model never delays other pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING
from urllib.parse import unquote

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from r2med.errors import DamagedError, LimitError, MissingError, R2MedError, UsageError
from r2med.evaluation.status import read_statuses
from r2med.execution.resources import Resources
from r2med.explore.library import Cache, Library, Snapshot
from r2med.explore.pages.about import about_page, audits_page, message_page, running_page
from r2med.explore.pages.answers import answer_query_page, answer_set_page, answers_page
from r2med.explore.pages.compare import compare_page
from r2med.explore.pages.document import document_page
from r2med.explore.pages.leaderboard import (
    View,
    check_figure,
    draw_figure,
    leaderboard_page,
    shown_board,
)
from r2med.explore.pages.overlap import overlap_page
from r2med.explore.pages.query import DEPTHS, ORDERS, QueryData, query_page
from r2med.explore.pages.search import search_page
from r2med.explore.pages.system import system_page
from r2med.explore.pages.task import QUERY_SORTS, task_page, tasks_page
from r2med.explore.pages.trial import LONGEST, Outcome, choices, trial_page
from r2med.explore.pages.trial import MOST_SYSTEMS as MOST_TRIED
from r2med.explore.pages.trial import Request as TrialRequest
from r2med.explore.parameters import Parameters
from r2med.explore.render import STATIC, Link, link_below, static_file
from r2med.results.diagnosis.causes import CAUSES
from r2med.serve.guard import Access, Guard
from r2med.serve.listener import report_in_one_line
from r2med.systems.registry import KINDS

if TYPE_CHECKING:
    from r2med.systems.build import System

#: Systems that stay ready for the next typed query.
_READY_SYSTEMS = 4
#: Typed queries that may wait for the one that runs.
_MOST_WAITING = 8
#: Pages that are cached until a result changes; each takes some 50 kB.
_CACHED_PAGES = 250
#: Threads that make pages, and how many of them comparisons may take.
_THREADS, _COMPARING = 4, 2
#: Seconds in which the text of a form must arrive.
_FORM_SECONDS = 20
#: HTTP statuses of refusals; the first that matches counts.
_STATUSES = {
    UsageError: 400,
    LimitError: 403,
    MissingError: 404,
    DamagedError: 404,
    R2MedError: 422,
    Exception: 500,
}

Handler = Callable[[Request, Snapshot, Link], Response | str]


def create_app(
    library: Library,
    *,
    access: Access | None = None,
    resources: Resources | None = None,
    paid: bool = False,
    trial_systems: Sequence[str] = (),
) -> Starlette:
    """Create the web application that shows the results of a library.

    Queries that visitors type run under `resources`; models that cost money are used only if
    `paid`. Visitors can try the stored systems of registered stages, and `trial_systems`. The
    latter may be custom models, because the user names them when the server starts.
    """
    access = access or Access()
    link = library.label(link_below(access.root_path))
    trials = _Trials(library, resources or Resources(), paid, trial_systems, link)
    pages: Cache[Response] = Cache(_CACHED_PAGES)
    drawing, comparing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(_COMPARING)

    def cache_page(handler: Handler) -> Callable[[Request], Response]:
        """Return a handler that caches the page for each address and state of the results."""

        def answer(request: Request) -> Response:
            snapshot = library.snapshot()

            def make() -> Response:
                page = handler(request, snapshot, link)
                return HTMLResponse(page) if isinstance(page, str) else page

            address = request.scope["raw_path"], request.scope["query_string"]
            return pages.get((snapshot.state, *address), make)

        return answer

    def limit_threads(handler: Handler, limiter: anyio.CapacityLimiter) -> Callable[..., object]:
        """Return a caching handler for slow pages, which run on the threads of `limiter`."""

        async def answer(request: Request) -> Response:
            return await anyio.to_thread.run_sync(cache_page(handler), request, limiter=limiter)

        return answer

    def running(request: Request) -> Response:
        folder = library.folder
        return HTMLResponse(running_page(read_statuses(folder), library.snapshot(), link))

    def refuse(request: Request, problem: Exception) -> Response:
        return HTMLResponse(message_page(_status(problem), str(problem), link), _status(problem))

    return Starlette(
        routes=[
            Route("/", cache_page(leaderboard)),
            Route("/leaderboard", cache_page(leaderboard)),
            Route("/leaderboard.csv", cache_page(leaderboard)),
            Route("/system", cache_page(system)),
            Route("/tasks", cache_page(lambda _, snapshot, link: tasks_page(snapshot, link))),
            Route("/task/{rest:path}", cache_page(task)),
            Route("/compare", limit_threads(compare, comparing)),
            Route("/answers", limit_threads(answers, comparing)),
            Route("/overlap", limit_threads(overlap, comparing)),
            Route("/search", limit_threads(search, comparing)),
            Route("/audits", cache_page(audits)),
            Route("/about", cache_page(lambda _, snapshot, link: about_page(snapshot, link))),
            Route("/plot/{name}", limit_threads(plot, drawing)),
            Route("/try", trials.form),
            Route("/try", trials.answer, methods=["POST"]),
            Route("/running", running),
            Route("/static/{name}", static),
            Route("/{rest:path}", nowhere),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={R2MedError: refuse},
        lifespan=_lifespan,
    )


class _Trials:
    """Runs typed queries, one at a time, on systems that stay ready for the next one."""

    def __init__(
        self,
        library: Library,
        resources: Resources,
        paid: bool,
        systems: Sequence[str],
        link: Link,
    ) -> None:
        self._library = library
        self._resources = resources
        self._paid = paid
        self._systems = systems
        self._link = link
        self._ready: Cache[System] = Cache(_READY_SYSTEMS)
        self._running = anyio.CapacityLimiter(1)
        self._waiting = 0

    async def form(self, request: Request) -> Response:
        """Show the form, and the rankings of a query in the address unless they ask a model."""
        values = Parameters(request.query_params)
        if values.text("text", longest=LONGEST) is None:
            return HTMLResponse(trial_page(self._library.snapshot(), self._link, self._systems))
        return await self._queue(partial(self._run, values, ask_models=False))

    async def answer(self, request: Request) -> Response:
        """Answer a form that was sent by POST; only this may ask language models."""
        try:
            with anyio.fail_after(_FORM_SECONDS):
                form = await request.form(max_files=0, max_fields=10)
        except TimeoutError:
            raise UsageError("The form did not arrive in time. Send it again.") from None
        return await self._queue(partial(self._run, Parameters(form), ask_models=True))

    async def _queue(self, run: Callable[[], Response]) -> Response:
        """Run a query after all earlier ones have ended, and return the page with its outcome."""
        if self._waiting >= _MOST_WAITING:
            raise LimitError(
                f"{self._waiting} queries are waiting for a system already. Try again later."
            )
        self._waiting += 1
        try:
            return await anyio.to_thread.run_sync(run, limiter=self._running)
        finally:
            self._waiting -= 1

    def _run(self, values: Parameters, *, ask_models: bool) -> Response:
        from r2med.evaluation.trial import AsksModelError, try_query
        from r2med.systems.build import System

        snapshot = self._library.snapshot()
        systems, tasks = choices(snapshot, self._systems)
        chosen = values.words("system", systems, most=MOST_TRIED) or (systems[0],)
        name = values.word("task", tasks)
        text = values.text("text", longest=LONGEST) or ""
        if name is None:
            raise UsageError("No task is chosen.")
        trial_request = TrialRequest(text, name, chosen)
        page = partial(trial_page, snapshot, self._link, self._systems, trial_request)
        trials = {}
        try:
            task = self._library.task(name)
            for system in chosen:
                resources = self._resources
                built = self._ready.get(system, partial(System.from_spec, system, resources))
                trials[system] = try_query(
                    built, task, text, paid=self._paid, ask_models=ask_models
                )
        except AsksModelError as problem:
            outcome = Outcome(problem=f"{problem} Press the button to ask it.", needs_form=True)
            return HTMLResponse(page(outcome))
        except R2MedError as problem:
            return HTMLResponse(page(Outcome(problem=str(problem))), _status(problem))
        return HTMLResponse(page(Outcome(trials)))


def leaderboard(request: Request, snapshot: Snapshot, link: Link) -> Response | str:
    """Show a leaderboard as a page or as CSV; without `suite`, that of a suite with results."""
    view = View.of(Parameters(request.query_params), snapshot)
    if not request.url.path.endswith(".csv"):
        return leaderboard_page(snapshot, view, link)
    headers = {"Content-Disposition": f'attachment; filename="leaderboard-{view.suite}.csv"'}
    table = shown_board(view.board(snapshot), view).to_csv()
    return Response(table, media_type="text/csv", headers=headers)


def system(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show the page of a system: its scores, settings and costs."""
    values = Parameters(request.query_params)
    suite = values.word("suite", snapshot.suites) or snapshot.suite
    name = values.text("system")
    if name is None:
        raise UsageError("No system is named.")
    spec = snapshot.find_system(name)
    return system_page(snapshot, link, spec, suite=suite, metric=values.metric())


def audits(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show the leakage audits of the results folder."""
    return audits_page(snapshot.audits, snapshot.damaged_audits, link)


def task(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show a task, or one of its queries or documents."""
    name, part, item = _task_address(snapshot, request)
    values = Parameters(request.query_params)
    systems, metric = _find_systems(values, snapshot), values.metric()
    first = next(iter(systems), None)
    if part == "document":
        query = values.text("query")
        return document_page(snapshot, link, name, item, query_id=query, system=first)
    if part == "query":
        data = QueryData.read(
            snapshot,
            name,
            item,
            systems=systems,
            metric=metric,
            order=values.word("order", ORDERS) or "difficulty",
            depth=int(values.word("depth", DEPTHS) or DEPTHS[0]),
        )
        scope = values.word("scope", [*snapshot.suites, *snapshot.tasks])
        return query_page(data, link, scope=scope)
    return task_page(
        snapshot,
        link,
        name,
        metric=metric,
        system=first,
        sort=values.word("sort", QUERY_SORTS) or "hardest",
        cause=values.word("cause", CAUSES),
        find=values.text("find", longest=200),
    )


def _find_systems(values: Parameters, snapshot: Snapshot) -> tuple[str, ...]:
    """Return the specs of the systems in an address, which may contain labels instead."""
    return tuple(dict.fromkeys(map(snapshot.find_system, values.texts("system"))))


def compare(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Compare systems on the task or suite that the parameter `scope`, `task` or `suite` names."""
    values, allowed = Parameters(request.query_params), [*snapshot.suites, *snapshot.tasks]
    scopes = [values.word(name, allowed) for name in ("scope", "task", "suite")]
    return compare_page(
        snapshot,
        link,
        scope=next(filter(None, scopes), snapshot.suite),
        systems=_find_systems(values, snapshot),
        metric=values.metric(),
    )


def answers(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show the list of answer sets, one answer set, or one query of an answer set."""
    values = Parameters(request.query_params)
    task, name, query_id = values.text("task"), values.text("set"), values.text("query")
    if task is None or name is None:
        return answers_page(snapshot, link)
    if query_id is None:
        return answer_set_page(snapshot, link, task, name)
    return answer_query_page(snapshot, link, task, name, query_id, values.text("system"))


def overlap(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show a chart of scores by the share of words that queries have in common with positives."""
    values = Parameters(request.query_params)
    return overlap_page(
        snapshot,
        link,
        suite=values.word("suite", snapshot.suites) or snapshot.suite,
        metric=values.metric(),
        system=values.text("system"),
    )


def search(request: Request, snapshot: Snapshot, link: Link) -> str:
    """Show the systems, tasks, queries and documents that contain the words of a search."""
    words = Parameters(request.query_params).text("q", longest=200) or ""
    return search_page(snapshot, link, words)


def plot(request: Request, snapshot: Snapshot, link: Link) -> Response:
    """Return a figure as SVG; drawing takes seconds, so pages link to figures.

    A separate process draws it, because the plotting libraries would keep 100 MB of memory in the
    server.
    """
    values = Parameters(request.query_params)
    name = check_figure(str(request.path_params["name"]))
    suite = values.word("suite", snapshot.suites)
    if suite is None:
        raise UsageError("The address of a figure needs a suite.")
    theme = values.word("theme", ("light", "dark")) or "light"
    board = snapshot.board(suite, metric=values.metric(), kind=values.word("kind", KINDS))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        svg = pool.submit(draw_figure, board, name, theme).result()
    return Response(svg, media_type="image/svg+xml")


def static(request: Request) -> Response:
    """Return a style sheet, script or image of the package, by file name."""
    name = str(request.path_params["name"])
    if name not in STATIC:
        raise MissingError(f"No file is named {name[:100]!r}.")
    return Response(static_file(name), media_type=STATIC[name])


def nowhere(request: Request) -> Response:
    """Answer every unknown address with an error page."""
    raise MissingError("No page has this address.")


def _status(problem: Exception) -> int:
    return next(status for error, status in _STATUSES.items() if isinstance(problem, error))


def _task_address(snapshot: Snapshot, request: Request) -> tuple[str, str, str]:
    """Return the task, the type of item (query, document or empty), and the id in a path.

    Names of tasks may contain slashes. In ids slashes are escaped, so an id is always the last
    segment of the path.
    """

    def has_task(name: str) -> bool:
        return name in snapshot.tasks or snapshot.library.knows(name)

    raw = bytes(request.scope["raw_path"]).decode("ascii", "replace")
    path = raw.partition("/task/")[2]
    name = unquote(path)
    if has_task(name):
        return name, "", ""
    for part in ("query", "document"):
        head, separator, item = path.rpartition(f"/{part}/")
        if separator and has_task(unquote(head)):
            return unquote(head), part, unquote(item)
    raise MissingError(f"No task is named {name[:100]!r}, and no result has a task of this name.")


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    """Limit the threads that make pages: more would only compete for the interpreter and memory."""
    anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
    report_in_one_line(asyncio.get_running_loop())
    yield
