"""Audits on a terminal: training data compared with tasks, and a benchmark with itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from r2med.audit.findings import ROLES, Finding, Share, TaskAudit
from r2med.audit.training import CAUTION, Audit, Effect
from r2med.audit.within import Repeat, SelfAudit
from r2med.report.drawing import draw_registered
from r2med.report.table import (
    Cell,
    Column,
    Grid,
    Paper,
    SystemName,
    difference_cell,
    make_columns,
    score_cell,
    snippet,
    task_label,
)

_FINDINGS_SHOWN = 10
_CAPTION = (
    "Each text counts once, by its strongest match. Strong: pair, exact, contained or near. "
    "Contaminated: at least 1 % of the queries or 5 % of the positives"
)
_AMOUNTS = {
    "aligned": "{:.0f} % of the words",
    "fingerprints": "{:.0f} % of the fingerprints",
    "cosine": "cosine × 100 {:.0f}",
}
_STYLES = {"clean": "green", "suspicious": "yellow", "contaminated": "bold red"}


@draw_registered.register
def draw_audit(audit: Audit, out: Paper, *, limit: int = _FINDINGS_SHOWN) -> None:
    """Print the verdicts, the first `limit` findings with both texts, and the scores."""
    looked = ", ".join(ROLES[role] for role in audit.against)
    out.print(f"{audit.training}: {audit.rows:,} rows, searched for {looked}", style="bold")
    out.print(_verdicts(audit))
    for heading, name, most in (
        ("Findings, strongest first", "findings", limit),
        ("Boilerplate, not counted", "boilerplate", limit // 3),
        ("Equal texts under eight words, not counted", "short", limit // 3),
    ):
        findings = [(task, finding) for task in audit.tasks for finding in getattr(task, name)]
        _print_findings(heading, findings, out, most)
    if effects := [effect for effect in audit.effects if effect.affected_queries]:
        out.print(_effects(effects))
        out.print(CAUTION, style="dim")


def _verdicts(audit: Audit) -> Grid:
    """The verdict on each task, with the shares of strong findings by type of match."""
    rows: list[list[Cell]] = []
    for task in audit.tasks:
        head: list[Cell] = [task_label(task.task), Text(task.verdict, _STYLES[task.verdict])]
        types = dict.fromkeys(share.kind for share in task.shares if share.affected)
        for match_type in types or ["any strong"]:
            shares = {share.role: share for share in task.shares if share.kind == match_type}
            rows.append([*head, match_type, *(_share(shares.get(role)) for role in audit.against)])
            head = ["", ""]
    columns = [
        *make_columns("task", "verdict"),
        Column("kind", right=False, repeat=True),
        *make_columns(*(f">{ROLES[role]}" for role in audit.against)),
    ]
    return Grid(columns, rows, caption=_CAPTION)


def _share(share: Share | None) -> str | None:
    if share is None or not share.of:
        return None
    text = f"{share.affected:,} of {share.of:,} ({100 * share.affected / share.of:.1f} %)"
    span = share.interval
    return text if span is None else f"{text}, {100 * span.low:.1f} to {100 * span.high:.1f} %"


def _print_findings(
    heading: str, findings: Sequence[tuple[TaskAudit, Finding]], out: Paper, limit: int
) -> None:
    if not findings:
        return
    out.print()
    out.print(f"{heading} ({len(findings):,})", style="bold")
    width = min(out.width, 160) - 12
    for task, finding in findings[:limit]:
        first = finding.evidence[0]
        partner = f" with {finding.with_id}" if finding.with_id else ""
        more = f" and {finding.rows - 1:,} more" if finding.rows > 1 else ""
        amount = "".join(
            f", {words.format(100 * first.measures[name])}"
            for name, words in _AMOUNTS.items()
            if first.measures.get(name, 1) < 1
        )
        out.print(
            f"{finding.kind}{amount}: {task_label(task.task)} {finding.role} {finding.id}{partner}"
            f" in {first.file}, row {first.row:,} ({first.column}){more}"
        )
        out.print(f"  task      {snippet(finding.text, width)}", style="dim")
        out.print(f"  training  {snippet(first.text, width)}", style="dim")
    if len(findings) > limit:
        left = len(findings) - limit
        out.print(
            f"{left:,} more; --limit shows more of them, --json or --out shows all.", style="dim"
        )


def _effects(effects: Sequence[Effect]) -> Grid:
    rows: list[list[Cell]] = []
    for effect in effects:
        span, affected = effect.interval, effect.affected_queries
        rows.append(
            [
                SystemName(f"{task_label(effect.task)}: {effect.name}"),
                *map(score_cell, (effect.raw, effect.decontaminated, effect.affected)),
                f"{affected}/{affected + effect.unaffected_queries}",
                difference_cell(effect.difference),
                f"{100 * span.low:+.1f} to {100 * span.high:+.1f}" if span else None,
            ]
        )
    figures = (">raw", ">clean", ">affected", ">queries", ">difference", ">95 %")
    columns, title = make_columns("task: system", *figures), f"{effects[0].metric} × 100"
    caption = "raw: all queries; clean: those not affected; difference: affected minus clean"
    return Grid(columns, rows, title=title, caption=caption)


@draw_registered.register
def draw_self_audit(audit: SelfAudit, out: Paper, *, limit: int = _FINDINGS_SHOWN) -> None:
    """Print counts by type, within and across tasks, and the first `limit` pairs of each."""
    out.print(", ".join(map(task_label, audit.tasks)), style="bold")
    out.print(f"{audit.queries:,} queries, {audit.documents:,} documents")
    groups: dict[tuple[str, str, str], list[Repeat]] = {}
    for repeat in audit.repeats:
        texts = "queries" if repeat.role == "query" else "documents"
        groups.setdefault((repeat.issue, texts, repeat.kind), []).append(repeat)
    if not groups:
        out.print("Nothing is repeated, and no query names its answer.")
        return
    rows: list[list[Cell]] = []
    for key, repeats in groups.items():
        across = Counter(repeat.across for repeat in repeats)
        rows.append([*key, f"{across[False]:,}", f"{across[True]:,}"])
    out.print(Grid(make_columns("found", "among", "how", ">in a task", ">across tasks"), rows))
    width = min(out.width, 160) - 4
    for key, repeats in groups.items():
        out.print()
        out.print(f"{', '.join(key)} ({len(repeats):,})", style="bold")
        for repeat in repeats[:limit]:
            first = f"{task_label(repeat.task)} {repeat.role} {repeat.id}"
            only = f" (positive of query {repeat.query} only)" if repeat.query else ""
            partner = f" and {task_label(repeat.other_task)} {repeat.other_role} {repeat.other_id}"
            out.print(f"{first}{only}{partner if repeat.other_task else ''}")
            out.print(f"  {snippet(repeat.text, width)}", style="dim")
            if repeat.kind != "exact":
                out.print(f"  {snippet(repeat.other_text, width)}", style="dim")
