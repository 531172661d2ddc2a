"""The outcome of a leakage audit: a verdict per task, the evidence, and what it does to scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.text import Text

from r2med.audit.evaluation import Role
from r2med.audit.findings import KINDS, Finding, TaskAudit
from r2med.audit.training import CAUTION, Audit, Effect
from r2med.report.table import Cell, Column, Grid, Paper, points, signed, snippet, task_label

_FINDINGS_SHOWN = 10
_NAMES: dict[Role, str] = {"query": "queries", "positive": "positives", "document": "documents"}
_CAPTION = (
    "found: as a pair, exactly, contained or nearly the same (strong findings); contaminated from "
    "1 % of the queries or 5 % of the positives on"
)
_AMOUNTS = {
    "aligned": "{:.0f} % of the words",
    "fingerprints": "{:.0f} % of the fingerprints",
    "cosine": "cosine × 100 {:.0f}",
}
_STYLES = {"clean": "green", "suspicious": "yellow", "contaminated": "bold red"}


def draw(audit: Audit, out: Paper, *, limit: int = _FINDINGS_SHOWN) -> None:
    """Print the verdicts, the first `limit` findings with both texts, and the scores."""
    looked = ", ".join(_NAMES.get(role, role) for role in audit.against)  # type: ignore[call-overload]
    out.print(f"{audit.training}: {audit.rows:,} rows, looked through for {looked}", style="bold")
    out.print(_verdicts(audit))
    for task in audit.tasks:
        if task.verdict != "clean":
            out.print(f"{task_label(task.task)}: {task.verdict}; {task.reason}.")
    if grid := _kinds(audit):
        out.print(grid)
    for heading, findings in (
        ("Findings, strongest first", [(t, f) for t in audit.tasks for f in t.findings]),
        ("Boilerplate, not counted", [(t, f) for t in audit.tasks for f in t.boilerplate]),
        ("Equal texts under eight words, not counted", _short(audit)),
    ):
        _findings(heading, findings, out, limit if heading.startswith("Find") else limit // 3)
    if audit.effects:
        out.print(_effects(audit.effects))
        out.print(CAUTION, style="dim")


def _verdicts(audit: Audit) -> Grid:
    roles = list(dict.fromkeys(share.role for task in audit.tasks for share in task.shares))
    titles = ["task", "verdict", *(f"{_NAMES[role]} found" for role in roles)]
    rows: list[list[Cell]] = []
    for task in audit.tasks:
        strong = {share.role: share for share in task.shares if share.kind == "any strong"}
        cells: list[Cell] = []
        for role in roles:
            share = strong.get(role)
            if share is None or not share.of:
                cells.append(None)
                continue
            text = f"{share.affected:,} of {share.of:,} ({100 * share.affected / share.of:.1f} %)"
            if (span := share.interval) is not None:
                text += f", {100 * span.low:.1f} to {100 * span.high:.1f} %"
            cells.append(text)
        verdict = Text(task.verdict, _STYLES[task.verdict])
        rows.append([task_label(task.task), verdict, *cells])
    columns = [Column(title, right=place > 1) for place, title in enumerate(titles)]
    return Grid(columns, rows, caption=_CAPTION)


def _kinds(audit: Audit) -> Grid | None:
    """Counts by kind over all tasks, where anything was found."""
    counts = Counter((s.kind, s.role) for task in audit.tasks for s in task.shares if s.affected)
    totals = Counter[tuple[str, Role]]()
    for task in audit.tasks:
        for share in task.shares:
            totals[share.kind, share.role] += share.affected
    kinds = [kind for kind in KINDS if any(one == kind for one, _ in counts)]
    if not kinds:
        return None
    roles = [role for role in _NAMES if any(one == role for _, one in counts)]
    rows: list[list[Cell]] = [
        [kind, *(f"{totals[kind, role]:,}" for role in roles)] for kind in kinds
    ]
    columns = [Column("strongest kind", right=False), *(Column(_NAMES[role]) for role in roles)]
    return Grid(columns, rows)


def _short(audit: Audit) -> list[tuple[TaskAudit, Finding]]:
    return [(task, finding) for task in audit.tasks for finding in task.short]


def _findings(
    heading: str, findings: Sequence[tuple[TaskAudit, Finding]], out: Paper, limit: int
) -> None:
    if not findings:
        return
    out.print()
    out.print(f"{heading} ({len(findings):,})", style="bold")
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
        width = min(out.width, 160) - 12
        out.print(f"  task      {snippet(finding.text, width)}", style="dim")
        out.print(f"  training  {snippet(first.text, width)}", style="dim")
    if len(findings) > limit:
        left = len(findings) - limit
        out.print(f"{left:,} more; --limit shows more, --json or --out all.", style="dim")


def _effects(effects: Sequence[Effect]) -> Grid:
    titles = ("task", "system", "raw", "clean", "affected", "queries", "difference", "95 %")
    rows: list[list[Cell]] = []
    for effect in effects:
        low_high = effect.interval
        rows.append(
            [
                task_label(effect.task),
                effect.system,
                points(effect.raw),
                points(effect.decontaminated),
                points(effect.affected),
                f"{effect.affected_queries}/{effect.affected_queries + effect.unaffected_queries}",
                signed(effect.difference),
                f"{100 * low_high.low:+.1f} to {100 * low_high.high:+.1f}" if low_high else None,
            ]
        )
    columns = [Column(title, right=place > 1) for place, title in enumerate(titles)]
    caption = "raw: all queries; clean: those not affected; difference: affected minus clean"
    return Grid(columns, rows, title=f"{effects[0].metric} × 100", caption=caption)
