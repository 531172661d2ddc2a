"""One expanded query on a page: the query, what was generated, what moved and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from r2med.engine.showing import DEPTH, Change, Movement, Shown
from r2med.expand.agents import Step, Trace
from r2med.expand.answers import Sample
from r2med.report.console import visible

#: Words of a long text that are shown unless all are asked for.
_WORDS = 120
_SLACK = 20
_TERMS = 5
_VERBS = {
    "thought": "thinks",
    "search": "searches",
    "passages": "reads",
    "reminder": "is told",
    "answer": "answers",
}
_STOPS = {
    "answer": "it answered",
    "turns": "its turns were used up",
    "tokens": "its tokens were used up",
    "silence": "it said nothing",
}


def expansion_view(shown: Shown, *, full: bool = False) -> RenderableType:
    """The page; long texts are cut unless `full`."""
    parts: list[RenderableType] = [
        _heading(f"{shown.task} · query {shown.query.query_id}"),
        _body(shown.query.query, full),
    ]
    for number, sample in enumerate(shown.query.samples, start=1):
        parts += _sample(shown, number, sample, full)
    parts += _ranking(shown)
    return Group(*parts)


def _heading(title: str) -> RenderableType:
    return Group(Text(), Rule(Text(visible(title), style="bold"), align="left", characters="─"))


def _body(text: str, full: bool) -> RenderableType:
    return Padding(Text(_cut(visible(text).strip(), full)), (0, 2))


def _cut(text: str, full: bool) -> str:
    pieces = re.findall(r"\s*\S+", text)
    if full or len(pieces) <= _WORDS + _SLACK:
        return text
    left = len(pieces) - _WORDS
    return "".join(pieces[:_WORDS]) + f" … ({left} more words; --full shows all)"


def _sample(shown: Shown, number: int, sample: Sample, full: bool) -> Iterator[RenderableType]:
    several = len(shown.query.samples) > 1
    which = f" · sample {number} of {len(shown.query.samples)}" if several else ""
    source = str(shown.source.get("generations_from", ""))
    yield _heading(f"{shown.system.partition(' | ')[0]} · {source}{which}")
    if number <= len(shown.query.traces):
        yield _trace(shown.query.traces[number - 1], full)
    elif sample.raw.strip() != sample.answer.strip() and full:
        yield Padding(Text("as the model wrote it:", style="dim"), (0, 2))
        yield _body(sample.raw, full)
        yield Padding(Text("the answer in it:", style="dim"), (0, 2))
        yield _body(sample.answer, full)
    else:
        yield _body(sample.answer, full)
    if sample.outcome != "ok":
        told = f"({sample.outcome})" if sample.useful else f"({sample.outcome}: not searched with)"
        yield Padding(Text(told, style="yellow"), (0, 2))


def _trace(trace: Trace, full: bool) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1), expand=True)
    table.add_column(style="dim", justify="right", width=3)
    table.add_column(style="bold", width=8)
    table.add_column(ratio=1)
    for number, step in enumerate(trace.steps, start=1):
        table.add_row(str(number), _VERBS[step.kind], _step(step, full))
    searches = len(trace.searches)
    told = f"{searches} {'search' if searches == 1 else 'searches'}, {trace.tokens:,} new tokens; "
    told += f"stopped because {_STOPS[trace.stop]}"
    if trace.malformed:
        told += f"; {trace.malformed} unreadable turns"
    return Group(table, Padding(Text(told + ".", style="dim"), (0, 2)))


def _step(step: Step, full: bool) -> Text:
    if step.kind == "passages" and not full:
        return Text(visible(", ".join(step.documents)) or "nothing was found")
    return Text(_cut(visible(step.text).strip(), full))


def _ranking(shown: Shown) -> Iterator[RenderableType]:
    yield _heading(f"relevant documents: {shown.retriever} alone, and with the expansion")
    if not shown.movements:
        yield Padding(Text("No document is judged relevant to this query."), (0, 2))
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), expand=True, show_edge=False)
    table.add_column("document", ratio=1, overflow="fold")
    for name in ("alone", "with", "moved"):
        table.add_column(name, justify="right", width=7)
    for movement in shown.movements:
        table.add_row(*_row(movement))
    yield table
    for movement in shown.movements:
        yield from _reasons(movement)


def _row(movement: Movement) -> Sequence[Text]:
    style = {1: "green", -1: "red", 0: "dim"}[_direction(movement)]
    return (
        Text(visible(movement.document_id)),
        Text(_rank(movement.rank_before)),
        Text(_rank(movement.rank_after)),
        Text(_moved(movement), style=style),
    )


def _rank(rank: int | None) -> str:
    return f"> {DEPTH}" if rank is None else str(rank)


def _moved(movement: Movement) -> str:
    direction, places = _direction(movement), movement.moved
    if direction == 0:
        return "="
    arrow = "▲" if direction > 0 else "▼"
    return arrow if places is None else f"{arrow} {abs(places)}"


def _direction(movement: Movement) -> int:
    before = movement.rank_before or DEPTH + 1
    after = movement.rank_after or DEPTH + 1
    return (before > after) - (before < after)


def _reasons(movement: Movement) -> Iterator[RenderableType]:
    yield Text()
    title = Text(f"{visible(movement.document_id)}  ", style="bold")
    title.append(_snippet(movement.text), style="not bold")
    yield Padding(title, (0, 2))
    if movement.changes is None:
        yield Padding(Text(_similarity(movement), style="dim"), (0, 2))
        return
    gained = [change for change in movement.changes if change.difference > 0]
    lost = [change for change in movement.changes if change.difference < 0]
    for name, changes in (("gained", gained), ("lost", lost)):
        if changes:
            yield Padding(_terms(name, changes), (0, 2))
    if not movement.changes:
        yield Padding(Text("shares no term with either text", style="dim"), (0, 2))


def _similarity(movement: Movement) -> str:
    before, after = movement.score_before, movement.score_after
    if before is None or after is None:
        return "its score is below those that are listed"
    return f"similarity {before:.4f} alone, {after:.4f} with the expansion"


def _terms(name: str, changes: Sequence[Change]) -> Text:
    told = Text(f"{name:<7}", style="green" if name == "gained" else "red")
    for change in changes[:_TERMS]:
        told.append(f" {visible(change.term)}", style="default")
        told.append(f" {change.difference:+.2f}", style="dim")
    more = len(changes) - _TERMS
    if more > 0:
        rest = sum(change.difference for change in changes[_TERMS:])
        told.append(f" and {more} more {rest:+.2f}", style="dim")
    return told


def _snippet(text: str) -> str:
    words = visible(text).split()
    return " ".join(words[:16]) + (" …" if len(words) > 16 else "")
