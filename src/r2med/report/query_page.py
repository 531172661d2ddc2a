"""One query on a terminal: its text, generations, positives and the first documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from r2med.errors import plural
from r2med.evaluation.explain import Explained
from r2med.number_format import format_percent
from r2med.report.console import visible
from r2med.report.diagnosis import OPEN
from r2med.report.drawing import draw_registered
from r2med.report.table import Paper, document_text, name_value_table, snippet
from r2med.results.diagnosis.causes import CAUSES, SHARING, TOP, PositiveFinding

if TYPE_CHECKING:
    from r2med.expand.agents import Trace
    from r2med.expand.answers import Expansion

_TERMS = 5
#: Verbs for the steps of an agent, and reasons why it stopped.
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


@draw_registered.register
def draw_query(page: Explained, out: Paper) -> None:
    """Print one query: its text, generations, positives and the first documents."""
    diagnosis, query, task = page.diagnosis, page.query, page.task
    title = f"{diagnosis.task_title} · query {snippet(query.query_id, 30)} · {diagnosis.system}"
    out.print(snippet(title, out.width), style="bold")
    _print_indented(task.query(query.query_id).strip(), out)
    if query.answer:
        of = f" ({query.body_system})" if query.body_system else ""
        out.print(f"expected answer: {query.answer}{of}")
    unjudged = f" ({query.holes} of the top {TOP} are unjudged)" if query.holes else ""
    out.print(f"{diagnosis.metric} × 100 = {100 * query.score:.2f}, {query.outcome}{unjudged}")
    if page.expansion is not None:
        _draw_generations(page, page.expansion, out)
    _draw_rerank_answers(page, out)
    out.print("\npositives", style="bold")
    for positive in query.positives:
        _draw_positive(positive, page, out)
    out.print(f"\ntop {TOP}, {query.holes} unjudged", style="bold")
    for ranked in query.top:
        covered = f"{format_percent(ranked.coverage)} of the query's terms"
        if ranked.document_id in page.searched:
            covered += f", {_searched_share(page.searched[ranked.document_id])}"
        out.print(f"{ranked.rank} · {ranked.document_id} · {ranked.label} · {covered}")
        text = document_text(task, ranked.document_id)
        _print_indented(snippet(text, out.width - 4), out, style="dim")
        if ranked.answers and ranked.label != "positive":
            _print_indented(f"evidence for: {'; '.join(ranked.answers)}", out)
        if ranked.shared:
            _print_indented(snippet(f"shares: {', '.join(ranked.shared)}", out.width - 4), out)
    for line in diagnosis.open:
        out.print(OPEN.format(line), style="dim")


def _draw_rerank_answers(page: Explained, out: Paper) -> None:
    """Print the thoughts and answers of rerankers, and mark answers that could not be read."""
    for answer in page.rerank_answers:
        heading = f"reranker · {plural(len(answer.document_ids), 'document')}"
        out.print(f"\n{heading}", style="bold")
        if answer.thought:
            _print_indented(f"thought: {answer.thought.strip()}", out, style="dim")
        _print_indented(f"answer: {answer.answer.strip() or '(empty)'}", out)
        if not answer.is_read:
            _print_indented(
                f"(could not be read; the model ended with {answer.finish})", out, style="yellow"
            )


def _draw_generations(page: Explained, expansion: Expansion, out: Paper) -> None:
    [expanded] = expansion.queries
    method, source = page.diagnosis.system.partition(" | ")[0], expansion.source
    if page.prompt is not None:
        out.print("\nprompt as sent", style="bold")
        _print_indented(page.prompt.strip(), out)
    for number, sample in enumerate(expanded.samples, start=1):
        heading = f"{method} · {source}"
        if len(expanded.samples) > 1:
            heading += f" · sample {number} of {len(expanded.samples)}"
        out.print()
        out.print(Rule(Text(visible(heading), style="bold"), align="left", characters="─"))
        if number <= len(expanded.traces):
            _draw_trace(expanded.traces[number - 1], out)
        else:
            _print_indented(sample.answer.strip(), out)
        if sample.outcome != "ok":
            unused = "" if sample.useful else ": not searched with"
            _print_indented(f"({sample.outcome}{unused})", out, style="yellow")


def _draw_trace(trace: Trace, out: Paper) -> None:
    steps = []
    for number, step in enumerate(trace.steps, start=1):
        text = step.text.strip()
        if step.kind == "passages":
            text = ", ".join(step.documents) or "nothing was found"
        steps.append((f"{number:>3} {VERBS[step.kind]}", text))
    out.print(name_value_table(steps))
    searches = plural(len(trace.searches), "search", "searches")
    unreadable = f"; {trace.malformed} unreadable turns" if trace.malformed else ""
    stopped = f"stopped because {STOPS[trace.stop]}{unreadable}."
    _print_indented(f"{searches}, {trace.tokens:,} new tokens; {stopped}", out, style="dim")


def _draw_positive(positive: PositiveFinding, page: Explained, out: Paper) -> None:
    name, rank, alone = positive.document_id, positive.rank, positive.first_stage_rank
    position = f"rank {rank}" if rank else "not listed"
    if alone is not None:
        arrow = "▲" if rank is not None and rank < alone else "▼"
        moved = "as" if alone == rank else f"{arrow} from {alone}"
        position += f", {moved} in the first stage alone"
    out.print(
        f"{position} · {name} · {CAUSES[positive.cause].title if positive.cause else 'found'}"
    )
    _print_indented(snippet(document_text(page.task, name), out.width - 4), out, style="dim")
    _print_indented(evidence(positive, page.searched.get(name)), out)
    if page.members:
        listed = (
            f"{member} {ranks[name] or 'not listed'}" for member, ranks in page.members.items()
        )
        _print_indented(f"members: {'; '.join(listed)}", out)
    changes = page.changes.get(name, ())
    for word, sign in (("gained", 1), ("lost", -1)):
        strongest = [change for change in changes if sign * change.difference > 0][:_TERMS]
        if strongest:
            terms = (f"{change.term} {change.difference:+.2f}" for change in strongest)
            _print_indented(f"{word:7} {'  '.join(terms)}", out)


def _print_indented(text: str, out: Paper, style: str = "") -> None:
    out.print(Padding(Text(text, style=style), (0, 2)))


def _searched_share(share: float) -> str:
    return f"{format_percent(share)} of the expanded query's"


def evidence(positive: PositiveFinding, searched: float | None = None) -> str:
    """Return a sentence with the numbers that explain why a positive was missed or found.

    `searched` is the share of the expanded query's terms that the positive has. These terms may all
    be generated, because an expander may leave the original query out.
    """
    shares = ("coverage", "as_well", "top_coverage", "subject", "likeness")
    template = CAUSES[positive.cause].evidence if positive.cause else SHARING
    sentence = template.format(
        positive=positive,
        now="not in the list" if positive.rank is None else f"{positive.rank} now",
        **{name: format_percent(getattr(positive, name)) for name in shares},
    )
    return sentence if searched is None else f"{sentence}; it has {_searched_share(searched)} terms"
