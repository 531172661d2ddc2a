"""The leaderboard as a table that fits the width, and its legend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.text import Text

from r2med.errors import plural
from r2med.measure.verdicts import LOW_COVERAGE, describe_skipped
from r2med.number_format import format_dollars, format_percent
from r2med.report.comparison import draw_protocols
from r2med.report.drawing import draw_registered
from r2med.report.formats import Page
from r2med.report.table import (
    SHORT_NAMES,
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    append_short_names,
    difference_cell,
    judgements_note,
    print_fitting,
    score_cell,
)
from r2med.results.answers import describe_answers, mark_answers
from r2med.results.cost import Cost
from r2med.results.leaderboard import GAIN_TITLES, Leaderboard
from r2med.results.protocols import compare_figures
from r2med.results.standings import Standing
from r2med.results.store import LOCAL

_FAMILY_NAMES = {"Q&A reference": "Q&A", "clinical evidence": "evidence", "clinical case": "case"}
_CACHED = "*: partly from a cache; answers of language models as recorded with them."
_FAMILIES_SHOWN = "Q&A, evidence, case: task means by family; wider output shows the tasks."


@draw_registered.register
def draw_leaderboard(
    board: Leaderboard, out: Paper, *, cost: bool = False, legend: bool = False
) -> None:
    """Print the board; `cost` shows seconds, tokens and money instead of tasks.

    On a terminal the legend has two lines, or is complete if `legend` is set; on pages it is always
    complete.
    """
    noted = dict.fromkeys(mark for row in board.shown for mark in row.marks)
    marks = {mark: number for number, mark in enumerate(noted, start=1)}
    out.print(f"{board.suite.title} leaderboard · {board.metric} × 100", style="bold")
    if board.judgements:
        out.print(judgements_note(board.judgements), style="yellow")
    hidden_rows = f"; {len(board.rows)} of {len(board.rows) + board.hidden} rows, ranks among all"
    out.print(f"ranked by the {board.mean_title}{hidden_rows if board.hidden else ''}")
    if not board.rows:
        none = f"No published or stored system has {board.metric} here."
        why = "No row meets all of these filters." if board.hidden else none
        task = "FOLDER" if board.suite.name == LOCAL else board.suite.name
        out.print(f"{why}\nTo measure one: r2med eval bm25 --task {task}{board.metrics_option}")
        return
    full_legend = legend or isinstance(out, Page)
    layouts = (
        _grid(board.shown, [*_leading(board, marks, digits), *columns], gap, note)
        for columns, digits, gap, note in _layouts(board, cost, names=full_legend)
    )
    print_fitting(layouts, out)
    _draw_legend(board, marks, out, full=full_legend)
    if board.detailed:
        for row in board.rows:
            _draw_figures(row, board, out)


def _draw_figures(row: Standing, board: Leaderboard, out: Paper) -> None:
    """Print the figures of one row, one per publication, and how their protocols differ."""
    if row.origin == "measured":
        if row.beside:
            out.print(f"{row.name}, measured here, is comparable with {'; '.join(row.beside)}.")
        return

    def cite(row_of_work: Standing) -> SystemName:
        where = [
            f"{work.name}, {work.revision} {work.table}".strip() for work in row_of_work.sources
        ]
        return SystemName(
            "; ".join(where), f" ({row_of_work.variant})" if row_of_work.variant else ""
        )

    out.print()
    count = row.spread.figures if row.spread else 1
    out.print(f"{row.system}: {plural(count, 'figure')}", style="bold")
    columns = [
        Column("printed in", right=False, cell=cite),
        Column("date", right=False, cell=lambda row_of_work: row_of_work.date or None),
        Column("mean", cell=lambda row_of_work: score_cell(row_of_work.mean)),
    ]
    tasks = [replace(column, best=False) for column in _task_columns(board, 2)]
    layouts = ([*columns, *tasks], columns)
    print_fitting(
        (_grid((row, *row.other_figures), row_of_work, 1, None) for row_of_work in layouts), out
    )
    if row.other_figures:
        draw_protocols(compare_figures(row.system), out, title="what differs in their protocols")


def _layouts(
    board: Leaderboard, cost: bool, *, names: bool
) -> Iterator[tuple[list[Column], int, int, str | None]]:
    """Yield layouts from the widest to the narrowest, until one fits the terminal.

    A layout has task columns, digits of the leading columns, spaces between columns and a caption.
    Layouts show tasks by name, by short name, with one digit, then families, then only the mean.
    """
    if cost:
        yield _cost_columns(board), 1, 1, _CACHED
        return
    yield _task_columns(board, 2, short=False), 2, 2, None
    labels = [task.source for task in board.tasks] if names else []
    short = append_short_names("", labels) or None
    yield _task_columns(board, 2), 2, 1, short
    yield _task_columns(board, 1), 1, 1, short
    families = dict.fromkeys(task.family for task in board.tasks)
    if len(families) > 1:

        def column(family: str) -> Column:
            title = _FAMILY_NAMES.get(family, family)
            return Column(
                title, best=True, cell=lambda r: score_cell(r.aggregates.families[family])
            )

        yield [column(family) for family in families], 1, 1, _FAMILIES_SHOWN
    yield [], 1, 1, None


def _task_columns(board: Leaderboard, digits: int, *, short: bool = True) -> list[Column]:
    def column(name: str, title: str) -> Column:
        return Column(
            SystemName(title), best=True, cell=lambda row: score_cell(row.values.get(name), digits)
        )

    return [
        column(task.name, SHORT_NAMES.get(task.source, task.source) if short else task.name)
        for task in board.tasks
    ]


def _cost_columns(board: Leaderboard) -> list[Column]:
    def column(title: str, format_value: Callable[[Cost], Cell]) -> Column:
        return Column(title, cell=lambda row: None if row.cost is None else format_value(row.cost))

    def format_seconds(duration: float, cached: bool) -> str:
        return f"{duration:,.1f}{'*' if cached else ' '}"

    def request_times(cost: Cost) -> str | None:
        if cost.request_p50 is None or cost.request_p95 is None:
            return None
        return f"{1000 * cost.request_p50:,.0f} / {1000 * cost.request_p95:,.0f}"

    asks_models = any(row.cost and row.cost.request_p50 is not None for row in board.rows)
    return [
        column("index s", lambda cost: format_seconds(cost.index_seconds, cost.index_cached)),
        column(
            "ms/query",
            lambda cost: format_seconds(1000 * cost.seconds_per_query, cost.query_cached),
        ),
        *([column("ms/request", request_times)] if asks_models else []),
        column(
            "tokens/query", lambda cost: _apply_if_known(cost.tokens_per_query, "{:,.0f}".format)
        ),
        column("money", lambda cost: _apply_if_known(cost.money, format_dollars)),
    ]


def _leading(board: Leaderboard, marks: dict[str, int], digits: int) -> list[Column]:
    """Return the columns rank, name, origin and mean, and others for which any row has a value."""
    optional: dict[str, tuple[str, Callable[[Any], Cell]]] = {
        "clean": ("rest", lambda mean: score_cell(mean, digits)),
        "spread": ("span", lambda spread: f"{100 * (spread.high - spread.low):.1f}"),
        "interval": ("±", lambda interval: f"{50 * (interval.high - interval.low):.1f}"),
        "letters": ("≈", str),
        "judged": ("J@10", lambda share: f"{100 * share:.0f}"),
        "ties": ("tie bounds", lambda ties: f"{100 * ties[0]:.2f}-{100 * ties[1]:.2f}"),
        "gain": (
            "Δ",
            lambda gain: difference_cell(gain, digits, style="green" if gain > 0 else "red"),
        ),
    }

    def column(name: str, title: str, format_value: Callable[[Any], Cell]) -> Column:
        return Column(
            title, cell=lambda row: _apply_if_known(getattr(row, name), format_value) or ""
        )

    def name_cell(row: Standing) -> SystemName:
        dagger = mark_answers(row.answers)
        after = [dagger] if dagger else []
        after += [f"[{marks[mark]}]" for mark in row.marks]
        return SystemName(row.name, "".join(f" {mark}" for mark in after))

    def origin(row: Standing) -> Text:
        return Text(row.sources[0].short, "dim") if row.sources else Text("here", "cyan")

    return [
        Column("#", cell=lambda row: str(row.rank) if row.rank else None),
        Column("system", right=False, cell=name_cell),
        Column("from", right=False, cell=origin),
        Column("mean", best=True, cell=lambda row: score_cell(row.mean)),
        *(
            column(name, *format_value)
            for name, format_value in optional.items()
            if any(getattr(row, name) not in (None, "") for row in board.shown)
        ),
    ]


def _apply_if_known(value: Any, format_value: Callable[[Any], Cell]) -> Cell:
    return None if value is None else format_value(value)


def _grid(
    rows: Sequence[Standing], columns: Sequence[Column], gap: int, caption: str | None
) -> Grid:
    ranked = sum(row.mean is not None for row in rows)
    ends = frozenset([ranked - 1]) if ranked < len(rows) else frozenset[int]()
    return Grid.of(columns, rows, gap=gap, ends=ends, caption=caption)


def _draw_legend(board: Leaderboard, marks: dict[str, int], out: Paper, *, full: bool) -> None:
    """Print the meaning of the columns, in two lines unless `full`, then notes on the rows."""
    entries = list(_column_legend(board))
    if full:
        lines = [entry.full for entry in entries]
    else:
        short = "; ".join(entry.short for entry in entries)
        lines = [f"{short}. More: --legend."] if short else []
    for line in (*lines, *_row_notes(board, marks)):
        out.print(line, style="dim")


@dataclass(frozen=True)
class _LegendEntry:
    """The meaning of one column, in a few words and in full."""

    short: str
    full: str


def _column_legend(board: Leaderboard) -> Iterator[_LegendEntry]:
    """Yield an entry for each column that is present and needs explaining."""
    if board.gains:
        full = "Δ: gain over the system's own first stage."
        yield _LegendEntry("Δ: gain over the first stage", full)
    revisions: dict[str, dict[str, None]] = {}
    for work in (row.sources[0] for row in board.shown if row.sources):
        revisions.setdefault(f"{work.short} is {work.name}", {})[work.revision] = None
    if revisions:
        works = [f"{work} ({', '.join(versions)})" for work, versions in revisions.items()]
        full = f"from: {'; '.join(works)}. Printed means have no interval and no test."
        yield _LegendEntry("from: where printed", full)
    if any(row.spread for row in board.shown):
        more = "" if board.detailed else " `--only SYSTEM` says how their protocols differ."
        full = (
            "span: highest minus lowest mean that works print for one system; the mean shown is "
            f"the first work's.{more}"
        )
        yield _LegendEntry("span: spread of printed means", full)
    if board.flagged:
        tasks = "; ".join(f"{task} ({', '.join(who)})" for task, who in board.flagged.items())
        full = (
            f"rest: the mean without tasks that a model's declared training data holds: {tasks}. "
            "`--without-flagged` ranks all on the others; models without declared training data "
            "may still overlap."
        )
        yield _LegendEntry("rest: mean without leaked tasks", full)
    if any(row.interval is not None for row in board.rows):
        full = "here: your stored results; ±: half the 95 % interval over queries."
        yield _LegendEntry("±: half the 95 % interval", full)
    elif any(row.origin == "measured" for row in board.rows):
        yield _LegendEntry("here: your stored results", "here: your stored results.")
    if any(row.letters for row in board.rows):
        tests = max(row.tests for row in board.rows)
        short = "≈: rows that share a letter do not differ significantly"
        full = (
            f"{short} (paired randomisation test, Holm's correction over all "
            f"{plural(tests, 'pair')} measured here). `r2med compare A B` tests one pair alone."
        )
        family = f" (corrected over {tests} pairs)" if tests > 1 else ""
        yield _LegendEntry(f"{short}{family}", full)
    if any(row.judged is not None for row in board.rows):
        full = (
            "J@10: percentage of the first 10 documents with a judgement; below "
            f"{format_percent(LOW_COVERAGE)} unjudged documents may decide the ranking."
        )
        yield _LegendEntry("J@10: % judged", full)
    if any(row.ties for row in board.rows):
        full = "tie bounds: the mean with equal scores in the worst and in the best order."
        yield _LegendEntry("tie bounds: worst and best order of equal scores", full)


def _row_notes(board: Leaderboard, marks: dict[str, int]) -> Iterator[str]:
    """Yield the notes on rows and data, which are always printed."""
    for row in board.shown:
        if note := describe_answers(row.name, row.answers):
            yield note
    gains = [
        f"{GAIN_TITLES[summary.group]}: {summary.better} of {summary.systems} rows gain, "
        f"median {100 * summary.median:+.2f}"
        for summary in board.gains
    ]
    if gains:
        yield f"Gains over the first stage: {'; '.join(gains)}."
    if skipped := max((row.skipped for row in board.rows), default=0):
        yield describe_skipped(skipped)
    yield from board.notes
    yield from (f"[{number}] {mark.rstrip('.')}." for mark, number in marks.items())
