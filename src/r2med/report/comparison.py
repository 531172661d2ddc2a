"""Comparisons on a terminal: scores by task or as a matrix, queries that moved, protocols."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text

from r2med.errors import plural
from r2med.measure.significance import Pair
from r2med.measure.verdicts import Verdict, decide_row
from r2med.number_format import format_difference, format_p, format_percent
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    document_text,
    judgements_note,
    make_columns,
    print_fitting,
    score_cell,
    snippet,
    task_label,
)
from r2med.results.compare import Comparison
from r2med.results.movement import Movement, QueryMovement
from r2med.results.protocols import ABSENT, UNKNOWN, ProtocolComparison
from r2med.results.published_data import (
    NOT_PUBLISHED,
    describe_other_tasks,
    describe_task_data,
    mark_task,
)
from r2med.tasks.registry import find_suite

#: Columns that the layouts do without, from wide to narrow; the narrow ones also round more.
_LEFT_OUT = ((), ("t",), ("t", "n"), ("t", "n", "d"))
_POSITIVES_SHOWN = 5
_QUERIES_SHOWN = 10
#: A snippet ends here, however wide the page is.
_WIDEST = 120
#: Below this number of known fields, the known ones are named instead of the unknown ones.
_FEW = 2
#: Values of unset fields; a field that is unset everywhere is not listed.
_UNSET = ("none", "no", "0", "not pinned")


@draw_registered.register
def draw_comparison(value: Comparison, out: Paper) -> None:
    """Print one table for two systems, a matrix for more."""
    if value.judgements:
        out.print(judgements_note(value.judgements), style="yellow")
    if len(value.systems) == 2:
        _draw_pair(value, out)
    else:
        _draw_matrix(value, out)
    for note in (*value.answer_notes, *describe_other_tasks(value.other_data)):
        out.print(note, style="yellow")


def _draw_pair(comparison: Comparison, out: Paper) -> None:
    """Print one row per task, then both means over the tasks, then the verdict."""
    (a, b), [pair], [verdict] = comparison.systems, comparison.pairs, comparison.verdicts
    out.print(f"A = {a}\nB = {b}", style="bold")
    out.print(_data(comparison))
    grid = print_fitting((_pair_grid(pair, comparison, left_out) for left_out in _LEFT_OUT), out)
    titles = {column.title for column in grid.columns}
    out.print(_pair_legend(titles, len(pair.tasks)), style="dim")
    _draw_verdict(verdict, out)


def _pair_legend(titles: Collection[str | SystemName], tasks: int) -> str:
    """Return the meaning of the table's columns, whose titles are `titles`."""
    corrected = " (tasks: after Holm's correction)" if tasks > 1 else ""
    meanings = {
        "95 %": "95 %: interval of A-B.",
        "t": "t: p of the paired t-test.",
        "d": "d: effect size.",
        "w/t/l": "w/t/l: queries A won, tied, lost.",
    }
    return " ".join(
        [
            f"Scores × 100. *: p < .05{corrected}, paired randomisation test.",
            *(meaning for title, meaning in meanings.items() if title in titles),
        ]
    )


def _draw_verdict(verdict: Verdict, out: Paper) -> None:
    out.print(verdict.sentence)
    for remark in verdict.remarks:
        out.print(remark, style="dim")


def _pair_grid(pair: Pair, comparison: Comparison, left_out: Sequence[str]) -> Grid:
    metric = comparison.metric
    narrow = bool(left_out)
    digits = 1 if narrow else 2
    lines: list[dict[str, Cell]] = []
    for line in pair.lines:
        difference = line.difference
        interval = difference.interval
        bounds = [format_difference(bound, digits) for bound in (interval.low, interval.high)]
        effect = None if difference.effect is None else f"{difference.effect:+.2f}"
        lines.append(
            {
                metric: SystemName(_task_title(line.task, comparison)),
                "n": str(difference.queries),
                "A": score_cell(difference.mean_a),
                "B": score_cell(difference.mean_b),
                "A-B": _difference_cell(decide_row(line)),
                "95 %": " ".join(bounds),
                "p": format_p(difference.p_randomisation),
                "Holm": "" if line.p_holm is None else format_p(line.p_holm),
                "t": format_p(difference.p_t),
                "d": effect,
                "w/t/l": f"{difference.won}/{difference.tied}/{difference.lost}",
            }
        )
    without = {*left_out, *(["Holm"] if len(pair.tasks) == 1 else [])}
    titles = [title for title in lines[0] if title not in without]
    return Grid(
        [Column(title, right=title != metric) for title in titles],
        [[line[title] for title in titles] for line in lines],
        gap=1 if narrow else 2,
        ends=frozenset([len(pair.tasks) - 1]),
    )


def _task_title(name: str, comparison: Comparison) -> str:
    title = task_label(name)
    return f"{title} {NOT_PUBLISHED}" if name in comparison.other_data else title


def _difference_cell(verdict: Verdict, *, sign: int = 1, style: str = "") -> Text:
    """Return a cell with a difference; only significant ones have a star and a colour."""
    difference = sign * verdict.difference.difference
    if verdict.is_significant:
        style = "green" if difference > 0 else "red"
    star = "*" if verdict.is_significant else " "
    return Text(format_difference(difference) + star, style)


def _draw_matrix(comparison: Comparison, out: Paper) -> None:
    """Print the differences of task means, row minus column.

    A star marks differences that are significant after correction.
    """
    cells: dict[tuple[int, int], Text] = {}
    for pair, verdict in zip(comparison.pairs, comparison.verdicts, strict=True):
        cells[pair.a, pair.b] = _difference_cell(verdict, style="dim")
        cells[pair.b, pair.a] = _difference_cell(verdict, sign=-1, style="dim")
    indexes = range(len(comparison.systems))
    numbers = [f"[{index + 1}]" for index in indexes]
    out.print(f"{comparison.metric} × 100 {_data(comparison)}, row minus column", style="bold")
    columns = make_columns("", ">mean", ">judged", *(f">{number}" for number in numbers))
    rows = [
        [
            SystemName(f"{numbers[row]} {comparison.systems[row]}"),
            score_cell(mean),
            format_percent(comparison.judged_means[row]),
            *(cells.get((row, column), Text("")) for column in indexes),
        ]
        for row, mean in enumerate(comparison.means)
    ]
    print_fitting((Grid(columns, rows, gap=gap) for gap in (2, 1)), out)
    tasks, pairs = comparison.tasks, comparison.pairs
    over = f"task mean over {len(tasks)} tasks"
    if len(tasks) == 1:
        over = mark_task(next(iter(tasks)), comparison.other_data)
    out.print(
        f"{over}, {pairs[0].by_query.queries} queries. *: p < .05 after Holm's "
        f"correction over {len(pairs)} pairs (paired randomisation test). judged: Judged@10.",
        style="dim",
    )
    best = max(indexes, key=lambda index: comparison.means[index])
    for pair, verdict in zip(comparison.pairs, comparison.verdicts, strict=True):
        if best in (pair.a, pair.b):
            out.print(verdict.sentence)


def _data(comparison: Comparison) -> str:
    return f"on {find_suite(comparison.suite).title}" if comparison.suite else "on your data"


@draw_registered.register
def draw_movement(movement: Movement, out: Paper, *, limit: int = _QUERIES_SHOWN) -> None:
    """Print the first `limit` queries whose score differs, with snippets."""
    moved = movement.moved
    out.print(f"A = {movement.a}\nB = {movement.b}", style="bold")
    counts = f"{len(moved)} of {plural(len(movement.queries), 'query', 'queries')} changed"
    out.print(f"{movement.metric} × 100, A minus B: {counts}")
    for query in moved[:limit]:
        out.print()
        out.print(_query_grid(query, min(out.width, _WIDEST)))
    if len(moved) > limit:
        more = plural(len(moved) - limit, "more query", "more queries")
        out.print(f"{more} changed; --limit shows more of them, --json shows all.", style="dim")


def _query_grid(query: QueryMovement, width: int) -> Grid:
    """Return a table of a query: ranks of its positives and the first document of each system."""
    documents = [
        (f"relevant: rank {rank_a or '–'} in A, {rank_b or '–'} in B", document)
        for document, (rank_a, rank_b) in list(query.positives.items())[:_POSITIVES_SHOWN]
    ]
    for system, first in (("A", query.first_a), ("B", query.first_b)):
        if first is not None and first not in query.positives:
            documents.append((f"{system} first", first))
    lines = [("text", query.text)]
    lines += [
        (label, f"{document}: {document_text(query.task, document)}")
        for label, document in documents
    ]
    left = len(query.positives) - _POSITIVES_SHOWN
    if left > 0:
        lines.append(("", f"and {plural(left, 'more positive')}"))
    title = task_label(query.task.name)
    if describe_task_data(query.task):
        title = f"{title} {NOT_PUBLISHED}"
    name = f"query {snippet(query.query_id, 30)} of {title}"
    scores = f"A {100 * query.score_a:.2f}, B {100 * query.score_b:.2f}"
    room = width - max(map(len, [name, *(label for label, _ in lines)])) - 2
    rows = [[label, snippet(text, room)] for label, text in lines]
    return Grid(make_columns(name, f"{scores} ({100 * query.difference:+.2f})"), rows)


@draw_registered.register
def draw_protocols(
    compared: ProtocolComparison, out: Paper, *, title: str = "protocols, field by field"
) -> None:
    """Print a row per protocol field that differs, then the unknown fields."""
    out.print(title, style="bold")
    names = [Column(SystemName(name), right=False) for name in compared.names]
    rows: list[list[Cell]] = [
        [_field(field), *map(_value, values)]
        for field, values in compared.fields.items()
        if not {*values} <= {ABSENT, *_UNSET}
    ]
    if rows:
        out.print(Grid([Column("field", right=False), *names], rows))
    else:
        unknown_count = sum(len(fields) for fields in compared.unknown.values())
        if unknown_count:
            out.print("The known settings are equal; the unknown ones below may differ.")
        else:
            out.print("All settings are equal.")
    for name, fields in compared.unknown.items():
        known_fields = [
            field for field in (*compared.fields, *compared.equal) if field not in fields
        ]
        listed_fields = ", ".join(map(_field, fields))
        unknown = (
            listed_fields
            if len(known_fields) > _FEW
            else f"everything but {', '.join(map(_field, known_fields))}"
        )
        if fields:
            out.print(f"Unknown for {name}: {unknown.removesuffix(' but ')}.")
    for text in compared.unverified:
        out.print(f"Not verified for {text}.")
    for name, works in zip(compared.names, compared.beside, strict=False):
        beside = "; ".join(works) or "no published figure: none is known to have this protocol"
        out.print(f"{name} is comparable with {beside}.", style="dim")


def _field(name: str) -> str:
    return name.replace("_", " ")


def _value(text: str) -> Cell:
    return Text(text, style="yellow") if text in (ABSENT, UNKNOWN) else SystemName(text)
