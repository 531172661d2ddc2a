"""The leaderboard as data: JSON with everything, CSV for tables, Markdown for pages."""

from __future__ import annotations

import csv
import io
import json
from typing import cast

from r2med.report.standing import Leaderboard, Standing

_FIRST_COLUMNS = (
    "rank",
    "system",
    "kind",
    "origin",
    "source",
    "task_mean",
    "query_weighted_mean",
    "interval_low",
    "interval_high",
    "tie_group",
    "gain",
    "gain_over",
    "queries",
    "index_seconds",
    "seconds_per_query",
    "index_tokens",
    "tokens_per_query",
    "money",
    "cached",
    "marks",
)


def to_json(board: Leaderboard) -> str:
    """Every row with full digits, values 0 to 1."""
    told = {
        "suite": board.suite.name,
        "metric": board.metric,
        "ranked_by": board.mean_title,
        "tasks": [
            {"name": task.name, "family": task.family, "scenario": task.scenario}
            for task in board.tasks
        ],
        "rows": [_row(row, board) for row in board.rows],
        "notes": list(board.notes),
    }
    return json.dumps(told, indent=2, ensure_ascii=False)


def to_csv(board: Leaderboard) -> str:
    """One line a row, both means and every task, values 0 to 1."""
    rows = [_flat(row, board) for row in board.rows]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(_flat_names(board)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def to_markdown(board: Leaderboard) -> str:
    """A table for a page, values × 100, with its caption."""
    names = ["#", "system", "from", "mean", "95 % interval", "tie", "Δ"]
    names += [task.name for task in board.tasks]
    left = (1, 2)
    rule = ["---" if place in left else "---:" for place in range(len(names))]
    lines = [
        f"**{board.suite.title}, {board.metric} × 100**, ranked by the {board.mean_title}. "
        "Δ is the gain over the system's own first stage.",
        "",
        *(_line(cells) for cells in (names, rule)),
        *(_line(_markdown_cells(row, board)) for row in board.rows),
    ]
    marks = [f"- {row.system}: {'; '.join(row.marks)}" for row in board.rows if row.marks]
    return "\n".join([*lines, *([""] if marks else []), *marks])


def _row(row: Standing, board: Leaderboard) -> dict[str, object]:
    interval, cost = row.interval, row.cost
    return {
        "rank": row.rank,
        "system": row.system,
        "kind": row.kind,
        "origin": row.origin,
        "source": row.source,
        "task_mean": row.aggregates.task_mean,
        _weighted_name(board): row.aggregates.weighted_mean,
        "families": dict(row.aggregates.families),
        "queries": row.aggregates.queries,
        "interval": interval and {"low": interval.low, "high": interval.high, "confidence": 0.95},
        "tie_bounds": row.ties and {"worst": row.ties[0], "best": row.ties[1]},
        "tie_group": row.group or None,
        "gain": row.gain,
        "gain_over": row.gain_over or None,
        "values": dict(row.values),
        "cost": cost
        and {
            "index_seconds": cost.index_seconds,
            "seconds_per_query": cost.seconds_per_query,
            "index_tokens": cost.index_tokens,
            "tokens_per_query": cost.tokens_per_query,
            "money": cost.money,
            "cached": cost.cached,
        },
        "marks": list(row.marks),
    }


def _flat_names(board: Leaderboard) -> dict[str, None]:
    families = dict.fromkeys(task.family for task in board.tasks)
    first = (
        _weighted_name(board) if name == "query_weighted_mean" else name for name in _FIRST_COLUMNS
    )
    return dict.fromkeys([*first, *families, *(task.name for task in board.tasks)])


def _weighted_name(board: Leaderboard) -> str:
    return "micro_mean" if board.is_micro else "query_weighted_mean"


def _flat(row: Standing, board: Leaderboard) -> dict[str, object]:
    whole = _row(row, board)
    names = _flat_names(board)
    flat = {name: whole[name] for name in names if name in whole}
    flat |= dict(row.aggregates.families) | dict(row.values)
    flat["marks"] = "; ".join(row.marks)
    if row.interval:
        flat |= {"interval_low": row.interval.low, "interval_high": row.interval.high}
    flat |= cast("dict[str, object]", whole["cost"] or {})
    return flat


def _markdown_cells(row: Standing, board: Leaderboard) -> list[str]:
    interval = row.interval
    return [
        str(row.rank or "-"),
        f"`{row.system}`".replace("|", "\\|"),
        row.origin,
        _score(row.mean),
        f"{100 * interval.low:.2f} to {100 * interval.high:.2f}" if interval else "",
        row.group,
        "" if row.gain is None else f"{100 * row.gain:+.2f}",
        *(_score(row.values.get(task.name)) for task in board.tasks),
    ]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
