"""The page of one task: prose and facts put in the order a reader asks."""

from __future__ import annotations

import re

from r2med.nano.candidates import ROLES, TITLES
from r2med.nano.profiles import PUBLISHED_NAMES
from r2med.report.cards.blocks import Block, Bullets, Grid, Page, Paragraph, Quote, Section
from r2med.report.cards.facts import Facts
from r2med.report.cards.failures import Failure, Failures
from r2med.report.cards.interpretation import readings
from r2med.report.cards.prose import Prose
from r2med.report.profile_table import data_rows

_SUITE_NOTES = {
    "demo": "A task of the demo suite: original text, small, not comparable with published "
    "figures. The prose is about the R2MED task it is shaped after; the figures are its own.",
    None: "Data of your own: figures here do not compare with those of R2MED.",
}


def page_name(task: str) -> str:
    """A file name that reads like the task's."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", task).strip("-.") or "task"


def task_page(facts: Facts, prose: Prose) -> Page:
    """The whole page."""
    return Page(
        name=page_name(facts.name),
        title=facts.name,
        lead=_lead(facts),
        sections=(
            Section("Overview", _overview(facts, prose)),
            Section("What it measures", (Paragraph(prose.measures),)),
            Section("Data profile", (Grid(("", "observed"), _data(facts), words=True),)),
            Section("Retrieval behaviour", tuple(_retrieval(facts))),
            Section(
                "Interpretation",
                (Paragraph(prose.interpretation), Bullets(tuple(readings(facts)))),
            ),
            Section("Failure modes", tuple(_failures(facts, prose))),
            Section("Training and leakage", tuple(_leakage(facts, prose))),
            Section("Examples", tuple(_examples(facts))),
            Section("Sources", tuple(_sources(facts, prose))),
        ),
    )


def _lead(facts: Facts) -> str:
    if facts.entry is None:
        return "A retrieval task in a folder."
    return f"{facts.entry.family}, {facts.entry.scenario} · suite {facts.entry.suite}"


def _overview(facts: Facts, prose: Prose) -> tuple[Block, ...]:
    blocks: list[Block] = [Paragraph(prose.overview)]
    if facts.entry is not None:
        blocks.append(Paragraph(facts.entry.description))
    if facts.made is not None:
        blocks.append(Paragraph(facts.made))
    if facts.suite in _SUITE_NOTES:
        blocks.append(Paragraph(_SUITE_NOTES[facts.suite], note=True))
    return tuple(blocks)


def _data(facts: Facts) -> tuple[tuple[str, ...], ...]:
    return tuple(data_rows(facts.profile.data))


def _retrieval(facts: Facts) -> list[Block]:
    profile = facts.profile
    headers, columns, configs = [""], [], []
    for role in ROLES:
        measured, published = profile.of(role), profile.published.get(role)
        if measured is not None:
            headers.append(TITLES[role])
            configs.append(f"{TITLES[role]} is {measured.source}")
            columns.append(
                {name: figure(name, value) for name, value in measured.figures().items()}
            )
        if published is not None:
            headers.append(f"{TITLES[role]}, published")
            columns.append(
                {
                    name: figure(name, published[key])
                    for name, key in PUBLISHED_NAMES.items()
                    if key in published
                }
            )
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = tuple((name, *(column.get(name, "n/a") for column in columns)) for name in names)
    caption = (
        "Candidate subsets: binary judgements, lists scored in their own order. Micro recall is "
        "positives found / positives; macro is the mean over queries. "
        f"{', '.join(configs)}."
    )
    return [Grid(tuple(headers), rows, caption), *_stored(facts)]


def _stored(facts: Facts) -> list[Block]:
    if not facts.scored:
        return [
            Paragraph(
                "No result of this data is stored here; r2med eval adds systems to this page."
            )
        ]
    rows = tuple(
        (
            scored.system,
            f"{scored.ndcg_10:.4f}",
            f"{scored.interval.low:.4f} to {scored.interval.high:.4f}",
            f"{scored.hit_10:.4f}",
            f"{scored.recall_100:.4f}",
        )
        for scored in facts.scored
    )
    headers = ("system", "nDCG@10", "95 % interval", "hit@10", "recall@100 (macro)")
    return [Grid(headers, rows, "Stored results of exactly this data, best first.")]


def _failures(facts: Facts, prose: Prose) -> list[Block]:
    blocks: list[Block] = [
        Bullets(prose.failures),
        Paragraph(f"What follows is counted and drawn from {facts.failures_of}."),
    ]
    for group in facts.failures:
        blocks.append(Paragraph(_counted(group)))
        blocks += [_failure(facts, group.kind, failure) for failure in group.examples]
    return blocks


def _counted(group: Failures) -> str:
    if group.open:
        return f"{group.kind}: cannot be told. {group.open}"
    share = 100 * group.affected / max(group.of, 1)
    return f"{group.kind}: {group.affected:,} of {group.of:,} queries ({share:.1f} %)."


def _failure(facts: Facts, kind: str, failure: Failure) -> Quote:
    rank = "not in the list" if failure.positive_rank is None else f"rank {failure.positive_rank}"
    parts = [(f"query {failure.query}", facts.texts[f"q:{failure.query}"])]
    if failure.first is not None:
        parts.append(
            (f"rank {failure.first_rank}: {failure.first}", facts.texts[f"d:{failure.first}"])
        )
    parts.append((f"positive {failure.positive}, {rank}", facts.texts[f"d:{failure.positive}"]))
    parts.append(("what happened", failure.detail))
    return Quote(kind, tuple(parts))


def _leakage(facts: Facts, prose: Prose) -> list[Block]:
    audit = facts.audit
    if audit is None:
        told = "Overlap with training data: not audited on this data."
    else:
        found = "nothing found" if audit.clean else "OVERLAP FOUND"
        told = (
            f"Audited against {audit.against}: {found}. {audit.queries_overlapping:,} of "
            f"{audit.queries_checked:,} queries and {audit.positives_overlapping:,} of "
            f"{audit.positives_checked:,} positives overlap."
        )
    return [
        Paragraph(prose.training),
        Paragraph(told, note=True),
        Paragraph(
            f"r2med tasks exclusions {facts.name} --out FILE writes what training must leave out, "
            "as hashes and fingerprints, without the texts."
        ),
    ]


def _examples(facts: Facts) -> list[Block]:
    return [
        Quote(
            f"Query {pair.query_id}",
            (("query", pair.query), (f"positive {pair.document_id}", pair.document)),
        )
        for pair in facts.pairs
    ]


def _sources(facts: Facts, prose: Prose) -> list[Block]:
    entry = facts.entry
    items = [] if facts.suite == "demo" else [prose.sources]
    if entry is not None:
        items += [entry.citation, f"Licence: {entry.licence or 'unknown'}."]
        if entry.hub:
            revision = entry.hub.revision or "default branch"
            items.append(f"Hub: {entry.hub.repo}, {revision}.")
    items.append(f"Data hash: {facts.hash}.")
    return [Bullets(tuple(items))]


def figure(name: str, value: float) -> str:
    """A count as it is, a share with four digits."""
    whole = name.startswith(("candidates", "safeguard")) and float(value).is_integer()
    return f"{value:,.0f}" if whole else f"{value:.4f}"
