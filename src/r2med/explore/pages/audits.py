"""Stored leakage audits: the verdicts, and the texts that both sides hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from r2med.explore.render import Link, plural, render
from r2med.report.table import task_label
from r2med.results.overlap import StoredAudit

_FINDINGS = 25


def audits_page(audits: Sequence[StoredAudit], damaged: Sequence[str], link: Link) -> str:
    """All outcomes in the results folder, newest first, each with its strongest findings."""
    return render(
        "audits.html",
        link,
        page="audits",
        title="Leakage audits",
        audits=audits,
        damaged=damaged,
        answer=answer(audits),
        label=task_label,
        most=_FINDINGS,
    )


def answer(audits: Sequence[StoredAudit]) -> str:
    """How the audited tasks fared, in a sentence with numbers."""
    if not audits:
        return "No training set has been audited here."
    sets = len({audit.training for audit in audits})
    verdicts = Counter(audit.verdict for audit in audits)
    parts = ", ".join(f"{count} {verdict}" for verdict, count in verdicts.items())
    return f"{plural(len(audits), 'outcome')} for {plural(sets, 'training set')}: {parts}."
