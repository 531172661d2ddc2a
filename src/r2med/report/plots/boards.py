"""What the plots of many systems share: rows of a leaderboard, named so that origins show."""

from __future__ import annotations

from collections.abc import Sequence

from r2med.report.standing import Leaderboard, Standing

ORIGINS = {"published": "published figures", "measured": "measured here"}


def ranked_rows(board: Leaderboard, top: int | None) -> list[Standing]:
    """Rows that have a mean, best first."""
    return [row for row in board.rows if row.mean is not None][:top]


def labels(rows: Sequence[Standing]) -> dict[tuple[str, str], str]:
    """A label a row, by system and origin: where published and measured meet, each says which."""
    mixed = len({row.origin for row in rows}) > 1
    return {
        (row.system, row.origin): f"{row.system} (here)"
        if mixed and row.origin == "measured"
        else row.system
        for row in rows
    }


def subtitle(board: Leaderboard, rows: Sequence[Standing], *more: str) -> list[str]:
    """What every such plot must say: which mean, whose figures, how many are left out."""
    origins = {row.origin for row in rows}
    whose = " and ".join(ORIGINS[origin] for origin in sorted(origins, reverse=True))
    left = sum(row.mean is not None for row in board.rows) - len(rows)
    lines = [f"{board.mean_title}; {whose}"]
    if left:
        lines.append(f"the best {len(rows)} of {len(rows) + left} systems")
    if board.suite.name == "demo":
        lines.append("demo suite: not comparable with published figures")
    marked = sorted({mark for row in rows for mark in row.marks})
    return [*lines, *more, *marked[:2]]
