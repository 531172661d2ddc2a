"""Everything a task page says: prose from data files, figures from the data and from results."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

from r2med.measure.intervals import mean_interval
from r2med.measure.significance import Difference, compare_columns, p_equation
from r2med.nano.candidates import HYBRID_DEPTH, TITLES, CandidateList
from r2med.nano.folder import read_record
from r2med.nano.profiles import Profile, profiled
from r2med.report.cards.failures import Failures, find_failures
from r2med.report.table import document_text, points, signed, snippet
from r2med.results.overlap import StoredAudit
from r2med.results.record import Result
from r2med.retrieve.given import split_of
from r2med.runs import Run
from r2med.tasks.registry import TaskEntry, find_task
from r2med.tasks.task import Task, positives_of

_EXAMPLE_PAIRS = 3
_EXCERPT = 420
#: Below this difference in nDCG@10 two profiles are called level.
_LEVEL = 0.01


@dataclass(frozen=True)
class Facts:
    """All that a page says of a task."""

    name: str
    suite: str | None
    hash: str
    entry: TaskEntry | None
    """The registered task that the data is, or that it was built from."""
    made: str
    """How a pool that was built here came about."""
    prose: dict[str, Any]
    profile: Profile
    results: list[dict[str, Any]]
    """Stored results of this very data, best first."""
    lead: Difference | None
    """The best stored result against the second, query by query."""
    failures_of: str
    """The ranking the failures were drawn from."""
    failures: list[Failures]
    texts: dict[str, str]
    """Excerpts that the failures speak of: `q:` + query id, `d:` + document id."""
    examples: list[dict[str, str]]
    """Queries, each with a document that answers it, cut to what fits a page."""
    audits: list[StoredAudit]
    """What audits of training sets said of exactly this data, newest first."""


def gather(
    task: Task,
    results: Sequence[Result],
    *,
    dense: str | None,
    audits: Sequence[StoredAudit] = (),
    tell: Callable[[str], None],
) -> Facts:
    """Profile a task, take its stored results, and look for failures in the best ranking."""
    profile, lists = profiled(task, dense, tell=tell)
    newest: dict[str, Result] = {}
    for result in results:
        if result.record.task.hash == task.hash:
            newest.setdefault(result.system, result)
    own = sorted(newest.values(), key=lambda each: (-each.metrics["ndcg@10"], each.system))
    lead = None
    if len(own) > 1:
        first, second = own[0].scores, own[1].scores.at(own[0].scores.query_ids)
        lead = compare_columns(first["ndcg@10"], second["ndcg@10"])
    failures_of, run = _best_ranking(profile, lists, own)
    failures = find_failures(task, run)
    source, made = _built_from(task)
    entry = task.entry or source
    return Facts(
        name=task.name,
        suite=task.suite,
        hash=task.hash,
        entry=entry,
        made=made,
        prose=prose_of(entry),
        profile=profile,
        results=[
            {
                "system": result.name,
                "ndcg_10": result.metrics["ndcg@10"],
                "interval": asdict(mean_interval(result.scores["ndcg@10"])),
                "hit_10": result.metrics["hit@10"],
                "recall_100": result.metrics["recall@100"],
            }
            for result in own
        ],
        lead=lead,
        failures_of=failures_of,
        failures=failures,
        texts=_texts(task, failures),
        examples=_examples(task),
        audits=[audit for audit in audits if audit.hash == task.hash],
    )


def prose_of(entry: TaskEntry | None) -> dict[str, Any]:
    """The words for a registered task; for data of the user's own, general ones."""
    file = f"{entry.source if entry else 'own'}.toml"
    text = (files("r2med.report.cards") / "prose" / file).read_text(encoding="utf-8")
    return tomllib.loads(text)


def readings(facts: Facts) -> Iterator[str]:
    """What the figures say, one statement each: computed, so that they stay true."""
    profile = facts.profile
    best, bm25 = profile.best, profile.of("bm25")
    dense, hybrid = profile.of("dense"), profile.of("reranking_hybrid")
    if best is not None:
        yield f"Best of the profiles by nDCG@10: {TITLES[best.role]}, {100 * best.ndcg_10:.2f}."
    if bm25 and dense:
        gap = dense.ndcg_10 - bm25.ndcg_10
        ahead = "level with" if abs(gap) < _LEVEL else "ahead of" if gap > 0 else "behind"
        yield f"Vectors are {ahead} words (difference in nDCG@10 {signed(gap)})."
    if bm25:
        yield (
            f"The BM25 candidates hold no positive among the first ten for "
            f"{100 * (1 - bm25.hit_10):.1f} % of the queries, and "
            f"{100 * bm25.recall_100_micro:.1f} % of the positives among the first hundred."
        )
    if hybrid:
        yield (
            "A reranker of the hybrid's hundred can reach at most "
            f"{100 * hybrid.recall_100_micro:.1f} % of the positives; the safeguard puts one below "
            f"them for {hybrid.safeguard_rows:,} of {hybrid.queries:,} queries."
        )
    for row in profile.retrieval:
        if "ndcg_at_10" in row.published:
            off = row.ndcg_10 - float(row.published["ndcg_at_10"])
            yield f"{TITLES[row.role]}, nDCG@10: {signed(off)} from the published figure."
    if lead := facts.lead:
        first, second = (result["system"] for result in facts.results[:2])
        low, high = signed(lead.interval.low), signed(lead.interval.high)
        yield (
            f"Of the stored systems {first} scores highest, {points(lead.difference)} above "
            f"{second} (95 % interval of the difference {low} to {high}; "
            f"paired randomisation test, {p_equation(lead.p_randomisation)})."
        )


def _built_from(task: Task) -> tuple[TaskEntry | None, str]:
    """The source of a task that `nano build` made, and its story; nothing for other tasks."""
    record = read_record(task.source).tasks.get(split_of(task))
    if record is None:
        return None, ""
    report = record.report
    story = (
        f"Built from {record.source}: {report.queries:,} of {report.source_queries:,} "
        f"queries and {report.documents:,} of {report.source_documents:,} documents "
        f"({report.positive_documents:,} positive, {report.judged_negative_documents:,} "
        f"judged non-positive, {report.fill_documents:,} by {record.recipe.fill} fill). "
        + " ".join(record.notices)
    )
    return (find_task(record.source) if record.suite else None), story


def _best_ranking(
    profile: Profile, lists: Sequence[CandidateList], own: Sequence[Result]
) -> tuple[str, Run]:
    """The best stored result, or the best candidate subset; never with a safeguard in it."""
    if own:
        return f"the stored result of {own[0].name}", own[0].ranked
    best = profile.best
    assert best is not None
    run = next(one.run for one in lists if one.role == best.role)
    if best.role == "reranking_hybrid":
        run = run.truncated(HYBRID_DEPTH)
    return f"the {TITLES[best.role]} candidates ({best.source})", run


def _texts(task: Task, failures: Sequence[Failures]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for failure in (one for group in failures for one in group.examples):
        texts[f"q:{failure.query}"] = snippet(task.query(failure.query), _EXCERPT)
        for document in filter(None, (failure.first, failure.positive)):
            texts[f"d:{document}"] = snippet(document_text(task, document), _EXCERPT)
    return texts


def _examples(task: Task) -> list[dict[str, str]]:
    """The first queries in file order, each with its first positive by id."""
    positives = positives_of(task.judgements)
    asked = [(query, text) for query, text in task.queries.items() if query in positives]
    return [
        {
            "query_id": query,
            "query": snippet(text, _EXCERPT),
            "document_id": positives[query][0],
            "document": snippet(document_text(task, positives[query][0]), _EXCERPT),
        }
        for query, text in asked[:_EXAMPLE_PAIRS]
    ]
