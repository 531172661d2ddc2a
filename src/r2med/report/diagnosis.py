"""A diagnosis on a terminal: causes, the worst queries, weak slices; and one query's whole page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from r2med.errors import plural
from r2med.report.console import visible
from r2med.report.table import (
    Cell,
    Grid,
    Paper,
    SystemName,
    columns_of,
    document_text,
    pairs,
    percent,
    snippet,
)
from r2med.results.diagnosis.causes import CAUSES, SHARING, TOP, PositiveFinding
from r2med.results.diagnosis.findings import Diagnosis, Slice, TaskDiagnosis

if TYPE_CHECKING:
    from r2med.engine.explain import Explained
    from r2med.expand.agents import Trace
    from r2med.expand.answers import Expansion

_QUERIES_SHOWN = 20
_RANKS_SHOWN = 5
#: How many characters of a query's text a table shows.
_LEAST_TEXT, _MOST_TEXT = 12, 100
_TERMS = 5
_OPEN = "cannot be detected here: {}"
#: What an agent does in a step of each kind, and why it stopped.
VERBS = {
    "thought": "thinks",
    "search": "searches",
    "passages": "reads",
    "reminder": "is told",
    "answer": "answers",
}
STOPS = {
    "answer": "it answered",
    "turns": "its turns were used up",
    "tokens": "its tokens were used up",
    "silence": "it said nothing",
}


def draw(value: Diagnosis | Explained, out: Paper, *, limit: int = _QUERIES_SHOWN) -> None:
    """Every task with its causes and worst queries, then slices; or one query's page."""
    if not isinstance(value, Diagnosis):
        _draw_query(value, out)
        return
    for place, task in enumerate(value.tasks):
        if place:
            out.print()
        _draw_task(task, out, limit)
    if value.slices:
        out.print()
        out.print(_slices(value.slices, value.tasks[0].metric))


def _draw_task(task: TaskDiagnosis, out: Paper, limit: int) -> None:
    score = 100 * fmean(query.score for query in task.queries)
    missed, listed = sum(task.causes.values()), f"not among the {task.depth} listed"
    share = percent(task.holes / max(1, task.looked_at))
    out.print(f"{task.task} · {snippet(task.system, 60)}", style="bold")
    for line in (
        f"{task.metric} × 100 = {score:.2f} over {plural(len(task.queries), 'query', 'queries')}",
        f"positives in the top {TOP}: {task.positives - missed} of {task.positives}",
        f"missed: {missed}, of them {listed}, where no reranker could help: {task.out_of_reach}",
        f"unjudged documents in the top {TOP} (holes): {task.holes} of {task.looked_at} ({share})",
    ):
        out.print(line)
    counts = sorted(task.causes.items(), key=lambda pair: -pair[1])
    if counts:
        out.print()
        rows = [[CAUSES[name].title, str(count), CAUSES[name].meaning] for name, count in counts]
        out.print(Grid(columns_of("cause", ">missed", "that is"), rows))
    out.print()
    out.print(_queries(task, out.width, limit))
    for line in task.open:
        out.print(_OPEN.format(line), style="dim")


def _queries(task: TaskDiagnosis, width: int, limit: int) -> Grid:
    """The worst queries first; a dash is below the list, the text takes what room is left."""
    worst = sorted(task.queries, key=lambda query: query.score)
    columns = columns_of("query", f">{task.metric}", "positives at", "cause")
    rows = []
    for query in worst[:limit]:
        ranks = [str(each.rank or "–") for each in query.positives]
        places = [*ranks[:_RANKS_SHOWN], f"+{len(ranks) - _RANKS_SHOWN}"]
        rows.append(
            [
                snippet(query.query_id, 16),
                f"{100 * query.score:.2f}",
                " ".join(places if ranks[_RANKS_SHOWN:] else ranks),
                CAUSES[query.cause].title if query.cause else "all found",
            ]
        )
    room = width - Grid(columns, rows).width - 2
    for row, query in zip(rows, worst, strict=False):
        row.append(snippet(query.text, max(_LEAST_TEXT, min(room, _MOST_TEXT))))
    left = len(worst) - len(rows)
    caption = f"{left} better queries are not shown; --limit, --json or --out" if left else None
    return Grid([*columns, *columns_of("text")], rows, caption=caption)


def _slices(slices: Sequence[Slice], metric: str) -> Grid:
    rows: list[list[Cell]] = []
    ends = {place for place, (a, b) in enumerate(pairwise(slices)) if a.by != b.by}
    for place, each in enumerate(slices):
        span = each.interval
        interval = f"{100 * span.low:.0f} to {100 * span.high:.0f}" if span else ""
        scores = (f"{100 * each.score:.2f}", interval, f"{100 * each.hit:.0f}")
        by = each.by if not place or place - 1 in ends else ""
        rows.append([by, SystemName(each.value), str(each.queries), *scores])
    columns = columns_of("slice", "", ">queries", f">{metric}", ">95 %", f">hit@{TOP}")
    return Grid(columns, rows, ends=frozenset(ends), caption="all values × 100")


def _draw_query(page: Explained, out: Paper) -> None:
    """The whole story of one query."""
    diagnosis, query, task = page.diagnosis, page.query, page.task
    title = f"{diagnosis.task} · query {snippet(query.query_id, 30)} · {diagnosis.system}"
    out.print(snippet(title, out.width), style="bold")
    _indented(task.query(query.query_id).strip(), out)
    if query.answer:
        of = f" ({query.body_system})" if query.body_system else ""
        out.print(f"asked for: {query.answer}{of}")
    out.print(f"{diagnosis.metric} × 100 = {100 * query.score:.2f}, {query.outcome}")
    if page.expansion is not None:
        _draw_generations(page, page.expansion, out)
    out.print("\npositives", style="bold")
    for positive in query.positives:
        _draw_positive(positive, page, out)
    out.print(f"\ntop {TOP}, {query.holes} unjudged", style="bold")
    for ranked in query.top:
        covered = f"{percent(ranked.coverage)} of the query"
        out.print(f"{ranked.rank} · {ranked.document_id} · {ranked.label} · {covered}")
        text = document_text(task, ranked.document_id)
        _indented(snippet(text, out.width - 4), out, style="dim")
        if ranked.answers and ranked.label != "positive":
            _indented(f"evidence for: {'; '.join(ranked.answers)}", out)
        if ranked.shared:
            _indented(snippet(f"shares: {', '.join(ranked.shared)}", out.width - 4), out)
    for line in diagnosis.open:
        out.print(_OPEN.format(line), style="dim")


def _draw_generations(page: Explained, expansion: Expansion, out: Paper) -> None:
    [expanded] = expansion.queries
    method, source = page.diagnosis.system.partition(" | ")[0], expansion.source
    if page.prompt is not None:
        out.print("\nprompt, as it was sent", style="bold")
        _indented(page.prompt.strip(), out)
    for number, sample in enumerate(expanded.samples, start=1):
        heading = f"{method} · {source}"
        if len(expanded.samples) > 1:
            heading += f" · sample {number} of {len(expanded.samples)}"
        out.print()
        out.print(Rule(Text(visible(heading), style="bold"), align="left", characters="─"))
        if number <= len(expanded.traces):
            _draw_trace(expanded.traces[number - 1], out)
        else:
            _indented(sample.answer.strip(), out)
        if sample.outcome != "ok":
            unused = "" if sample.useful else ": not searched with"
            _indented(f"({sample.outcome}{unused})", out, style="yellow")


def _draw_trace(trace: Trace, out: Paper) -> None:
    steps = []
    for number, step in enumerate(trace.steps, start=1):
        text = step.text.strip()
        if step.kind == "passages":
            text = ", ".join(step.documents) or "nothing was found"
        steps.append((f"{number:>3} {VERBS[step.kind]}", text))
    out.print(pairs(steps))
    searches = plural(len(trace.searches), "search", "searches")
    unreadable = f"; {trace.malformed} unreadable turns" if trace.malformed else ""
    stopped = f"stopped because {STOPS[trace.stop]}{unreadable}."
    _indented(f"{searches}, {trace.tokens:,} new tokens; {stopped}", out, style="dim")


def _draw_positive(positive: PositiveFinding, page: Explained, out: Paper) -> None:
    name, rank, alone = positive.document_id, positive.rank, positive.first_stage_rank
    place = f"rank {rank}" if rank else "not listed"
    if alone is not None:
        arrow = "▲" if rank is not None and rank < alone else "▼"
        moved = "as" if alone == rank else f"{arrow} from {alone}"
        place += f", {moved} in the first stage alone"
    out.print(f"{place} · {name} · {CAUSES[positive.cause].title if positive.cause else 'found'}")
    _indented(snippet(document_text(page.task, name), out.width - 4), out, style="dim")
    _indented(evidence(positive), out)
    if page.members:
        ranks = (f"{each} {own[name] or 'not listed'}" for each, own in page.members.items())
        _indented(f"members: {'; '.join(ranks)}", out)
    changes = page.changes.get(name, ())
    for word, sign in (("gained", 1), ("lost", -1)):
        own = [change for change in changes if sign * change.difference > 0][:_TERMS]
        if own:
            terms = (f"{change.term} {change.difference:+.2f}" for change in own)
            _indented(f"{word:7} {'  '.join(terms)}", out)


def _indented(text: str, out: Paper, style: str = "") -> None:
    out.print(Padding(Text(text, style=style), (0, 2)))


def evidence(positive: PositiveFinding) -> str:
    """The numbers behind a positive's cause, as a sentence a reader can check."""
    shares = ("coverage", "as_well", "top_coverage", "subject", "likeness")
    template = CAUSES[positive.cause].evidence if positive.cause else SHARING
    return template.format(
        positive=positive,
        now="not in the list" if positive.rank is None else f"{positive.rank} now",
        **{name: percent(getattr(positive, name)) for name in shares},
    )
