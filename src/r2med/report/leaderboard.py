"""The leaderboard as a table: what the width holds, and what its words mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from rich.text import Text

from r2med.errors import plural
from r2med.measure.significance import SIGNIFICANT
from r2med.report.comparison import draw_protocols
from r2med.report.table import (
    SHORT_NAMES,
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    dollars,
    explained,
    points,
    print_fitting,
    signed,
)
from r2med.results.cost import Cost
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard
from r2med.results.protocols import compare_figures
from r2med.results.standings import Standing
from r2med.results.store import LOCAL

_FAMILY_NAMES = {"Q&A reference": "Q&A", "clinical evidence": "evidence", "clinical case": "case"}
_CACHED = "*: partly from a cache; answers of language models as recorded with them."
_FAMILIES_SHOWN = "Q&A, evidence, case: task means by family; wider output shows the tasks."


def draw(board: Leaderboard, out: Paper, *, cost: bool = False) -> None:
    """Print the board and its legend; `cost` shows seconds, tokens and money instead of tasks."""
    noted = dict.fromkeys(mark for row in board.shown for mark in row.marks)
    marks = {mark: number for number, mark in enumerate(noted, start=1)}
    out.print(f"{board.suite.title} leaderboard · {board.metric} × 100", style="bold")
    among = f"; {len(board.rows)} of {len(board.rows) + board.hidden} rows, ranks among all"
    out.print(f"ranked by the {board.mean_title}{among if board.hidden else ''}")
    if not board.rows:
        none = f"No published or stored system has {board.metric} here."
        why = "No row meets all of these filters." if board.hidden else none
        task = "FOLDER" if board.suite.name == LOCAL else board.suite.name
        out.print(f"{why}\nTo measure one: r2med eval bm25 --task {task}")
        return
    layouts = (
        _grid(board.shown, [*_leading(board, marks, digits), *columns], gap, note)
        for columns, digits, gap, note in _layouts(board, cost)
    )
    print_fitting(layouts, out)
    for line in _legend(board, marks):
        out.print(line, style="dim")
    if board.detailed:
        for row in board.rows:
            _draw_figures(row, board, out)


def _draw_figures(row: Standing, board: Leaderboard, out: Paper) -> None:
    """The figures of one row, work by work, and how their protocols differ."""
    if row.origin == "measured":
        if row.beside:
            out.print(f"{row.name}, measured here, may be set beside {'; '.join(row.beside)}.")
        return

    def cited(each: Standing) -> SystemName:
        where = [f"{work.name}, {work.revision} {work.table}".strip() for work in each.sources]
        return SystemName("; ".join(where), f" ({each.variant})" if each.variant else "")

    out.print()
    count = row.spread.figures if row.spread else 1
    out.print(f"{row.system}: {plural(count, 'figure')}", style="bold")
    columns = [
        Column("printed in", right=False, cell=cited),
        Column("date", right=False, cell=lambda each: each.date or None),
        Column("mean", cell=lambda each: points(each.mean)),
    ]
    tasks = [replace(column, best=False) for column in _task_columns(board, 2)]
    layouts = ([*columns, *tasks], columns)
    print_fitting((_grid((row, *row.others), each, 1, None) for each in layouts), out)
    if row.others:
        draw_protocols(compare_figures(row.system), out, title="what differs in their protocols")


def _layouts(board: Leaderboard, cost: bool) -> Iterator[tuple[list[Column], int, int, str | None]]:
    """Columns, digits of what stands before them, spaces between them, and a caption.

    Tasks by name, by short name, with one digit, then families, then only the mean.
    """
    if cost:
        yield _cost_columns(), 1, 1, _CACHED
        return
    yield _task_columns(board, 2, short=False), 2, 2, None
    short = explained("", (task.source for task in board.tasks)) or None
    yield _task_columns(board, 2), 2, 1, short
    yield _task_columns(board, 1), 1, 1, short
    families = dict.fromkeys(task.family for task in board.tasks)
    if len(families) > 1:

        def column(family: str) -> Column:
            title = _FAMILY_NAMES.get(family, family)
            return Column(title, best=True, cell=lambda r: points(r.aggregates.families[family]))

        yield [column(family) for family in families], 1, 1, _FAMILIES_SHOWN
    yield [], 1, 1, None


def _task_columns(board: Leaderboard, digits: int, *, short: bool = True) -> list[Column]:
    def column(name: str, title: str) -> Column:
        return Column(
            SystemName(title), best=True, cell=lambda row: points(row.values.get(name), digits)
        )

    return [
        column(task.name, SHORT_NAMES.get(task.source, task.source) if short else task.name)
        for task in board.tasks
    ]


def _cost_columns() -> list[Column]:
    def column(title: str, written: Callable[[Cost], Cell]) -> Column:
        return Column(title, cell=lambda row: None if row.cost is None else written(row.cost))

    def timed(duration: float, cached: bool) -> str:
        return f"{duration:,.1f}{'*' if cached else ' '}"

    return [
        column("index s", lambda cost: timed(cost.index_seconds, cost.index_cached)),
        column("ms/query", lambda cost: timed(1000 * cost.seconds_per_query, cost.query_cached)),
        column("tokens/query", lambda cost: _known(cost.tokens_per_query, "{:,.0f}".format)),
        column("money", lambda cost: _known(cost.money, dollars)),
    ]


def _leading(board: Leaderboard, marks: dict[str, int], digits: int) -> list[Column]:
    """Rank, name, origin and mean; further columns where any row has something for them."""
    optional: dict[str, tuple[str, Callable[[Any], Cell]]] = {
        "clean": ("rest", lambda mean: points(mean, digits)),
        "spread": ("span", lambda spread: f"{100 * (spread.high - spread.low):.1f}"),
        "interval": ("±", lambda interval: f"{50 * (interval.high - interval.low):.1f}"),
        "letters": ("≈", str),
        "ties": ("tie bounds", lambda ties: f"{100 * ties[0]:.2f}-{100 * ties[1]:.2f}"),
        "gain": ("Δ", lambda gain: signed(gain, digits, style="green" if gain > 0 else "red")),
    }

    def column(name: str, title: str, written: Callable[[Any], Cell]) -> Column:
        return Column(title, cell=lambda row: _known(getattr(row, name), written) or "")

    def named(row: Standing) -> SystemName:
        return SystemName(row.name, "".join(f" [{marks[mark]}]" for mark in row.marks))

    def origin(row: Standing) -> Text:
        return Text(row.sources[0].short, "dim") if row.sources else Text("here", "cyan")

    return [
        Column("#", cell=lambda row: str(row.rank) if row.rank else None),
        Column("system", right=False, cell=named),
        Column("from", right=False, cell=origin),
        Column("mean", best=True, cell=lambda row: points(row.mean)),
        *(
            column(name, *written)
            for name, written in optional.items()
            if any(getattr(row, name) not in (None, "") for row in board.shown)
        ),
    ]


def _known(value: Any, written: Callable[[Any], Cell]) -> Cell:
    return None if value is None else written(value)


def _grid(
    rows: Sequence[Standing], columns: Sequence[Column], gap: int, caption: str | None
) -> Grid:
    ranked = sum(row.mean is not None for row in rows)
    ends = frozenset([ranked - 1]) if ranked < len(rows) else frozenset[int]()
    return Grid.of(columns, rows, gap=gap, ends=ends, caption=caption)


def _legend(board: Leaderboard, marks: dict[str, int]) -> Iterator[str]:
    """What was done to get these numbers, and nothing that was not."""
    gains = [
        f"{GAIN_TITLES[each.group]}: {each.better} of {each.systems} rows gain, "
        f"median {100 * each.median:+.2f}"
        for each in board.gains
    ]
    if gains:
        yield f"Δ: gain over the system's own first stage. {'; '.join(gains)}."
    revisions: dict[str, dict[str, None]] = {}
    for work in (row.sources[0] for row in board.shown if row.sources):
        revisions.setdefault(f"{work.short} is {work.name}", {})[work.revision] = None
    if revisions:
        works = [f"{work} ({', '.join(known)})" for work, known in revisions.items()]
        yield f"from: {'; '.join(works)}. Printed means have no interval and no test."
    if any(row.spread for row in board.shown):
        more = "" if board.detailed else " `--only SYSTEM` says how their protocols differ."
        yield (
            "span: highest minus lowest mean that works print for one system; the mean shown is "
            f"the first work's.{more}"
        )
    if board.flagged:
        tasks = "; ".join(f"{task} ({', '.join(who)})" for task, who in board.flagged.items())
        yield (
            f"rest: the mean without tasks that a model's declared training data holds: {tasks}. "
            "`--without-flagged` ranks all on the others; who declares nothing is not cleared."
        )
    if any(row.origin == "measured" for row in board.rows):
        doubted = any(row.interval is not None for row in board.rows)
        half = "; ±: half the 95 % interval over queries" if doubted else ""
        yield f"here: stored results of yours{half}."
    if any(row.letters for row in board.rows):
        yield (
            "≈: rows that share a letter could not be separated (paired randomisation test of all "
            f"pairs of measured rows on the same data, p < {SIGNIFICANT} after Holm's correction)."
        )
    if any(row.ties for row in board.rows):
        yield "tie bounds: the mean with equal scores in the worst and in the best order."
    yield from board.notes
    yield from (f"[{number}] {mark.rstrip('.')}." for mark, number in marks.items())
