"""Everything a task page says: prose from data files, figures from the data and from results."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files

from r2med.measure.intervals import Interval, mean_interval
from r2med.measure.significance import Difference, compare_columns
from r2med.nano.candidates import HYBRID_DEPTH, TITLES, CandidateList
from r2med.nano.folder import read_record
from r2med.nano.profiles import Profile, RetrievalProfile, profiled
from r2med.report.cards.failures import Failures, find_failures
from r2med.report.table import document_text
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
class Prose:
    """What is said of a task beside its figures."""

    overview: str
    measures: str
    interpretation: str
    failures: tuple[str, ...]
    training: str
    sources: str


@dataclass(frozen=True)
class Scored:
    """One stored result of this task's very data."""

    system: str
    ndcg_10: float
    interval: Interval
    hit_10: float
    recall_100: float

    @classmethod
    def of(cls, result: Result) -> Scored:
        """The row of one result."""
        metrics, interval = result.metrics, mean_interval(result.scores["ndcg@10"])
        ndcg, hit, recall = (metrics[name] for name in ("ndcg@10", "hit@10", "recall@100"))
        return cls(result.name, ndcg, interval, hit, recall)


@dataclass(frozen=True)
class Pair:
    """A query and a document that answers it, cut to what fits a page."""

    query_id: str
    query: str
    document_id: str
    document: str


@dataclass(frozen=True)
class Facts:
    """All of a page that is not prose."""

    name: str
    suite: str | None
    hash: str
    profile: Profile
    scored: tuple[Scored, ...]
    """Stored results, best first."""
    lead: Difference | None
    """The best stored result against the second, query by query."""
    failures_of: str
    """The ranking the failures were drawn from."""
    failures: tuple[Failures, ...]
    texts: dict[str, str]
    """Excerpts that the failures speak of: `q:` + query id, `d:` + document id."""
    pairs: tuple[Pair, ...]
    entry: TaskEntry | None
    """The registered task that the data is, or that it was built from."""
    made: str | None = None
    """How a pool that was built here came about."""
    audits: tuple[StoredAudit, ...] = ()
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
    own = _own_results(task, results)
    label, run = _best_ranking(profile, lists, own)
    failures = tuple(find_failures(task, run))
    source_entry, made = _built_from(task)
    return Facts(
        name=task.name,
        suite=task.suite,
        hash=task.hash,
        profile=profile,
        scored=tuple(map(Scored.of, own)),
        lead=_lead(*own[:2]) if len(own) > 1 else None,
        failures_of=label,
        failures=failures,
        texts=_texts(task, failures),
        pairs=_pairs(task),
        entry=task.entry or source_entry,
        made=made,
        audits=tuple(audit for audit in audits if audit.hash == task.hash),
    )


def prose_of(entry: TaskEntry | None) -> Prose:
    """The words for a registered task; for data of the user's own, general ones."""
    file = f"{entry.source if entry else 'own'}.toml"
    text = (files("r2med.report.cards") / "prose" / file).read_text(encoding="utf-8")
    read = tomllib.loads(text)
    return Prose(**{**read, "failures": tuple(read["failures"])})


def readings(facts: Facts) -> Iterator[str]:
    """What the figures say, one statement each: computed, so that they stay true."""
    profile = facts.profile
    best, bm25 = profile.best, profile.of("bm25")
    dense, hybrid = profile.of("dense"), profile.of("reranking_hybrid")
    if best is not None:
        yield f"Best of the profiles by nDCG@10: {TITLES[best.role]}, {100 * best.ndcg_10:.2f}."
    if bm25 and dense:
        gap = dense.ndcg_10 - bm25.ndcg_10
        ahead = "Vectors are ahead of words" if gap > 0 else "Words are ahead of vectors"
        level = f"Words and vectors are level here (difference {100 * gap:+.2f})."
        yield level if abs(gap) < _LEVEL else f"{ahead} by {100 * abs(gap):.2f} points of nDCG@10."
    if bm25:
        yield (
            f"The BM25 candidates hold no positive among the first ten for "
            f"{100 * (1 - bm25.hit_10):.1f} % of the queries, and "
            f"{100 * bm25.recall_100_micro:.1f} % of the positives among the first hundred."
        )
    if hybrid:
        yield (
            "A reranker of the hybrid's hundred can reach at most "
            f"{100 * hybrid.recall_100_micro:.1f} % of the positives; {_guarded(hybrid)}."
        )
    for row in profile.retrieval:
        if "ndcg_at_10" in row.published:
            off = row.ndcg_10 - float(row.published["ndcg_at_10"])
            apart = f"{100 * off:+.2f} from the published figure"
            verdict = "as published" if abs(off) < 1e-6 else apart
            yield f"{TITLES[row.role]}, nDCG@10: {verdict}."
    if facts.lead is not None:
        yield _lead_in_words(facts.scored[0].system, facts.scored[1].system, facts.lead)


def _guarded(hybrid: RetrievalProfile) -> str:
    if not hybrid.safeguard_rows:
        return "they hold one for every query, so no safeguard was needed"
    share = 100 * hybrid.safeguard_rows / max(hybrid.queries, 1)
    return (
        f"for {hybrid.safeguard_rows:,} of {hybrid.queries:,} queries ({share:.1f} %) they hold "
        "none, and the safeguard puts one below them"
    )


def _lead_in_words(first: str, second: str, lead: Difference) -> str:
    p = lead.p_randomisation
    return (
        f"Of the stored systems {first} scores highest, {100 * lead.difference:.2f} above {second} "
        f"(95 % interval of the difference {100 * lead.interval.low:+.2f} "
        f"to {100 * lead.interval.high:+.2f}; "
        f"paired randomisation test, {'p < 0.001' if p < 0.001 else f'p = {p:.3f}'})."
    )


def _built_from(task: Task) -> tuple[TaskEntry | None, str | None]:
    """The source of a task that `nano build` made, and its story; None for other tasks."""
    record = read_record(task.source).tasks.get(split_of(task))
    if record is None:
        return None, None
    report = record.report
    story = (
        f"Built from {record.source}: {report.queries:,} of {report.source_queries:,} "
        f"queries and {report.documents:,} of {report.source_documents:,} documents "
        f"({report.positive_documents:,} positive, {report.judged_negative_documents:,} "
        f"judged non-positive, {report.fill_documents:,} by {record.recipe.fill} fill). "
        + " ".join(record.notices)
    )
    return (find_task(record.source) if record.suite else None), story


def _own_results(task: Task, results: Sequence[Result]) -> list[Result]:
    """The newest result of each system on exactly this data, best first."""
    newest: dict[str, Result] = {}
    for result in results:
        if result.record.task.hash == task.hash:
            newest.setdefault(result.system, result)
    return sorted(newest.values(), key=lambda result: (-result.metrics["ndcg@10"], result.system))


def _lead(first: Result, second: Result) -> Difference:
    aligned = second.scores.at(first.scores.query_ids)
    return compare_columns(first.scores["ndcg@10"], aligned["ndcg@10"])


def _best_ranking(
    profile: Profile, lists: Sequence[CandidateList], own: Sequence[Result]
) -> tuple[str, Run]:
    """The best stored result, or the best candidate subset; never with a safeguard in it."""
    if own:
        return f"the stored result of {own[0].name}", own[0].ranked
    best = profile.best
    assert best is not None
    run = next(one.run for one in lists if one.role == best.role)
    whole = int(run.lengths.max(initial=0))
    depth = HYBRID_DEPTH if best.role == "reranking_hybrid" else whole
    return f"the {TITLES[best.role]} candidates ({best.source})", run.truncated(depth)


def _texts(task: Task, failures: Sequence[Failures]) -> dict[str, str]:
    texts: dict[str, str] = {}
    for failure in (one for group in failures for one in group.examples):
        texts[f"q:{failure.query}"] = excerpt(task.query(failure.query))
        for document in (failure.first, failure.positive):
            if document is not None:
                texts[f"d:{document}"] = excerpt(document_text(task, document))
    return texts


def _pairs(task: Task) -> tuple[Pair, ...]:
    """The first queries in file order, each with its first positive by id."""
    positives = positives_of(task.judgements)
    asked = [query for query in task.queries.ids.to_pylist() if query in positives]
    return tuple(
        Pair(query, excerpt(task.query(query)), first, excerpt(document_text(task, first)))
        for query in asked[:_EXAMPLE_PAIRS]
        for first in positives[query][:1]
    )


def excerpt(text: str) -> str:
    """The head of a text, cut at a word."""
    flat = " ".join(text.split())
    if len(flat) <= _EXCERPT:
        return flat
    return flat[:_EXCERPT].rsplit(" ", 1)[0] + " …"
