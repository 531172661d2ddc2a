"""The chart of scores by the share of words that queries have in common with their positives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from r2med.errors import MissingError
from r2med.explore.library import Snapshot
from r2med.explore.pages.task import BASELINE
from r2med.explore.render import Link, points, render
from r2med.measure.intervals import Interval, mean_interval
from r2med.results.compare import query_scores
from r2med.results.leaderboard import Leaderboard

_GROUPS = 4
#: Fewest queries that are drawn in groups.
_FEWEST = 16
#: The chart in its own units.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 260, 40, 20, 12, 32
#: Between the points of two systems at one overlap, and between a point and its number.
_SHIFT, _LABEL = 4, 16


@dataclass(frozen=True)
class Group:
    """A group of queries with similar overlap: mean overlap and mean score of a system, 0 to 1."""

    overlap: float
    score: float
    interval: Interval


@dataclass(frozen=True)
class OverlapChart:
    """The scores of two systems on groups of queries, from fewest to most shared words."""

    names: tuple[str, str]
    queries: int
    tasks: int
    groups: tuple[Sequence[Group], Sequence[Group]]

    @property
    def sentence(self) -> str:
        """Describe both systems on the queries that share fewest and most words, with scores."""
        first, second = (groups[0].score for groups in self.groups)
        a, b = self.names
        low, high = (self.groups[0][index].overlap for index in (0, -1))
        best, baseline = (groups[-1].score for groups in self.groups)
        return (
            f"On the quarter of queries that share fewest words with their positives "
            f"({100 * low:.0f} % by weight), {a} scores {points(first, 0)} and {b} "
            f"{points(second, 0)}; on the quarter that shares most ({100 * high:.0f} %), "
            f"{points(best, 0)} and {points(baseline, 0)}."
        )

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the drawing."""
        return _WIDTH, _HEIGHT

    @property
    def frame(self) -> tuple[int, int, int, int]:
        """Left, right, top and bottom of the plot inside the drawing."""
        return _LEFT, _WIDTH - _RIGHT, _TOP, _HEIGHT - _BOTTOM

    @property
    def limits(self) -> tuple[float, float]:
        """The values of overlap at the left and right edge."""
        values = [group.overlap for groups in self.groups for group in groups]
        low, high = min(values), max(values)
        margin = max(0.02, 0.08 * (high - low))
        return max(0.0, low - margin), min(1.0, high + margin)

    def x(self, overlap: float) -> float:
        """Return the x coordinate of an overlap."""
        low, high = self.limits
        left, right, *_ = self.frame
        return round(left + (right - left) * (overlap - low) / (high - low), 1)

    def y(self, score: float) -> float:
        """Return the y coordinate of a score."""
        *_, top, bottom = self.frame
        return round(bottom - (bottom - top) * score, 1)

    def path(self, system: int) -> str:
        """Return the line through the groups of a system, as points of an SVG polyline."""
        return " ".join(
            f"{self.point_x(group, system)},{self.y(group.score)}" for group in self.groups[system]
        )

    def point_x(self, group: Group, system: int) -> float:
        """Return the x coordinate of a group, shifted aside from that of the other system."""
        return round(self.x(group.overlap) + (_SHIFT if system else -_SHIFT), 1)

    def end_labels(self, system: int) -> list[tuple[float, float, float]]:
        """Return x, y and score of the labels of a system's first and last group.

        The labels are placed so that they do not cover the other system.
        """
        labels = []
        for index in (0, -1):
            group, rival = self.groups[system][index], self.groups[1 - system][index]
            is_above = group.score > rival.score or (group.score == rival.score and system == 0)
            end = self.y(group.interval.high if is_above else group.interval.low)
            y = end - _LABEL / 2 if is_above else end + _LABEL
            labels.append((self.point_x(group, system), round(y, 1), group.score))
        return labels

    @property
    def x_ticks(self) -> list[tuple[float, int]]:
        """Ticks of the horizontal axis: x coordinates with percentages."""
        low, high = self.limits
        step = 5 if high - low < 0.35 else 10 if high - low < 0.7 else 20
        first = -(-int(100 * low) // step) * step
        return [(self.x(tick / 100), tick) for tick in range(first, int(100 * high) + 1, step)]

    @property
    def y_ticks(self) -> list[tuple[float, int]]:
        """Ticks of the vertical axis: y coordinates with scores."""
        return [(self.y(tick / 100), tick) for tick in (0, 25, 50, 75, 100)]


def chart_systems(board: Leaderboard, system: str | None = None) -> tuple[str, str] | None:
    """Choose two systems to draw; None if fewer than two are measured.

    The first is `system`, or the best measured one. The second is bm25, or the best of the others.
    """
    measured = [row.system for row in board.rows if row.origin == "measured" and row.results]
    if not measured:
        return None
    first = system if system in measured else measured[0]
    candidates = [candidate for candidate in measured if candidate != first]
    if not candidates:
        return None
    return first, BASELINE if BASELINE in candidates else candidates[0]


def overlap_chart(
    snapshot: Snapshot, board: Leaderboard, systems: tuple[str, str]
) -> OverlapChart | None:
    """Return the chart over the judged queries of all tasks with data here; None if too few."""
    values: list[tuple[float, float, float]] = []
    tasks = 0
    for task in board.tasks:
        stored = snapshot.of_task(task.name, board.metric)
        if not all(system in stored for system in systems):
            continue
        results = {system: stored[system] for system in systems}
        data, _ = snapshot.data_of(task.name, results)
        if data is None:
            continue
        tasks += 1
        overlaps = snapshot.library.overlaps(data)
        for query in query_scores(list(results.values()), board.metric):
            if query.query_id in overlaps:
                values.append((overlaps[query.query_id], query.scores[0], query.scores[1]))
    if len(values) < _FEWEST:
        return None
    table = np.array(sorted(values))
    groups: tuple[list[Group], list[Group]] = ([], [])
    for rows in np.array_split(table, _GROUPS):
        for system, group in enumerate(groups):
            scores = rows[:, 1 + system]
            group.append(
                Group(float(rows[:, 0].mean()), float(scores.mean()), mean_interval(scores))
            )
    first, second = (snapshot.names[system] for system in systems)
    return OverlapChart((first, second), len(values), tasks, groups)


def overlap_figure(
    snapshot: Snapshot, board: Leaderboard, link: Link, system: str | None = None
) -> Markup:
    """Return the chart as HTML to insert into a page; empty if there is nothing to draw."""
    systems = chart_systems(board, system)
    chart = overlap_chart(snapshot, board, systems) if systems else None
    if chart is None:
        return Markup("")
    return Markup(render("overlap_figure.html", link, chart=chart, board=board))


def overlap_page(
    snapshot: Snapshot, link: Link, *, suite: str, metric: str, system: str | None
) -> str:
    """Return the chart as a page, from which other pages load it."""
    board = snapshot.board(suite, metric=metric)
    figure = overlap_figure(snapshot, board, link, system)
    if not figure:
        raise MissingError(
            "The chart needs two measured systems on the same tasks, and the data of the tasks."
        )
    title = "Does it understand, or match words?"
    return render("overlap.html", link, page="leaderboard", title=title, figure=figure, board=board)
