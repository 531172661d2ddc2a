"""A diagnosis on a terminal: causes first, then the queries, then where the system is weak."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from rich.console import Console
from rich.text import Text

from r2med.report.table import Column, Grid, snippet
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding
from r2med.results.diagnosis.slices import Slice, slices

_RANKS_SHOWN = 5


def print_diagnosis(diagnosis: Diagnosis, out: Console, *, limit: int) -> None:
    """One task: summary, causes and the worst queries."""
    out.print(f"{diagnosis.task} · {snippet(diagnosis.system, 60)}", style="bold")
    for line in _summary(diagnosis):
        out.print(line)
    if diagnosis.causes:
        out.print()
        out.print(_causes(diagnosis).table())
    out.print()
    out.print(_queries(diagnosis, out.width, limit).table())
    for line in diagnosis.open:
        out.print(f"not told apart: {line}", style="dim")


def print_slices(diagnoses: Sequence[Diagnosis], out: Console) -> None:
    """Where the system is weak, over all tasks."""
    found = slices(diagnoses)
    if not found:
        return
    out.print()
    out.print(_slices(found, diagnoses[0].metric).table())


def _summary(diagnosis: Diagnosis) -> list[str]:
    score = 100 * fmean(query.score for query in diagnosis.queries)
    missed = sum(diagnosis.causes.values())
    found = diagnosis.positives - missed
    lines = [
        f"{diagnosis.metric} × 100 = {score:.2f} over {len(diagnosis.queries)} queries",
        f"{found} of {diagnosis.positives} positives stand in the top {TOP}, {missed} are missed",
    ]
    if diagnosis.out_of_reach:
        lines.append(
            f"{diagnosis.out_of_reach} are not among the {diagnosis.depth} listed at all: "
            "no reranker of this list could help"
        )
    share = 100 * diagnosis.holes / max(1, diagnosis.looked_at)
    return [
        *lines,
        f"{diagnosis.holes} of {diagnosis.looked_at} documents in the top {TOP} are unjudged "
        f"(holes, {share:.0f} %)",
    ]


def _causes(diagnosis: Diagnosis) -> Grid:
    columns = [Column("cause", right=False), Column("missed"), Column("that is", right=False)]
    rows = [
        [Text(CAUSES[name].title), Text(str(count)), Text(CAUSES[name].meaning)]
        for name, count in sorted(diagnosis.causes.items(), key=lambda pair: -pair[1])
    ]
    return Grid(columns, rows)


def _queries(diagnosis: Diagnosis, width: int, limit: int) -> Grid:
    """The worst queries first; the last column takes what room is left."""
    worst = sorted(diagnosis.queries, key=lambda query: query.score)
    shown = worst[:limit]
    titles = ["query", diagnosis.metric, "positives at", "cause"]
    cells = [[_text(cell) for cell in _query_cells(query)] for query in shown]
    taken = sum(
        max([len(title), *(row[place].cell_len for row in cells)]) + 2
        for place, title in enumerate(titles)
    )
    columns = [Column(titles[0], right=False), Column(titles[1])]
    columns += [Column(titles[2], right=False), Column(titles[3], right=False)]
    if any(query.answer for query in shown) and width - taken >= 12:
        columns.append(Column("asked for", right=False))
        for row, query in zip(cells, shown, strict=True):
            row.append(_text(snippet(query.answer or "", width - taken)))
    left = len(worst) - len(shown)
    caption = f"{left} better queries are not shown; --limit, --json or --out" if left else None
    return Grid(columns, cells, caption=caption)


def _query_cells(query: QueryFinding) -> list[str]:
    cause = CAUSES[query.cause].title if query.cause else "all found"
    return [snippet(query.query_id, 16), f"{100 * query.score:.1f}", ranks(query), cause]


def ranks(query: QueryFinding) -> str:
    """The ranks of a query's positives; a dash is below the list."""
    told = [str(each.rank) if each.rank else "–" for each in query.positives]
    more = len(told) - _RANKS_SHOWN
    return " ".join(told[:_RANKS_SHOWN]) + (f" +{more}" if more > 0 else "")


def _slices(found: Sequence[Slice], metric: str) -> Grid:
    rows, ends = [], []
    for place, each in enumerate(found):
        first = place == 0 or found[place - 1].by != each.by
        if first and place:
            ends.append(place - 1)
        interval = each.interval
        span = "" if interval is None else f"{100 * interval.low:.0f} to {100 * interval.high:.0f}"
        rows.append(
            [
                _text(each.by if first else ""),
                _text(snippet(each.value, 36)),
                _text(str(each.queries)),
                _text(f"{100 * each.score:.1f}"),
                _text(span),
                _text(f"{100 * each.hit:.0f}"),
            ]
        )
    columns = [
        Column("slice", right=False),
        Column("", right=False),
        Column("queries"),
        Column(metric),
        Column("95 %"),
        Column(f"hit@{TOP}"),
    ]
    return Grid(columns, rows, ends=frozenset(ends), caption="all values × 100")


def _text(cell: str) -> Text:
    return Text(cell)
