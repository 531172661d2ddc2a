"""The leaderboard: who leads, by how much, who cannot be told apart; and its figures as SVG."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from r2med.errors import MissingError, nearest, need
from r2med.explore.guard import Parameters
from r2med.explore.library import Snapshot
from r2med.explore.render import Axis, Link, level, plural, points, render
from r2med.measure.metrics import HEADLINE
from r2med.report.table import listed
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard
from r2med.results.published import works
from r2med.results.standings import ORIGINS, Standing
from r2med.results.store import LOCAL
from r2med.systems.registry import KIND_TITLES, KINDS

FIGURES = ("means.svg", "heatmap.svg", "cost.svg", "dates.svg")
#: Rows of a figure.
_DRAWN = 40
#: Rows that are shown at first, and how many more may follow without asking.
_FIRST, _FEW = 50, 10
#: Pixels of one bracket, and systems that a sentence names.
_LETTER, _NAMED = 10, 3


@dataclass(frozen=True)
class View:
    """What of a leaderboard is shown, and in which order; every field is part of the address."""

    suite: str
    metric: str = "ndcg@10"
    kind: str | None = None
    family: str | None = None
    origin: str | None = None
    """published, later or measured; None is all."""
    source: str | None = None
    """The work that prints a figure."""
    clean: str | None = None
    """yes: tasks that overlap with declared training data are left out."""
    search: str | None = None
    sort: str = "mean"
    """mean, system, gain, or the name of a task."""
    order: str = "down"
    rows: str | None = None
    """all: every row is shown, however many."""

    @classmethod
    def of(cls, values: Parameters, snapshot: Snapshot) -> View:
        """What an address asks for; without a suite, that of the results at hand."""
        suite = values.word("suite", snapshot.suites) or snapshot.suite
        entries = snapshot.suites[suite].entries
        allowed: dict[str, Collection[str]] = {
            "kind": KINDS,
            "family": {entry.family for entry in entries},
            "origin": ORIGINS,
            "source": works(),
            "clean": ("yes",),
            "sort": ("mean", "system", "gain", *(entry.name for entry in entries)),
            "order": ("up", "down"),
            "rows": ("all",),
        }
        chosen = {name: word for name in allowed if (word := values.word(name, allowed[name]))}
        search = values.text("search", longest=200)
        return cls(suite, values.metric(), search=search, **chosen)

    @property
    def parts(self) -> dict[str, str | None]:
        """As the address says it, defaults left out."""
        values = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {name: None if value == plain else value for name, (value, plain) in values.items()}

    def board(self, snapshot: Snapshot) -> Leaderboard:
        """The leaderboard that this is a view of."""
        return snapshot.board(
            self.suite,
            metric=self.metric,
            kind=self.kind,
            family=self.family,
            without_flagged=self.clean is not None,
        )


Bracket = tuple[int, bool, bool, bool]
"""One letter's line in one row: where it stands, whether it goes on above and below, and whether
the row belongs to the group."""


def leaderboard_page(snapshot: Snapshot, view: View, link: Link) -> str:
    """The page of one view of a leaderboard."""
    board = view.board(snapshot)
    return render(
        "leaderboard.html",
        link,
        page="leaderboard",
        title=f"{board.suite.title} leaderboard, {board.metric}",
        headline=headline(board),
        **table_values(board, view),
        gain_titles=GAIN_TITLES,
        works={source.id: source.name for row in board.rows for source in row.sources},
        families=list(dict.fromkeys(task.family for task in board.suite.entries)),
        kinds=KIND_TITLES,
        metrics=sorted({*HEADLINE, view.metric}),
        snapshot=snapshot,
    )


def draw_figure(board: Leaderboard, name: str, theme: str) -> str:
    """One of the figures of `r2med plot` as SVG, on light or dark paper."""
    if name not in FIGURES:
        raise MissingError(f"There is no figure {name[:60]!r}. {nearest(name, FIGURES)}")
    from r2med.report.plots.theme import LIBRARIES, find_theme, picture

    need(*LIBRARIES, extra="plots")
    from r2med.report.plots import boards

    look = find_theme("dark" if theme == "dark" else "light")
    chart = boards.draw(board, name.removesuffix(".svg"), look, top=_DRAWN)
    return picture(chart, look).decode()


def table_values(board: Leaderboard, view: View) -> dict[str, Any]:
    """What the table of a view is drawn from, by the names that `board.html` uses."""
    matching = shown_board(board, view)
    few = view.rows or len(matching.rows) <= _FIRST + _FEW
    rows = matching.rows if few else replace(matching, top=_FIRST).shown
    highest = max((v for row in board.rows for v in row.values.values()), default=1.0)
    brackets = _brackets(rows) if view.sort == "mean" else []
    means = [row for row in board.rows if row.mean is not None]
    ends = [row.interval.high if row.interval else row.mean or 0.0 for row in means]
    return {
        "board": board,
        "view": view,
        "rows": [
            (
                row,
                [lines[place] for lines in brackets if place in lines],
                [level(row.values.get(task.name), highest) for task in board.tasks],
            )
            for place, row in enumerate(rows)
        ],
        "bracket_width": _LETTER * len(brackets),
        # To the next ten points above everything that is drawn.
        "axis": Axis(0.0, min(1.0, (int(10 * max(ends, default=0.1)) + 1) / 10)),
        "gains": any(row.gain is not None for row in board.rows),
        "measured": [row for row in board.rows if row.origin == "measured"],
        "mixed": len({row.origin for row in board.rows}) > 1,
        "hidden": len(board.rows) - len(matching.rows),
        "below": len(matching.rows) - len(rows),
    }


def headline(board: Leaderboard) -> str:
    """Who leads, how sure that is, and among how many."""
    ranked = [row for row in board.rows if row.mean is not None]
    if not ranked:
        return ""
    best = ranked[0]
    counts = {word: sum(row.origin == word for row in ranked) for word in ORIGINS}
    of = listed(f"{n} {word}" for word, n in counts.items() if n)
    title = {"demo": "the Demo suite", LOCAL: "your data"}.get(board.suite.name, board.suite.title)
    first = f"leads the {of} systems" if len(ranked) > 1 else f"is the only {of[2:]} system"
    text = f"{best.name} {first} on {title}, with {with_interval(best)}"
    if board.suite.name == LOCAL:
        text += f" over {plural(best.aggregates.queries or 0, 'query', 'queries')}"
    return f"{text}. {_level_with(best, ranked)}".strip()


def with_interval(row: Standing) -> str:
    """A row's mean in words."""
    sure = row.interval
    doubt = f" (95 % interval {points(sure.low)} to {points(sure.high)})" if sure else ""
    return f"{points(row.mean)}{doubt}"


def _level_with(best: Standing, ranked: Sequence[Standing]) -> str:
    """Who shares a letter with the first row, where tests were made."""
    lettered = [row for row in ranked if row.letters]
    if best.letters and len(lettered) > 1:
        others = [r for r in lettered if r is not best and set(r.letters) & set(best.letters)]
        if not others:
            return "The tests separate it from every other measured system."
        names = listed(row.name for row in others)
        if len(others) > _NAMED:
            names = f"{len(others)} of {len(lettered) - 1} measured systems"
        return f"The tests cannot tell it apart from {names}."
    first = next((row for row in ranked if row.origin == "measured"), None)
    if best.origin == "measured" or first is None:
        return ""
    behind = (best.mean or 0.0) - (first.mean or 0.0)
    measured = f"The best measured here is {first.name}, {points(first.mean)}"
    return f"{measured}: {points(behind)} points behind."


def shown_board(board: Leaderboard, view: View) -> Leaderboard:
    """The board with the rows that a view keeps, in its order; rows without a value come last."""
    words = (view.search or "").lower().split()
    kept = [
        row
        for row in board.rows
        if view.origin in (None, row.origin)
        and (view.source is None or view.source in {each.id for each in row.sources})
        and all(word in f"{row.name} {row.system}".lower() for word in words)
    ]
    down = view.order == "down"

    def place(row: Standing) -> tuple[bool, float]:
        value = {"mean": row.mean, "gain": row.gain, **row.values}.get(view.sort)
        return value is None, -(value or 0) if down else value or 0

    if view.sort == "system":
        kept.sort(key=lambda row: row.name.lower(), reverse=down)
    else:
        kept.sort(key=place)
    return replace(board, rows=tuple(kept))


def _brackets(rows: Sequence[Standing]) -> list[dict[int, Bracket]]:
    """For every letter the lines that join rows which could not be separated, by place."""
    brackets: list[dict[int, Bracket]] = []
    for letter in sorted({letter for row in rows for letter in row.letters}):
        places = [place for place, row in enumerate(rows) if letter in row.letters]
        if len(places) > 1:
            first, last = places[0], places[-1]
            x = _LETTER * len(brackets) + _LETTER // 2
            joined = range(first, last + 1)
            brackets.append({at: (x, at > first, at < last, at in places) for at in joined})
    return brackets
