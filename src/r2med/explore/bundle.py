"""The explorer as static files: pages with relative links, for any web server or to open from disk.

The number of pages grows with the queries, not with the corpus. Each query has a page with the
first lines of every listed document, where more can be unfolded, and a page with the full texts of
its positives. All pages are determined before the first one is written, so that links to missing
pages are left out. File names depend only on ids: an address stays the same when the site is
written again.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path

from r2med.errors import MissingError, UsageError
from r2med.execution.resources import Warn, log_warning
from r2med.explore.library import Library, Snapshot
from r2med.explore.pages.about import about_page
from r2med.explore.pages.compare import compare_page
from r2med.explore.pages.document import positives_page
from r2med.explore.pages.leaderboard import View, draw_figure, leaderboard_page
from r2med.explore.pages.query import MOST_SYSTEMS, QueryData, query_page
from r2med.explore.pages.task import task_page, tasks_page
from r2med.explore.render import STATIC, Link, Part, anchor, static_file
from r2med.explore.sharing import hide_folders
from r2med.paths import slug
from r2med.results.compare import query_scores
from r2med.results.record import Result
from r2med.results.store import LOCAL
from r2med.storage import atomic_folder
from r2med.tasks.registry import registered_task

METRIC = "ndcg@10"
#: Systems side by side on the page of a query, where more are stored than fit on it.
_QUERY_SYSTEMS = 3
#: Systems of a suite of which every pair is compared.
_COMPARED = 6
_MARKER = "r2med-bundle.json"
#: Everything at the top of a bundle; a folder that holds more is never replaced.
_TOP = {"index.html", "tasks.html", "about.html", "leaderboard", "task", "compare", "plot"}
_TOP |= {"static", _MARKER}

Key = tuple[str, ...]
"""What identifies a page: its type, then the names and ids that it is about."""


def write_bundle(
    folder: str | Path, library: Library, *, texts: bool = True, tell: Warn = log_warning
) -> tuple[int, int]:
    """Write the pages of all stored results into a new or empty folder, or over an earlier bundle.

    Without `texts`, the pages contain no text of a query or document and no generated text, only
    ids, ranks, scores and figures. An earlier bundle is replaced only after all pages are written.
    Returns the number of pages and the total size in bytes.
    """
    _check_folder(target := Path(folder))
    snapshot = library.snapshot()
    if not snapshot.results:
        raise MissingError(
            f"{library.folder} holds no result to show.\n"
            "Make one first: r2med eval bm25 --task demo"
        )
    for result_folder, problem in snapshot.damaged.items():
        tell(f"{result_folder}: left out. {problem}")
    with atomic_folder(target) as draft:
        shared = tuple(hide_folders(snapshot.results))
        public_snapshot = replace(snapshot, results=shared, damaged={}, texts=texts, public=True)
        site = _Site(draft, public_snapshot, tell)
        site.write()
        size = sum(file.stat().st_size for file in draft.rglob("*") if file.is_file())
    return site.written, size


def _check_folder(folder: Path) -> None:
    """Raise UsageError unless the folder is new, empty, or contains only an earlier bundle."""
    if folder.is_file():
        raise UsageError(f"--bundle {folder}: this is a file, expected a folder.")
    held = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    foreign = held - _TOP if _MARKER in held else held
    if foreign:
        raise UsageError(
            f"--bundle {folder}: the folder holds {min(foreign)}, so it is not replaced.\n"
            "Name a new or empty folder, or one that holds an earlier bundle and nothing else."
        )


@dataclass(eq=False)
class _Site:
    """Writes the pages of one snapshot into a folder."""

    folder: Path
    snapshot: Snapshot
    tell: Warn
    written: int = 0
    pages: dict[Key, Callable[[Link], str]] = field(default_factory=dict)
    documents: set[Key] = field(default_factory=set)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        stored_suites = {snapshot.suite_of(name) for name in snapshot.tasks}
        more_suites = [suite for suite in snapshot.suites if suite in stored_suites]
        more_suites += ["full"] if stored_suites == {LOCAL} else []
        self.suites = list(dict.fromkeys([snapshot.suite, *more_suites]))
        self.results = {name: snapshot.of_task(name) for name in snapshot.tasks}
        self.compared = {scope: stored for scope, stored in self._comparisons() if len(stored) > 1}
        for suite in self.suites:
            page = partial(leaderboard_page, snapshot, View(suite, METRIC, rows="all"), inline=True)
            self.pages[("leaderboard", suite)] = page
            self.pages.setdefault(("leaderboard",), page)
        for name, stored in self.results.items():
            page = partial(task_page, snapshot, name=name, metric=METRIC)
            self.pages["task", name] = page
            for system in stored:
                self.pages["task", name, system] = partial(page, system=system)
            side_by_side = list(stored)[
                : len(stored) if len(stored) <= MOST_SYSTEMS else _QUERY_SYSTEMS
            ]
            side_results = [stored[system] for system in side_by_side]
            judged = [query.query_id for query in query_scores(side_results, METRIC)]
            for query_id in [*judged, *snapshot.unjudged_queries(side_results)]:
                make = partial(self._query, name, query_id, side_by_side)
                self.pages["query", name, query_id] = make
        for scope, systems in self.compared.items():
            page = partial(compare_page, snapshot, scope=scope, metric=METRIC)
            grid = [systems] if len(systems) > 2 else []
            for chosen in [*grid, *combinations(systems, 2)]:
                self.pages[("compare", scope, *chosen)] = partial(page, systems=chosen)
        self.pages[("tasks",)] = partial(tasks_page, snapshot)
        self.pages[("about",)] = partial(about_page, snapshot)

    def write(self) -> None:
        """Write every page, and the style sheets, scripts and images that pages load."""
        for name in STATIC:
            self._write(f"static/{name}", static_file(name))
        for name, stored in self.results.items():
            if missing := replace(self.snapshot, texts=True, public=False).data_of(name, stored)[1]:
                self.tell(f"{name}: its texts and judgements are left out. {missing}")
        for key, make in self.pages.items():
            self._page(key, make(self._link(key)))
        self._write(_MARKER, json.dumps({"pages": self.written}).encode())

    def _query(self, name: str, query_id: str, systems: Sequence[str], link: Link) -> str:
        """Return the page of a query, and write the page of its positives."""
        data = QueryData.read(self.snapshot, name, query_id, systems=systems)
        lexicon = data.scene.lexicon if data.scene else None
        held = [
            positive_id
            for positive_id, _ in data.positives
            if lexicon and lexicon.row(positive_id) is not None
        ]
        if held:
            key = ("document", name, query_id)
            self.documents |= {(*key, positive_id) for positive_id in held}
            page = positives_page(self.snapshot, self._link(key), name, query_id, held)
            self._page(key, page)
        return query_page(data, link)

    def _comparisons(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the name of every suite and local task, with the best systems to compare on it."""
        of_suite = self.snapshot.suite_of
        for suite in self.suites:
            rows = self.snapshot.board(suite, metric=METRIC).rows
            tasks = [stored for name, stored in self.results.items() if of_suite(name) == suite]
            measured = [row.system for row in rows if row.origin == "measured"]
            yield suite, _comparable(measured, tasks)
        for name, results in self.results.items():
            if registered_task(name) is None:
                yield name, _comparable(list(results), [results])

    def _link(self, page: Key) -> Link:
        """Return a function that makes links relative to a page; None for pages not written."""
        page_folder = posixpath.dirname(_path(page))

        def link(page: str, **parts: Part) -> str | None:
            target = self._target(page, {name: value for name, value in parts.items() if value})
            return posixpath.relpath(target, page_folder or ".") if target else None

        return self.snapshot.library.label(link)

    def _target(self, page: str, parts: dict[str, str | Sequence[str]]) -> str | None:
        """Return the bundle's file for a page of the server; None if the bundle lacks it."""
        if page == "static":
            return f"static/{parts['name']}"
        if page == "plot":
            return self._figure(*(str(parts.get(part)) for part in ("name", "suite", "theme")))
        if parts.keys() & {"depth", "sort", "cause", "find"} or (
            page == "leaderboard" and parts.keys() - {"suite"}
        ):
            return None
        order = {"query": ("task", "query"), "document": ("task", "query", "document")}
        names = order.get(page, ("suite", "task", "system"))
        key: Key = (page, *(str(parts[name]) for name in names if name in parts))
        if page == "compare":
            scope = str(parts.get("scope"))
            systems = parts.get("system") or self.compared.get(scope, ())
            key = (page, scope, *systems)
            key = key if key in self.pages else (page, scope, *reversed(systems))
        if key in self.documents:
            return f"{_path(key[:-1])}#{anchor(key[-1])}"
        return _path(key) if key in self.pages else None

    def _figure(self, name: str, suite: str, theme: str) -> str | None:
        """Return the file of a figure, drawn at the first request; None if it cannot be drawn."""
        path = f"plot/{suite}-{theme}-{name}"
        if not (self.folder / path).exists():
            board = self.snapshot.board(suite, metric=METRIC)
            try:
                self._write(path, draw_figure(board, name, theme).encode())
            except MissingError:
                return None
        return path

    def _page(self, key: Key, html: str) -> None:
        self._write(_path(key), html.encode())
        self.written += 1

    def _write(self, path: str, content: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _path(key: Key) -> str:
    """Return the path of a page: readable, unique, and valid on every file system."""
    page_type, *names = key
    if page_type == "leaderboard":
        return f"leaderboard/{names[0]}.html" if names else "index.html"
    if not names:
        return f"{page_type}.html"
    first, *parts = names
    if page_type == "compare":
        return f"compare/{_safe(first)}/{_safe(*sorted(parts))}.html"
    if not parts:
        return f"task/{_safe(first)}.html"
    return (
        f"task/{_safe(first)}/{'system' if page_type == 'task' else page_type}/{_safe(*parts)}.html"
    )


def _safe(*names: str) -> str:
    digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
    return f"{slug('-'.join(names))[:40]}-{digest}"


def _comparable(systems: Sequence[str], tasks: Sequence[Mapping[str, Result]]) -> tuple[str, ...]:
    """Choose the best systems that all have results on one task, so that any two can be compared.

    A system that is stored under two specs is chosen once. `systems` are ordered from best to
    worst.
    """
    chosen: list[str] = []
    for system in systems:
        used_keys = {
            stored[other_system].record.key
            for stored in tasks
            for other_system in chosen
            if other_system in stored
        }
        is_repeated = any(
            stored[system].record.key in used_keys for stored in tasks if system in stored
        )
        if not is_repeated and any({*chosen, system} <= set(stored) for stored in tasks):
            chosen.append(system)
    return tuple(chosen[:_COMPARED])
