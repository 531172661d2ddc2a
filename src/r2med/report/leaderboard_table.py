"""The leaderboard on a terminal: as much as the width holds, and below it what the words mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.text import Text

from r2med.measure.significance import SIGNIFICANT
from r2med.report.standing import Leaderboard, Standing
from r2med.report.table import Column, Grid, print_fitting
from r2med.results.lineage import KIND_TITLES, Kind

#: Short forms of the eight tasks, for columns of four characters.
SHORT_NAMES = {
    "Biology": "Biol",
    "Bioinformatics": "Binf",
    "Medical-Sciences": "MedS",
    "MedXpertQA-Exam": "Exam",
    "MedQA-Diag": "Diag",
    "PMC-Treatment": "Trea",
    "PMC-Clinical": "PMC",
    "IIYi-Clinical": "IIYi",
}
_FAMILY_NAMES = {"Q&A reference": "Q&A", "clinical evidence": "evidence", "clinical case": "case"}
_ORIGINS = {"published": "publ", "measured": "here"}


@dataclass(frozen=True)
class _Column:
    """A column and how a row fills it."""

    title: str
    cell: Callable[[Standing], Text]
    right: bool = True


_Layout = tuple[list[_Column], int, str | None]
"""Columns, the spaces between them, and what a reader should know of this layout."""
_CACHED = "*: partly from a cache; answers of language models as recorded with them."
_FAMILIES_SHOWN = "Q&A, evidence, case: task means by family; wider output shows the tasks."


def print_leaderboard(board: Leaderboard, out: Console, *, cost: bool = False) -> None:
    """Print the board and its legend."""
    marks = _footnotes(board.rows)
    out.print(f"{board.suite.title} leaderboard · {board.metric} × 100", style="bold")
    out.print(f"ranked by the {board.mean_title}")
    if not board.rows:
        out.print(_nothing(board))
        return
    leading = _leading(board, marks)
    layouts = _cost_layouts() if cost else _layouts(board)
    print_fitting(
        (_grid(board.rows, [*leading, *columns], gap, told) for columns, gap, told in layouts), out
    )
    for line in _legend(board, marks):
        out.print(line, style="dim")


def _layouts(board: Leaderboard) -> Iterator[_Layout]:
    """Tasks with two digits, with one, then families, then nothing but the mean."""
    for digits, gap in ((2, 2), (2, 1), (1, 1)):
        yield [_task_column(task.name, task.source, digits) for task in board.tasks], gap, None
    families = dict.fromkeys(task.family for task in board.tasks)
    if len(families) > 1:
        columns = [_family_column(family) for family in families]
        yield columns, 2, _FAMILIES_SHOWN
        yield columns, 1, _FAMILIES_SHOWN
    yield [], 1, None


def _cost_layouts() -> Iterator[_Layout]:
    columns = [
        _Column("index s", lambda row: _text(row.cost and f"{row.cost.index_seconds:,.1f}")),
        _Column("ms/query", lambda row: _text(row.cost and _milliseconds(row))),
        _Column("tokens/query", lambda row: _text(_tokens(row))),
        _Column("money", lambda row: _text(_money(row))),
    ]
    yield columns, 2, _CACHED
    yield columns, 1, _CACHED


def _leading(board: Leaderboard, marks: dict[str, int]) -> list[_Column]:
    """Rank, name, origin and mean; intervals, groups and gains where any row has them."""
    columns = [
        _Column("#", lambda row: _text(row.rank)),
        _Column("system", lambda row: _name(row, marks), right=False),
        _Column("from", lambda row: _origin(row), right=False),
        _Column("mean", lambda row: _score(row.mean, 2, "bold")),
    ]
    if any(row.interval for row in board.rows):
        columns.append(_Column("±", _half_width))
    if any(row.group for row in board.rows):
        columns.append(_Column("≈", lambda row: Text(row.group)))
    if any(row.ties for row in board.rows):
        columns.append(_Column("tie bounds", _bounds))
    if any(row.gain is not None for row in board.rows):
        columns.append(_Column("Δ", _gain))
    return columns


def _grid(
    rows: Sequence[Standing], columns: Sequence[_Column], gap: int, caption: str | None
) -> Grid:
    ranked = sum(row.mean is not None for row in rows)
    return Grid(
        [Column(column.title, column.right) for column in columns],
        [[column.cell(row) for column in columns] for row in rows],
        gap=gap,
        ends=frozenset([ranked - 1]) if ranked < len(rows) else frozenset(),
        caption=caption,
    )


def _legend(board: Leaderboard, marks: dict[str, int]) -> Iterator[str]:
    yield from _gains_at_a_glance(board.rows)
    origins = {row.origin for row in board.rows}
    if "published" in origins:
        told = ", ".join(dict.fromkeys(r.source for r in board.rows if r.origin == "published"))
        sources = ", ".join(dict.fromkeys(told.split(", ")))
        yield (
            f"publ: published figures ({sources}); without scores of single queries there is no "
            "interval and no test between them."
        )
    if "measured" in origins:
        yield "here: stored results of yours; ±: half the 95 % interval over queries."
    if board.tested is not None:
        tested = board.tested
        yield (
            f"≈: rows that share a letter could not be separated: {tested.different} of the "
            f"{tested.pairs} pairs of {tested.rows} measured rows on the same data differ (paired "
            f"randomisation test, p < {SIGNIFICANT} after Holm's correction over all pairs)."
        )
    if any(row.ties for row in board.rows):
        yield "tie bounds: the mean with equal scores in the worst and in the best order."
    yield from board.notes
    yield from (f"[{number}] {mark.rstrip('.')}." for mark, number in marks.items())


def _gains_at_a_glance(rows: Sequence[Standing]) -> Iterator[str]:
    """Who gains on its own first stage, by kind: the sentence the table is read for."""
    parts = [part for kind in ("gar", "reranker") for part in _gain_sentence(rows, kind)]
    if parts:
        yield f"Δ: gain over the system's own first stage. {'; '.join(parts)}."


def _gain_sentence(rows: Sequence[Standing], kind: Kind) -> Iterator[str]:
    gains = [100 * row.gain for row in rows if row.kind == kind and row.gain is not None]
    if gains:
        better = sum(gain > 0 for gain in gains)
        yield f"{KIND_TITLES[kind]}: {better} of {len(gains)} gain, median {median(gains):+.2f}"


def _footnotes(rows: Sequence[Standing]) -> dict[str, int]:
    marks = dict.fromkeys(mark for row in rows for mark in row.marks)
    return {mark: number for number, mark in enumerate(marks, start=1)}


def _nothing(board: Leaderboard) -> str:
    if board.suite.name == "demo":
        return (
            "Nothing is published for the demo suite and no result is stored. "
            "Try: r2med eval bm25 --task demo"
        )
    return f"No published or stored system has {board.metric} here."


def _task_column(task: str, source: str, digits: int) -> _Column:
    return _Column(
        SHORT_NAMES.get(source, source[:4]), lambda row: _score(row.values.get(task), digits)
    )


def _family_column(family: str) -> _Column:
    return _Column(
        _FAMILY_NAMES.get(family, family), lambda row: _score(row.aggregates.families[family], 2)
    )


def _name(row: Standing, marks: dict[str, int]) -> Text:
    numbers = "".join(f" [{marks[mark]}]" for mark in row.marks)
    return Text.assemble(row.system, (numbers, "yellow"))


def _origin(row: Standing) -> Text:
    return Text(_ORIGINS[row.origin], style="cyan" if row.origin == "measured" else "dim")


def _gain(row: Standing) -> Text:
    if row.gain is None:
        return Text("")
    return Text(f"{100 * row.gain:+.2f}", style="green" if row.gain > 0 else "red")


def _half_width(row: Standing) -> Text:
    if row.interval is None:
        return Text("")
    return Text(f"{100 * (row.interval.high - row.interval.low) / 2:.1f}")


def _bounds(row: Standing) -> Text:
    return Text("" if row.ties is None else f"{100 * row.ties[0]:.2f}-{100 * row.ties[1]:.2f}")


def _score(value: float | None, digits: int, style: str = "") -> Text:
    return Text("-", style="dim") if value is None else Text(f"{100 * value:.{digits}f}", style)


def _text(value: object) -> Text:
    return Text("-", style="dim") if value is None else Text(str(value))


def _milliseconds(row: Standing) -> str:
    if row.cost is None:
        return ""
    return f"{1000 * row.cost.seconds_per_query:,.1f}{'*' if row.cost.cached else ''}"


def _tokens(row: Standing) -> str | None:
    tokens = row.cost.tokens_per_query if row.cost else None
    return None if tokens is None else f"{tokens:,.0f}"


def _money(row: Standing) -> str | None:
    known = row.cost and row.cost.money is not None
    return f"${row.cost.money:,.2f}" if known and row.cost else None
