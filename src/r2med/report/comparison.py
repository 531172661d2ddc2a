"""Comparisons on a terminal: scores by task or as a matrix, queries that moved, protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from r2med.errors import plural
from r2med.measure.significance import SIGNIFICANT, Pair, p_equation, p_value
from r2med.report.table import (
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    columns_of,
    document_text,
    points,
    print_fitting,
    snippet,
    task_label,
)
from r2med.results.compare import Comparison
from r2med.results.movement import Movement, QueryMovement
from r2med.results.protocols import ABSENT, UNKNOWN, ProtocolComparison
from r2med.tasks.registry import find_suite

#: Columns that the layouts do without, from wide to narrow; the narrow ones also round more.
_LEFT_OUT = ((), ("t",), ("t", "n"), ("t", "n", "d"))
_POSITIVES_SHOWN = 5
_QUERIES_SHOWN = 10
#: A snippet ends here, however wide the page is.
_WIDEST = 120
#: Of a protocol of which no more is known, that is what is said.
_FEW = 2
#: Values of settings that nobody made; where all agree on them, they are not listed.
_UNSET = ("none", "no", "0", "not pinned")


def draw(value: Comparison | Movement | ProtocolComparison, out: Paper, **settings: Any) -> None:
    """Print a comparison: one table for two systems, a matrix for more; queries; or protocols."""
    if isinstance(value, Movement):
        _draw_movement(value, out, **settings)
    elif isinstance(value, ProtocolComparison):
        draw_protocols(value, out, **settings)
    elif len(value.systems) == 2:
        _draw_pair(value, out)
    else:
        _draw_matrix(value, out)


def _draw_pair(comparison: Comparison, out: Paper) -> None:
    """One row per task, then both poolings, each under its own name."""
    (a, b), [pair] = comparison.systems, comparison.pairs
    out.print(f"A = {a}\nB = {b}", style="bold")
    out.print(_data(comparison))
    print_fitting((_pair_grid(pair, comparison.metric, left_out) for left_out in _LEFT_OUT), out)
    many, p = len(pair.tasks) > 1, pair.by_task.p_randomisation
    out.print(
        f"× 100. A-B: mean difference, *: p < {SIGNIFICANT}, of tasks Holm's; 95 %: its t "
        "interval, wider for heavy tails. p: paired randomisation test, two-sided; Holm: corrected "
        "over the tasks; t: paired t-test. d: effect size, mean difference / standard deviation. "
        "w/t/l: queries A won, tied, lost.",
        style="dim",
    )
    if many:
        means = "task mean: each task counts once. all queries: each query counts once."
        out.print(means, style="dim")
    better = "A" if pair.by_task.difference > 0 else "B"
    verdict = f"{better} is better" if p < SIGNIFICANT else "A and B cannot be told apart"
    where = "by task mean" if many else f"on {pair.tasks[0].task}"
    out.print(f"{where}: {verdict} ({p_equation(p)}).", style="dim")


def _pair_grid(pair: Pair, metric: str, left_out: Sequence[str]) -> Grid:
    narrow = bool(left_out)
    digits = 1 if narrow else 2
    lines: list[dict[str, Cell]] = []
    for each in pair.lines:
        own, p_holm = each.difference, each.p_holm
        low, high = own.interval.low, own.interval.high
        significant = (own.p_randomisation if p_holm is None else p_holm) < SIGNIFICANT
        lines.append(
            {
                metric: SystemName(task_label(each.task)),
                "n": str(own.queries),
                "A": points(own.mean_a),
                "B": points(own.mean_b),
                "A-B": _starred(own.difference, significant),
                "95 %": f"{100 * low:+.{digits}f} {100 * high:+.{digits}f}",
                "p": p_value(own.p_randomisation),
                "Holm": "" if p_holm is None else p_value(p_holm),
                "t": p_value(own.p_t),
                "d": f"{own.effect:+.2f}",
                "w/t/l": f"{own.won}/{own.tied}/{own.lost}",
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


def _starred(difference: float, significant: bool, otherwise: str = "") -> Text:
    """A difference with its star and colour; others have a style of their own."""
    style = ("green" if difference > 0 else "red") if significant else otherwise
    return Text(f"{100 * difference:+.2f}{'*' if significant else ' '}", style)


def _draw_matrix(comparison: Comparison, out: Paper) -> None:
    """Row minus column, by task mean; a star where Holm's correction over all pairs leaves it."""
    cells = {
        place: _starred(difference, p_holm < SIGNIFICANT, "dim")
        for place, (difference, p_holm) in comparison.matrix.items()
    }
    places = range(len(comparison.systems))
    numbers = [f"[{place + 1}]" for place in places]
    out.print(f"{comparison.metric} × 100 {_data(comparison)}, row minus column", style="bold")
    columns = columns_of("", ">mean", *(f">{number}" for number in numbers))
    rows = [
        [
            SystemName(f"{numbers[row]} {comparison.systems[row]}"),
            points(mean),
            *(cells.get((row, column), Text("")) for column in places),
        ]
        for row, mean in enumerate(comparison.means)
    ]
    print_fitting((Grid(columns, rows, gap=gap) for gap in (2, 1)), out)
    tasks, pairs = comparison.tasks, comparison.pairs
    over = next(iter(tasks)) if len(tasks) == 1 else f"task mean over {len(tasks)} tasks"
    out.print(
        f"{over}, {pairs[0].by_query.queries} queries. *: p < {SIGNIFICANT} after Holm's "
        f"correction over {len(pairs)} pairs (paired randomisation test).",
        style="dim",
    )


def _data(comparison: Comparison) -> str:
    return f"on {find_suite(comparison.suite).title}" if comparison.suite else "on your data"


def _draw_movement(movement: Movement, out: Paper, *, limit: int = _QUERIES_SHOWN) -> None:
    """The first `limit` queries that moved at all, with snippets."""
    moved = movement.moved
    out.print(f"A = {movement.a}\nB = {movement.b}", style="bold")
    counts = f"{len(moved)} of {plural(len(movement.queries), 'query', 'queries')} moved"
    out.print(f"{movement.metric} × 100, A minus B: {counts}")
    for query in moved[:limit]:
        out.print()
        out.print(_query_grid(query, min(out.width, _WIDEST)))
    if len(moved) > limit:
        more = plural(len(moved) - limit, "more query", "more queries")
        out.print(f"{more} moved; --limit shows more, --json all.", style="dim")


def _query_grid(query: QueryMovement, width: int) -> Grid:
    """What was asked, where each system ranks the positives, and what it puts first instead."""
    documents = [
        (f"wanted A {rank_a or '–'} | B {rank_b or '–'}", document)
        for document, (rank_a, rank_b) in list(query.positives.items())[:_POSITIVES_SHOWN]
    ]
    for system, first in (("A", query.first_a), ("B", query.first_b)):
        if first is not None and first not in query.positives:
            documents.append((f"{system} first", first))
    lines = [("asked", query.text)]
    lines += [(what, f"{each}: {document_text(query.task, each)}") for what, each in documents]
    left = len(query.positives) - _POSITIVES_SHOWN
    if left > 0:
        lines.append(("", f"and {plural(left, 'more positive')}"))
    name = f"query {snippet(query.query_id, 30)} of {task_label(query.task.name)}"
    scores = f"A {100 * query.score_a:.2f}, B {100 * query.score_b:.2f}"
    room = width - max(map(len, [name, *(label for label, _ in lines)])) - 2
    rows = [[label, snippet(text, room)] for label, text in lines]
    return Grid(columns_of(name, f"{scores} ({100 * query.difference:+.2f})"), rows)


def draw_protocols(
    compared: ProtocolComparison, out: Paper, *, title: str = "protocols, field by field"
) -> None:
    """Print a row per field that differs, then what is unknown."""
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
        out.print("No known setting differs.")
    for name, fields in compared.unknown.items():
        known = [field for field in (*compared.fields, *compared.equal) if field not in fields]
        some = ", ".join(map(_field, fields))
        what = some if len(known) > _FEW else f"everything but {', '.join(map(_field, known))}"
        if fields:
            out.print(f"Unknown of {name}: {what.removesuffix(' but ')}.")
    for text in compared.unverified:
        out.print(f"Not verified of {text}.")
    for name, works in zip(compared.names, compared.beside, strict=False):
        beside = "; ".join(works) or "no printed figure: none is known to have this protocol"
        out.print(f"{name} may be set beside {beside}.", style="dim")


def _field(name: str) -> str:
    return name.replace("_", " ")


def _value(text: str) -> Cell:
    return Text(text, style="yellow") if text in (ABSENT, UNKNOWN) else SystemName(text)
