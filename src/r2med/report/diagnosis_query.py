"""One query under diagnosis: its positives with their evidence, and what stands above them."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from r2med.report.console import visible
from r2med.report.diagnosis_evidence import evidence
from r2med.report.table import snippet
from r2med.results.diagnosis.causes import CAUSES, TOP
from r2med.results.diagnosis.findings import Diagnosis, PositiveFinding, QueryFinding, RankedFinding
from r2med.tasks.task import Task


def print_query(diagnosis: Diagnosis, query: QueryFinding, task: Task, out: Console) -> None:
    """The whole story of one query."""
    title = f"{diagnosis.task} · query {snippet(query.query_id, 30)} · {diagnosis.system}"
    out.print(snippet(title, out.width), style="bold")
    _indented(visible(task.query(query.query_id)).strip(), out)
    if query.answer:
        of = f" ({query.body_system})" if query.body_system else ""
        out.print(f"asked for: {visible(query.answer + of)}")
    out.print(f"{diagnosis.metric} × 100 = {100 * query.score:.2f}, {query.outcome}")
    out.print("\npositives", style="bold")
    for positive in query.positives:
        _positive(query, positive, task, out)
    out.print(f"\ntop {TOP}, {query.holes} unjudged", style="bold")
    for ranked in query.top:
        _ranked(ranked, task, out)


def _positive(query: QueryFinding, positive: PositiveFinding, task: Task, out: Console) -> None:
    rank = f"rank {positive.rank}" if positive.rank else "not listed"
    title = CAUSES[positive.cause].title if positive.cause else "found"
    out.print(f"{rank} · {visible(positive.document_id)} · {title}")
    _indented(_document(task, positive.document_id, out.width - 4), out, style="dim")
    _indented(visible(evidence(query, positive)), out)


def _ranked(ranked: RankedFinding, task: Task, out: Console) -> None:
    covered = f"{100 * ranked.coverage:.0f} % of the query"
    head = f"{ranked.rank} · {visible(ranked.document_id)} · {ranked.label} · {covered}"
    out.print(head)
    _indented(_document(task, ranked.document_id, out.width - 4), out, style="dim")
    if ranked.answers and ranked.label != "positive":
        _indented(f"evidence for: {visible('; '.join(ranked.answers))}", out)
    if ranked.shared:
        _indented(snippet(f"shares: {', '.join(ranked.shared)}", out.width - 4), out)


def _document(task: Task, document_id: str, width: int) -> str:
    try:
        return snippet(task.document(document_id), width)
    except KeyError:
        return "(not in the corpus)"


def _indented(text: str, out: Console, style: str = "") -> None:
    out.print(Padding(Text(text, style=style), (0, 2)))
