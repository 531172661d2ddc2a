"""The figures of `r2med plot` as SVG under addresses of their own, drawn once per state of results.

A figure takes up to a second to draw, so that pages name it and never wait for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from r2med.errors import MissingError, UsageError, nearest
from r2med.explore.library import Kept, Library, Shelf
from r2med.explore.parameters import Parameters
from r2med.report.plots.theme import THEMES, Theme, check_libraries, find_theme, svg_of
from r2med.results.leaderboard import Leaderboard
from r2med.systems.registry import KINDS
from r2med.tasks.registry import suites

_KEPT = 64
_SHOWN = 40


class Plots:
    """Figures by name and parameters."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._drawn: Kept[str] = Kept(_KEPT)

    def svg(self, name: str, shelf: Shelf, values: Parameters) -> str:
        """A figure such as `means.svg`; the theme is light or dark."""
        figure = name.removesuffix(".svg")
        if figure not in FIGURES:
            raise MissingError(f"There is no figure {name[:60]!r}. {nearest(figure, FIGURES)}")
        check_libraries()
        suite = values.word("suite", [each.name for each in suites()])
        if suite is None:
            raise UsageError("the address of a figure names a suite.")
        metric, kind = values.metric(), values.word("kind", KINDS)
        theme = find_theme("dark" if values.word("theme", THEMES) == "dark" else "light")

        def draw() -> str:
            board = self._library.board(shelf, suite, metric=metric, kind=kind)
            if not any(row.mean is not None for row in board.rows):
                raise MissingError(f"No system of the {suite} suite has {metric} on all its tasks.")
            return svg_of(FIGURES[figure](board, theme), theme)

        return self._drawn.get((shelf.state, figure, suite, metric, kind, theme.name), draw)


def _means(board: Leaderboard, theme: Theme) -> Any:
    from r2med.report.plots.boards import means

    return means(board, theme, top=_SHOWN)


def _heatmap(board: Leaderboard, theme: Theme) -> Any:
    from r2med.report.plots.boards import heatmap

    return heatmap(board, theme, top=_SHOWN)


def _cost(board: Leaderboard, theme: Theme) -> Any:
    from r2med.report.plots.boards import cost

    return cost(board, theme)


def _dates(board: Leaderboard, theme: Theme) -> Any:
    from r2med.report.plots.boards import dates

    return dates(board, theme)


FIGURES: dict[str, Callable[[Leaderboard, Theme], Any]] = {
    "means": _means,
    "heatmap": _heatmap,
    "cost": _cost,
    "dates": _dates,
}
