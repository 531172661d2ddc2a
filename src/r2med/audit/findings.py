"""Findings of a scan by task: which texts are affected, how strongly, and the verdict.

Every query, positive and document is counted once, by its strongest kind of finding, in this order:

pair            a training row holds a query and one of its positives
exact, contained, near-duplicate        see `matching`
fingerprint     half of the text's fingerprints; unverified, and only with an exclusion list
excerpt         a part of the text, see `matching`
same source     a row whose id, title or address names the source of a positive
neighbour       a text with a similar meaning for an encoder; the words differ

The first five are strong. A task is *contaminated* when strong findings touch at least 1 % of its
queries or 5 % of its positives, *suspicious* with any other finding, else *clean*. Matches of
boilerplate and of texts under eight words are listed apart and decide nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Literal

import numpy as np

from r2med.audit.evaluation import EvaluationTexts, Holder, Role
from r2med.audit.scanning import EVIDENCE, Evidence, Hit, Scan
from r2med.measure.intervals import Interval, mean_interval

AuditVerdict = Literal["clean", "suspicious", "contaminated"]
#: From harmless to worst.
VERDICTS: tuple[AuditVerdict, ...] = ("clean", "suspicious", "contaminated")
STRONG = ("pair", "exact", "contained", "near-duplicate", "fingerprint")
KINDS = (*STRONG, "excerpt", "same source", "neighbour")
#: Shares of queries and of positives with a strong finding from which a task is contaminated.
CONTAMINATED: dict[Role, float] = {"query": 0.01, "positive": 0.05}
ROLES: dict[Role, str] = {"query": "queries", "positive": "positives", "document": "documents"}


@dataclass(frozen=True)
class Share:
    """How many queries, positives or documents of a task have `kind` as their strongest finding."""

    role: Role
    kind: str
    affected: int
    of: int
    interval: Interval | None = None
    """The interval of the share in the whole task, if only a sample was audited."""


@dataclass(frozen=True)
class Finding:
    """One query, positive or document that was found in training rows."""

    kind: str
    role: Role
    id: str
    text: str
    rows: int
    """Number of training rows with this type of match."""
    evidence: tuple[Evidence, ...]
    with_id: str | None = None
    """For a pair, the id of the other text in the same row: the positive of a query, or the
    reverse."""


@dataclass(frozen=True)
class TaskAudit:
    """The findings of one task."""

    task: str
    hash: str
    verdict: AuditVerdict
    reason: str
    shares: tuple[Share, ...]
    findings: tuple[Finding, ...]
    """The strongest finding of every query, positive and document."""
    boilerplate: tuple[Finding, ...]
    """Findings that match only words that many evaluation texts share; they do not affect the
    verdict."""
    short: tuple[Finding, ...]
    """Findings of texts under eight words; they do not affect the verdict."""
    affected_queries: tuple[str, ...]
    """Queries with a strong finding for the query itself or for one of its positives."""


def task_audits(evaluation: EvaluationTexts, scan: Scan) -> list[TaskAudit]:
    """Return the findings and the verdict of a scan for every task."""
    strongest: dict[Holder, Finding] = {}
    for pair, rows in _pairs(evaluation, scan.hits).items():
        for holder, partner, hit in zip(pair, pair[::-1], rows[0], strict=True):
            if holder not in strongest:
                text, evidence = evaluation.texts[hit.entry], [positive for _, positive in rows]
                strongest[holder] = _finding("pair", holder, text, evidence, partner.id)
    hits: dict[tuple[Holder, str, str], list[Hit]] = {}
    for hit in scan.hits:
        group = "boilerplate" if hit.boilerplate else "short" if hit.short else ""
        for holder in evaluation.holders[hit.entry]:
            hits.setdefault((holder, hit.kind, group), []).append(hit)
    apart: dict[tuple[str, str], list[Finding]] = {}
    for (holder, match_type, group), group_hits in hits.items():
        finding = _finding(match_type, holder, evaluation.texts[group_hits[0].entry], group_hits)
        if group:
            apart.setdefault((holder.task, group), []).append(finding)
        elif holder not in strongest or KINDS.index(match_type) < KINDS.index(
            strongest[holder].kind
        ):
            strongest[holder] = finding
    audits = []
    for task, data in evaluation.hashes.items():
        findings = [finding for holder, finding in strongest.items() if holder.task == task]
        strong = {
            (found_item.role, found_item.id) for found_item in findings if found_item.kind in STRONG
        }
        shares = tuple(_shares(task, evaluation, findings))
        verdict, reason = _verdict(shares)
        affected = [
            query
            for (owner, query), positives in evaluation.positives.items()
            if owner == task
            and ({("query", query), *(("positive", name) for name in positives)} & strong)
        ]
        audits.append(
            TaskAudit(
                task=task,
                hash=data,
                verdict=verdict,
                reason=reason,
                shares=shares,
                findings=tuple(sorted(findings, key=_order)),
                boilerplate=tuple(sorted(apart.get((task, "boilerplate"), ()), key=_order)),
                short=tuple(sorted(apart.get((task, "short"), ()), key=_order)),
                affected_queries=tuple(affected),
            )
        )
    return audits


def _pairs(
    evaluation: EvaluationTexts, hits: Sequence[Hit]
) -> dict[tuple[Holder, Holder], list[tuple[Hit, Hit]]]:
    """Find training rows that contain both a query and one of its positives.

    Returns the two hits of each such row, by query and positive.
    """
    pairs: dict[tuple[Holder, Holder], list[tuple[Hit, Hit]]] = {}
    for _, row in groupby(hits, key=lambda hit: (hit.file, hit.row)):
        strong = [hit for hit in row if hit.kind in STRONG and not hit.boilerplate]
        if len({hit.entry for hit in strong}) < 2:
            continue
        held = {holder: hit for hit in strong for holder in evaluation.holders[hit.entry]}
        for query in held:
            for name in evaluation.positives.get((query.task, query.id), ()):
                positive = Holder(query.task, "positive", name)
                if query.role == "query" and positive in held:
                    pairs.setdefault((query, positive), []).append((held[query], held[positive]))
    return pairs


def _finding(
    match_type: str, holder: Holder, text: str, hits: Sequence[Hit], with_id: str | None = None
) -> Finding:
    examples = [hit for hit in hits if hit.text][:EVIDENCE] or hits[:1]
    evidence = tuple(
        Evidence(**{column.name: getattr(hit, column.name) for column in fields(Evidence)})
        for hit in examples
    )
    rows = len({(hit.file, hit.row) for hit in hits})
    return Finding(match_type, holder.role, holder.id, text, rows, evidence, with_id)


def _shares(task: str, evaluation: EvaluationTexts, findings: Sequence[Finding]) -> Iterator[Share]:
    counts = Counter((finding.role, finding.kind) for finding in findings)
    for (owner, role), of in evaluation.audited.items():
        if owner != task:
            continue
        for match_type in ("any strong", *KINDS):
            kinds = STRONG if match_type == "any strong" else (match_type,)
            affected = sum(counts[role, counted_type] for counted_type in kinds)
            interval = None
            if (owner, role) in evaluation.sampled:
                interval = mean_interval(np.repeat([1.0, 0.0], [affected, of - affected]))
            yield Share(role, match_type, affected, of, interval)


def _verdict(shares: Sequence[Share]) -> tuple[AuditVerdict, str]:
    strong = [share for share in shares if share.affected and share.kind == "any strong"]
    weak = [share for share in shares if share.affected and share.kind in KINDS]
    if not weak:
        return "clean", "nothing was found"
    many = any(
        strong_share.affected / strong_share.of >= CONTAMINATED.get(strong_share.role, 2)
        for strong_share in strong
    )
    if strong:
        reason = f"strong findings for {', '.join(map(_count_share, strong))}"
        return "contaminated" if many else "suspicious", reason
    listed = ", ".join(f"{share.kind} for {_count_share(share)}" for share in weak)
    return "suspicious", f"weak findings only: {listed}"


def _count_share(share: Share) -> str:
    return f"{share.affected:,} of {share.of:,} {ROLES[share.role]}"


def _order(finding: Finding) -> tuple[int, str, str]:
    return KINDS.index(finding.kind), finding.role, finding.id
