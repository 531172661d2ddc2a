"""Leakage on a terminal: training data held against tasks, and a benchmark against itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from r2med.audit.findings import ROLES, Finding, Share, TaskAudit
from r2med.audit.training import CAUTION, Audit, Effect
from r2med.audit.within import Repeat, SelfAudit
from r2med.report.table import (
    Cell,
    Grid,
    Paper,
    SystemName,
    columns_of,
    points,
    signed,
    snippet,
    task_label,
)

_FINDINGS_SHOWN = 10
_CAPTION = (
    "Each counts once, at its strongest kind. Strong: as a pair, exactly, contained or nearly the "
    "same; contaminated from 1 % of the queries or 5 % of the positives on"
)
_AMOUNTS = {
    "aligned": "{:.0f} % of the words",
    "fingerprints": "{:.0f} % of the fingerprints",
    "cosine": "cosine × 100 {:.0f}",
}
_STYLES = {"clean": "green", "suspicious": "yellow", "contaminated": "bold red"}


def draw(audit: Audit | SelfAudit, out: Paper, *, limit: int = _FINDINGS_SHOWN) -> None:
    """Print the verdicts, the first `limit` findings with both texts, and the scores."""
    if isinstance(audit, SelfAudit):
        _draw_repeats(audit, out, limit)
        return
    looked = ", ".join(ROLES[role] for role in audit.against)
    out.print(f"{audit.training}: {audit.rows:,} rows, looked through for {looked}", style="bold")
    out.print(_verdicts(audit))
    for heading, name, most in (
        ("Findings, strongest first", "findings", limit),
        ("Boilerplate, not counted", "boilerplate", limit // 3),
        ("Equal texts under eight words, not counted", "short", limit // 3),
    ):
        findings = [(task, each) for task in audit.tasks for each in getattr(task, name)]
        _print_findings(heading, findings, out, most)
    if effects := [effect for effect in audit.effects if effect.affected_queries]:
        out.print(_effects(effects))
        out.print(CAUTION, style="dim")


def _verdicts(audit: Audit) -> Grid:
    """The verdict of each task with what was found strongly, then by kind."""
    rows: list[list[Cell]] = []
    for task in audit.tasks:
        head: list[Cell] = [task_label(task.task), Text(task.verdict, _STYLES[task.verdict])]
        kinds = dict.fromkeys(each.kind for each in task.shares if each.affected)
        for kind in kinds or ["any strong"]:
            shares = {each.role: each for each in task.shares if each.kind == kind}
            rows.append([*head, kind, *(_share(shares.get(role)) for role in audit.against)])
            head = ["", ""]
    columns = columns_of("task", "verdict", "kind", *(f">{ROLES[role]}" for role in audit.against))
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
        out.print(f"{left:,} more; --limit shows more, --json or --out all.", style="dim")


def _effects(effects: Sequence[Effect]) -> Grid:
    rows: list[list[Cell]] = []
    for effect in effects:
        span, affected = effect.interval, effect.affected_queries
        rows.append(
            [
                SystemName(f"{task_label(effect.task)}: {effect.name}"),
                *map(points, (effect.raw, effect.decontaminated, effect.affected)),
                f"{affected}/{affected + effect.unaffected_queries}",
                signed(effect.difference),
                f"{100 * span.low:+.1f} to {100 * span.high:+.1f}" if span else None,
            ]
        )
    figures = (">raw", ">clean", ">affected", ">queries", ">difference", ">95 %")
    columns, title = columns_of("task: system", *figures), f"{effects[0].metric} × 100"
    caption = "raw: all queries; clean: those not affected; difference: affected minus clean"
    return Grid(columns, rows, title=title, caption=caption)


def _draw_repeats(audit: SelfAudit, out: Paper, limit: int) -> None:
    """Counts by kind, within and across tasks, and the first `limit` pairs of each."""
    out.print(", ".join(map(task_label, audit.tasks)), style="bold")
    out.print(f"{audit.queries:,} queries, {audit.documents:,} documents")
    groups: dict[tuple[str, str, str], list[Repeat]] = {}
    for repeat in audit.repeats:
        what = "queries" if repeat.role == "query" else "documents"
        groups.setdefault((repeat.issue, what, repeat.kind), []).append(repeat)
    if not groups:
        out.print("Nothing is repeated, and no query names its answer.")
        return
    rows: list[list[Cell]] = []
    for key, repeats in groups.items():
        across = Counter(repeat.across for repeat in repeats)
        rows.append([*key, f"{across[False]:,}", f"{across[True]:,}"])
    out.print(Grid(columns_of("found", "among", "how", ">in a task", ">across tasks"), rows))
    width = min(out.width, 160) - 4
    for key, repeats in groups.items():
        out.print()
        out.print(f"{', '.join(key)} ({len(repeats):,})", style="bold")
        for repeat in repeats[:limit]:
            first = f"{task_label(repeat.task)} {repeat.role} {repeat.id}"
            only = f" (positive of query {repeat.query} only)" if repeat.query else ""
            other = f" and {task_label(repeat.other_task)} {repeat.other_role} {repeat.other_id}"
            out.print(f"{first}{only}{other if repeat.other_task else ''}")
            out.print(f"  {snippet(repeat.text, width)}", style="dim")
            if repeat.kind != "exact":
                out.print(f"  {snippet(repeat.other_text, width)}", style="dim")
