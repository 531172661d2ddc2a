"""The leaderboard: who leads, by how much, and who cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from r2med.explore.library import Damaged
from r2med.explore.render import Link, level, plural, points, render
from r2med.report.table import task_label
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard
from r2med.results.standings import Standing
from r2med.systems.registry import KIND_TITLES
from r2med.tasks.registry import suites

#: Whose figures a row has: the benchmark's own, those of later works, or stored here.
ORIGINS = ("published", "later", "measured")
#: Pixels of the axis that all means share.
AXIS = 180
#: Rows that are shown at first, and how many more may follow without asking.
_FIRST, _FEW = 50, 10
_EDGE = 6
_LETTER = 10


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
    clean: bool = False
    """Whether tasks that overlap with declared training data are left out."""
    search: str | None = None
    sort: str = "mean"
    """mean, system, gain, or the name of a task."""
    down: bool = True
    whole: bool = False
    """Whether all rows are shown, however many."""
    chosen: tuple[str, ...] = field(default=())
    """Systems picked for a comparison."""

    @property
    def parts(self) -> dict[str, str | None]:
        """As the address says it, defaults left out."""
        return {
            "suite": self.suite,
            "metric": self.metric if self.metric != "ndcg@10" else None,
            "kind": self.kind,
            "family": self.family,
            "origin": self.origin,
            "source": self.source,
            "clean": "yes" if self.clean else None,
            "search": self.search,
            "sort": self.sort if self.sort != "mean" else None,
            "order": None if self.down else "up",
            "rows": "all" if self.whole else None,
        }


@dataclass(frozen=True)
class Dot:
    """A mean and its interval on the common axis, in pixels."""

    at: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Bracket:
    """One letter's line in one row: where it stands, and whether the row belongs to the group."""

    x: int
    top: bool
    bottom: bool
    member: bool


@dataclass(frozen=True)
class Row:
    """A system as the table draws it."""

    standing: Standing
    dot: Dot | None
    brackets: tuple[Bracket, ...]
    shades: tuple[int, ...]


def leaderboard_page(
    board: Leaderboard,
    view: View,
    link: Link,
    *,
    metrics: Sequence[str],
    damaged: Sequence[Damaged] = (),
    older: int = 0,
    folder: str = "",
) -> str:
    """The page of one view of a leaderboard."""
    return render(
        "leaderboard.html",
        link,
        page="leaderboard",
        title=f"{board.suite.title} leaderboard, {board.metric}",
        headline=headline(board),
        **table_of(board, view),
        gain_titles=GAIN_TITLES,
        works=_works(board),
        suites=suites(),
        families=list(dict.fromkeys(task.family for task in board.suite.entries)),
        kinds=KIND_TITLES,
        metrics=metrics,
        damaged=damaged,
        older=older,
        folder=folder,
        task_label=task_label,
    )


def table_of(board: Leaderboard, view: View) -> dict[str, Any]:
    """What the table of a view is drawn from, by the names that `board.html` uses."""
    found = shown_rows(board, view)
    rows = found if view.whole else first_rows(found)
    measured = [row for row in board.rows if row.origin == "measured"]
    most = _most(board.rows)
    highest = max((v for row in board.rows for v in row.values.values()), default=1.0)
    letters = _letters(rows)
    return {
        "board": board,
        "view": view,
        "rows": [_row(row, board, most, highest) for row in _with_brackets(rows, view)],
        "letters": letters if view.sort == "mean" else [],
        "bracket_width": _LETTER * len(letters),
        "ticks": _ticks(most),
        "axis": AXIS,
        "measured": measured,
        "mixed": len({row.origin for row in board.rows}) > 1,
        "hidden": len(board.rows) - len(found),
        "below": len(found) - len(rows),
    }


def _works(board: Leaderboard) -> dict[str, str]:
    """The works that print figures of this board, by their ids."""
    return {source.work: source.name for row in board.rows for source in row.sources}


def headline(board: Leaderboard) -> str:
    """Who leads, how sure that is, and among how many."""
    ranked = [row for row in board.rows if row.mean is not None]
    if not ranked:
        return ""
    best = ranked[0]
    interval = best.interval
    sure = f" (95 % interval {points(interval.low)} to {points(interval.high)})" if interval else ""
    counts = {word: sum(row.origin == word for row in ranked) for word in ORIGINS}
    *firsts, last = [plural(n, f"{word} system") for word, n in counts.items() if n]
    of = f"{', '.join(firsts)} and {last}" if firsts else last
    text = f"{best.name} leads {of} in {_the(board.suite.title)} with {points(best.mean)}{sure}."
    return f"{text} {_level_with(best, ranked)}".strip()


def _the(title: str) -> str:
    return f"the {title}" if title.startswith("Demo") else title


def _level_with(best: Standing, ranked: Sequence[Standing]) -> str:
    """Who shares a letter with the first row, where tests were made."""
    lettered = [row for row in ranked if row.letters]
    if best.letters and len(lettered) > 1:
        others = [r for r in lettered if r is not best and set(r.letters) & set(best.letters)]
        if not others:
            return "The tests separate it from every other measured system."
        return (
            f"{plural(len(others), 'measured system')} of {len(lettered) - 1} cannot be told "
            "apart from it."
        )
    if best.origin != "measured":
        first = next((row for row in ranked if row.origin == "measured"), None)
        if first is not None and first.mean is not None and best.mean is not None:
            return (
                f"The best measured here is {first.name}, {points(first.mean)}: "
                f"{points(best.mean - first.mean)} points behind."
            )
    return ""


def first_rows(rows: Sequence[Standing]) -> list[Standing]:
    """The first rows, and those measured here wherever they stand."""
    rest = [row for row in rows[_FIRST:] if row.origin == "measured"]
    return [*rows[:_FIRST], *rest] if len(rows) > _FIRST + _FEW else list(rows)


def shown_rows(board: Leaderboard, view: View) -> list[Standing]:
    """The rows that a view keeps, in its order; rows without a value come last."""
    words = (view.search or "").lower().split()
    kept = [
        row
        for row in board.rows
        if view.origin in (None, row.origin)
        and (view.source is None or view.source in {each.work for each in row.sources})
        and all(word in f"{row.name} {row.system}".lower() for word in words)
    ]
    if view.sort == "system":
        return sorted(kept, key=lambda row: row.name.lower(), reverse=view.down)

    def value(row: Standing) -> float | None:
        if view.sort == "mean":
            return row.mean
        return row.gain if view.sort == "gain" else row.values.get(view.sort)

    sign = -1 if view.down else 1
    return sorted(kept, key=lambda row: (value(row) is None, sign * (value(row) or 0)))


def _row(
    placed: tuple[Standing, tuple[Bracket, ...]], board: Leaderboard, most: float, highest: float
) -> Row:
    standing, brackets = placed
    dot = None
    if standing.mean is not None:
        interval = standing.interval
        dot = Dot(
            _at(standing.mean, most),
            _at(interval.low, most) if interval else None,
            _at(interval.high, most) if interval else None,
        )
    shades = tuple(level(standing.values.get(task.name), highest) for task in board.tasks)
    return Row(standing, dot, brackets, shades)


def _most(rows: Sequence[Standing]) -> float:
    """The right end of the axis: the next ten points above everything that is drawn."""
    ends = [row.interval.high if row.interval else row.mean for row in rows if row.mean is not None]
    return min(1.0, (int(10 * max(ends, default=0.1)) + 1) / 10)


def _at(value: float, most: float) -> float:
    return round(_EDGE + (AXIS - 2 * _EDGE) * value / most, 1)


def _ticks(most: float) -> list[tuple[float, int]]:
    step = 0.1 if most <= 0.5 else 0.2
    count = int(round(most / step, 6)) + 1
    return [(_at(step * place, most), round(100 * step * place)) for place in range(count)]


def _letters(rows: Sequence[Standing]) -> list[str]:
    return sorted({letter for row in rows for letter in row.letters})


def _with_brackets(
    rows: Sequence[Standing], view: View
) -> list[tuple[Standing, tuple[Bracket, ...]]]:
    """Rows with the lines that join those which could not be separated, in the order of ranks."""
    if view.sort != "mean":
        return [(row, ()) for row in rows]
    spans: dict[str, tuple[int, int]] = {}
    for letter in _letters(rows):
        places = [place for place, row in enumerate(rows) if letter in row.letters]
        spans[letter] = (places[0], places[-1])
    found: list[tuple[Standing, tuple[Bracket, ...]]] = []
    for place, row in enumerate(rows):
        lines = [
            Bracket(
                _LETTER * number + _LETTER // 2, place > first, place < last, name in row.letters
            )
            for number, (name, (first, last)) in enumerate(spans.items())
            if first <= place <= last
        ]
        found.append((row, tuple(lines)))
    return found
