"""The power of comparisons on a terminal."""

from __future__ import annotations

from r2med.number_format import MISSING, format_percent, format_points
from r2med.report.drawing import draw_registered
from r2med.report.table import Column, Grid, Paper, SystemName, score_cell, task_label
from r2med.results.power import DIFFERENCES, PowerRow, PowerTable
from r2med.results.published_data import NOT_PUBLISHED, describe_other_tasks


@draw_registered.register
def draw_power(value: PowerTable, out: Paper) -> None:
    """Print the detectable difference and the queries needed, task by task."""
    out.print(f"{value.metric} × 100: detectable differences", style="bold")
    if len(value.pairs) == 1:
        a, b = value.pairs[0]
        out.print(f"from the differences of {a} and {b}")
    else:
        out.print(f"median over {len(value.pairs)} pairs of stored systems")
    columns = [
        Column("task", right=False, cell=lambda row: SystemName(_name_row(row, value))),
        Column("queries", cell=lambda row: f"{row.queries:,}"),
        Column("spread", cell=lambda row: score_cell(row.spread, 1)),
        Column("detectable", cell=lambda row: score_cell(row.detectable, 1)),
    ]
    if len(value.pairs) > 1:
        columns.append(Column("range", cell=_range))
    columns += [_needed_column(difference) for difference in DIFFERENCES]
    ends = frozenset([len(value.rows) - 2]) if len(value.rows) > 1 else frozenset[int]()
    out.print(Grid.of(columns, value.rows, gap=2, ends=ends))
    out.print(
        "detectable: smallest true difference found with "
        f"{format_percent(value.power)} power (paired randomisation test, simulated); "
        "last columns: queries needed to find 1, 2 and 5 points.",
        style="dim",
    )
    for note in describe_other_tasks(value.other_data):
        out.print(note, style="yellow")


def _name_row(row: PowerRow, table: PowerTable) -> str:
    label = task_label(row.over)
    return f"{label} {NOT_PUBLISHED}" if row.over in table.other_data else label


def _range(row: PowerRow) -> str:
    if row.lowest is None or row.highest is None:
        return MISSING
    return f"{format_points(row.lowest, 1)}-{format_points(row.highest, 1)}"


def _needed_column(difference: float) -> Column:
    def format_needed(row: PowerRow) -> str:
        count = row.needed[difference]
        return MISSING if count is None else f"{count:,}"

    return Column(f"{format_points(difference, 0)} pt", cell=format_needed)
