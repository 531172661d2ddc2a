"""What the plots of many systems share: rows of a leaderboard, named so that origins show."""

from __future__ import annotations

from collections.abc import Sequence

from r2med.report.standing import Leaderboard, Standing

ORIGINS = {"published": "published figures", "measured": "measured here"}
_MARKS = 2


def ranked_rows(board: Leaderboard, top: int | None) -> list[Standing]:
    """Rows that have a mean, best first."""
    return [row for row in board.rows if row.mean is not None][:top]


def labels(rows: Sequence[Standing]) -> dict[tuple[str, str], str]:
    """A label a row, by system and origin; a star where a mark below the title qualifies it."""
    mixed = len({row.origin for row in rows}) > 1
    return {
        (row.system, row.origin): row.system
        + (" (here)" if mixed and row.origin == "measured" else "")
        + (" *" if row.marks else "")
        for row in rows
    }


def subtitle(board: Leaderboard, rows: Sequence[Standing], *more: str) -> list[str]:
    """What every such plot must say: which mean, whose figures, and what qualifies some."""
    origins = {row.origin for row in rows}
    whose = " and ".join(ORIGINS[origin] for origin in sorted(origins, reverse=True))
    lines = [f"{board.mean_title}; {whose}"]
    if board.suite.name == "demo":
        lines.append("demo suite: not comparable with published figures")
    marked = sorted({mark for row in rows for mark in row.marks})
    shown = [f"* {mark}" for mark in marked[:_MARKS]]
    if len(marked) > _MARKS:
        shown.append(f"* and {len(marked) - _MARKS} more marks: r2med leaderboard lists them")
    return [*lines, *more, *shown]


def left_out(board: Leaderboard, rows: Sequence[Standing]) -> list[str]:
    """A line on systems below the last one shown."""
    ranked = sum(row.mean is not None for row in board.rows)
    return [f"the best {len(rows)} of {ranked} systems"] if ranked > len(rows) else []
