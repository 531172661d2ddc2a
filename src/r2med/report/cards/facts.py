"""Everything a task page says: prose from data files, figures from the data and from results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from r2med.measure.intervals import mean_interval
from r2med.measure.verdicts import Verdict
from r2med.nano.candidates import HYBRID_DEPTH, ROLES, TITLES, CandidateList
from r2med.nano.folder import read_record
from r2med.nano.profiles import Profile, profile_with_candidates
from r2med.number_format import format_percent
from r2med.report.table import difference_cell, document_text, score_cell, snippet
from r2med.results.compare import compare
from r2med.results.diagnosis.causes import PositiveFinding
from r2med.results.diagnosis.diagnose import diagnose_ranking
from r2med.results.diagnosis.findings import QueryFinding, RankedFinding
from r2med.results.overlap import StoredAudit
from r2med.results.record import Result
from r2med.results.select import Ranking
from r2med.retrieve.run_files import split_of
from r2med.runs import Run
from r2med.settings import read_packaged_toml
from r2med.tasks.registry import TaskEntry, find_task
from r2med.tasks.task import Task, positives_of

_EXAMPLE_PAIRS = 3
_EXAMPLE_FAILURES = 2
EXCERPT = 420
#: Below this difference in nDCG@10 two profiles are called level.
_LEVEL = 0.01
#: A positive counts as retrieved to a tenth of the corpus, within these ranks.
_SHALLOWEST, _DEEPEST = 10, 100


@dataclass(frozen=True)
class Failure:
    """One failed query: the document ranked first and a positive that was missed."""

    query: str
    first: str | None
    first_rank: int | None
    positive: str
    positive_rank: int | None
    """None if the positive is not in the list."""
    detail: str


@dataclass(frozen=True)
class Failures:
    """One type of failure: how many of how many queries it affects, and a few examples."""

    title: str
    affected: int
    of: int
    """Number of queries examined; 0 if the data lacks what this type of failure is recognised
    by."""
    examples: tuple[Failure, ...]


@dataclass(frozen=True)
class Facts:
    """The facts that a task page shows."""

    task: str
    suite: str | None
    hash: str
    entry: TaskEntry | None
    """The registered task that the data is, or that it was built from."""
    origin: str
    """How `nano build` made the task; empty for other tasks."""
    prose: dict[str, Any]
    profile: Profile
    results: list[dict[str, Any]]
    """Stored results on exactly this data, best first."""
    lead: Verdict | None
    """The verdict on the best stored result against the second; None if there are fewer than
    two."""
    failures_of: str
    """The ranking from which the failures were drawn."""
    failures: list[Failures]
    examples: list[dict[str, str]]
    """Queries, each with a document that answers it, shortened to fit a page."""
    audits: list[dict[str, Any]]
    """What audits of training sets found for exactly this data, newest first."""


def gather(
    task: Task,
    results: Sequence[Result],
    *,
    dense: str | None,
    audits: Sequence[StoredAudit] = (),
    tell: Callable[[str], None],
) -> Facts:
    """Profile a task, take its stored results, and look for failures in the best ranking."""
    profile, lists = profile_with_candidates(task, dense, warn=tell)
    newest: dict[str, Result] = {}
    for result in results:
        if result.record.task.hash == task.hash:
            newest.setdefault(result.system, result)
    ranked_results = sorted(
        newest.values(), key=lambda result: (-result.metrics["ndcg@10"], result.system)
    )
    lead = (
        compare(ranked_results[0], ranked_results[1], results=ranked_results).verdicts[0]
        if len(ranked_results) > 1
        else None
    )
    failures_of, run = _best_ranking(profile, lists, ranked_results)
    source, origin = _built_from(task)
    entry = task.entry or source
    return Facts(
        task=task.name,
        suite=task.suite,
        hash=task.hash,
        entry=entry,
        origin=origin,
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
            for result in ranked_results
        ],
        lead=lead,
        failures_of=failures_of,
        failures=find_failures(task, run),
        examples=_examples(task),
        audits=[
            {"training": audit.training, "verdict": audit.verdict, "sentence": audit.sentence()}
            for audit in audits
            if audit.hash == task.hash
        ],
    )


def prose_of(entry: TaskEntry | None) -> dict[str, Any]:
    """Return the prose for a registered task; for local data, general prose."""
    return dict(read_packaged_toml(f"report/cards/prose/{entry.source if entry else 'own'}.toml"))


def readings(facts: Facts) -> Iterator[str]:
    """Yield sentences about the figures; the numbers in them are computed from the facts."""
    bm25, dense, hybrid = map(facts.profile.of, ROLES)
    if best := facts.profile.best:
        yield f"Best of the profiles by nDCG@10: {TITLES[best.role]}, {score_cell(best.ndcg)}."
    if bm25 and dense:
        gap = dense.ndcg - bm25.ndcg
        ahead = "level with" if abs(gap) < _LEVEL else "ahead of" if gap > 0 else "behind"
        yield f"Vectors are {ahead} words (difference in nDCG@10 {difference_cell(gap)})."
    if bm25:
        missed, recalled = 1 - bm25.figures["hit@10"], bm25.figures["micro_recall@100"]
        yield (
            f"The BM25 candidates hold no positive among the first ten for {100 * missed:.1f} % of "
            f"the queries, and {100 * recalled:.1f} % of the positives among the first hundred."
        )
    if hybrid:
        recalled, guarded = hybrid.figures["micro_recall@100"], hybrid.figures["safeguard_rows"]
        yield (
            f"A reranker of the hybrid's hundred can reach at most {100 * recalled:.1f} % of the "
            f"positives; the safeguard puts one below them for {guarded:,} of {hybrid.queries:,} "
            "queries."
        )
    for row in facts.profile.published:
        if measured := facts.profile.of(row.role):
            off = difference_cell(measured.ndcg - row.ndcg)
            yield f"{TITLES[row.role]}, nDCG@10: {off} from the published figure."
    if facts.lead:
        yield f"Of the stored systems the first two: {facts.lead.text}"


def _built_from(task: Task) -> tuple[TaskEntry | None, str]:
    """Return the source of a task of `nano build` and how it was built; else None and ""."""
    record = read_record(task.source).tasks.get(split_of(task))
    if record is None:
        return None, ""
    story = f"Built from {record.source}: {record.contents} {' '.join(record.notices)}"
    return (find_task(record.source) if record.suite else None), story


def find_failures(task: Task, run: Run) -> list[Failures]:
    """Find examples of the three types of failure in one ranking, the clearest first."""
    depth = min(_DEEPEST, max(_SHALLOWEST, len(task.corpus) // 10))
    queries = diagnose_ranking(Ranking("", run), task).queries
    classified = [query for query in queries if query.body_system and query.answer]
    confused: list[tuple[float, Failure]] = []
    overlapping, missing = confused.copy(), confused.copy()
    for query in queries:
        best = query.positives[0]
        ahead = [
            candidate for candidate in query.top if best.rank is None or candidate.rank < best.rank
        ]
        alike = {
            candidate.answer
            for candidate in classified
            if candidate.body_system == query.body_system
        }
        evidence = [
            (candidate, answer)
            for candidate in ahead
            for answer in candidate.answers
            if answer in alike
        ]
        if evidence and query.answer:
            first, answer = evidence[0]
            detail = (
                f"Both are {query.body_system}; asked for is {query.answer}, but evidence for "
                f"{answer} is at rank {first.rank}, above every positive."
            )
            confused.append((first.rank, _failure(query, first, best, detail)))
        if ahead and ahead[0].coverage > best.coverage:
            detail = (
                f"The first document has {format_percent(ahead[0].coverage)} of the query's terms "
                f"by weight ({', '.join(ahead[0].shared)}), "
                f"the positive {format_percent(best.coverage)}."
            )
            less = best.coverage - ahead[0].coverage
            overlapping.append((less, _failure(query, ahead[0], best, detail)))
        lost = [
            candidate
            for candidate in query.positives
            if candidate.rank is None or candidate.rank > depth
        ]
        if lost:
            counts = f"{len(lost)} of {len(query.positives)}"
            detail = f"Positives not among the first {depth}: {counts}."
            failure = _failure(query, next(iter(query.top), None), lost[0], detail)
            missing.append((-len(lost) / len(query.positives), failure))
    groups = []
    for title, population, failures in (
        ("Right body system, wrong diagnosis", classified, confused),
        ("Surface overlap", queries, overlapping),
        (f"Positive not among the first {depth}", queries, missing),
    ):
        failures.sort(key=lambda pair: pair[0])
        examples = tuple(failure for _, failure in failures[:_EXAMPLE_FAILURES])
        groups.append(Failures(title, len(failures), len(population), examples))
    return groups


def _failure(
    query: QueryFinding, first: RankedFinding | None, positive: PositiveFinding, detail: str
) -> Failure:
    name, rank = (first.document_id, first.rank) if first else (None, None)
    return Failure(query.query_id, name, rank, positive.document_id, positive.rank, detail)


def _best_ranking(
    profile: Profile, lists: Sequence[CandidateList], measured: Sequence[Result]
) -> tuple[str, Run]:
    """Return the best stored result or, if there is none, the best candidate subset.

    It comes with a name, and without safeguards.
    """
    if measured:
        return f"the stored result of {measured[0].name}", measured[0].ranked
    best = profile.best
    assert best is not None
    run = next(candidates.run for candidates in lists if candidates.role == best.role)
    if best.role == "reranking_hybrid":
        run = run.truncate(HYBRID_DEPTH)
    return f"the {TITLES[best.role]} candidates ({best.source})", run


def _examples(task: Task) -> list[dict[str, str]]:
    """Return the first queries in file order, each with its first positive by id."""
    positives = positives_of(task.judgements)
    judged_queries = [(query, text) for query, text in task.queries.items() if query in positives]
    return [
        {
            "query_id": query,
            "query": snippet(text, EXCERPT),
            "document_id": positives[query][0],
            "document": snippet(document_text(task, positives[query][0]), EXCERPT),
        }
        for query, text in judged_queries[:_EXAMPLE_PAIRS]
    ]
