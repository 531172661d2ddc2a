"""Everything a task page says in figures, gathered once: from the data and from results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r2med.audit.outcome import Outcome, read_outcome
from r2med.measure.intervals import Interval, mean_interval
from r2med.nano.candidates import TITLES, CandidateList, positives_of
from r2med.nano.folder import read_record
from r2med.nano.profiles import Profile, profiled
from r2med.report.cards.failures import Failures, find_failures
from r2med.results.record import Result
from r2med.retrieve.given.candidates import split_of
from r2med.runs import Run
from r2med.tasks.registry import TaskEntry, find_task
from r2med.tasks.task import Task

_EXAMPLE_PAIRS = 3
_EXCERPT = 420


@dataclass(frozen=True)
class Scored:
    """One stored result of this task's very data."""

    system: str
    ndcg_10: float
    interval: Interval
    hit_10: float
    recall_100: float


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
    failures_of: str
    """The ranking the failures were drawn from."""
    failures: tuple[Failures, ...]
    texts: dict[str, str]
    """Excerpts that the failures speak of: `q:` + query id, `d:` + document id."""
    pairs: tuple[Pair, ...]
    audit: Outcome | None
    entry: TaskEntry | None
    """The registered task that the data is, or that it was built from."""
    made: str | None = None
    """How a pool that was built here came about."""


def gather(
    task: Task,
    results: Sequence[Result],
    *,
    dense: str | None,
    folder: Path,
    tell: Callable[[str], None],
) -> Facts:
    """Profile a task, take its stored results, and look for failures in the best ranking."""
    profile, lists = profiled(task, dense, tell=tell)
    own = _own_results(task, results)
    label, run = _best_ranking(profile, lists, own)
    failures = tuple(find_failures(task, run))
    outcome = read_outcome(folder, task.name)
    source_entry, made = _built_from(task)
    return Facts(
        name=task.name,
        suite=task.suite,
        hash=task.hash,
        profile=profile,
        scored=tuple(_scored(result) for result in own),
        failures_of=label,
        failures=failures,
        texts=_texts(task, failures),
        pairs=_pairs(task),
        audit=outcome if outcome and outcome.data == task.hash else None,
        entry=task.entry or source_entry,
        made=made,
    )


def excerpt(text: str) -> str:
    """The head of a text, cut at a word."""
    flat = " ".join(text.split())
    if len(flat) <= _EXCERPT:
        return flat
    return flat[:_EXCERPT].rsplit(" ", 1)[0] + " …"


def _built_from(task: Task) -> tuple[TaskEntry | None, str | None]:
    """The source of a task that `nano build` made, and its story; None for other tasks."""
    record: Any = read_record(task.source)["tasks"].get(split_of(task))
    if not record:
        return None, None
    report, recipe, source = record["report"], record["recipe"], record["source"]
    told = (
        f"Built from {source['name']}: {report['queries']:,} of {report['source_queries']:,} "
        f"queries and {report['documents']:,} of {report['source_documents']:,} documents "
        f"({report['positive_documents']:,} positive, {report['judged_negative_documents']:,} "
        f"judged non-positive, {report['fill_documents']:,} by {recipe['fill']} fill). "
        + " ".join(record["notices"])
    )
    return (find_task(source["name"]) if source["suite"] else None), told


def _own_results(task: Task, results: Sequence[Result]) -> list[Result]:
    """The newest result of each system on exactly this data, best first."""
    newest: dict[str, Result] = {}
    for result in results:
        if result.record.task.hash == task.hash:
            newest.setdefault(result.system, result)
    return sorted(newest.values(), key=lambda result: (-result.metrics["ndcg@10"], result.system))


def _scored(result: Result) -> Scored:
    column = result.scores["ndcg@10"]
    return Scored(
        result.system,
        result.metrics["ndcg@10"],
        mean_interval(column),
        result.metrics["hit@10"],
        result.metrics["recall@100"],
    )


def _best_ranking(
    profile: Profile, lists: Sequence[CandidateList], own: Sequence[Result]
) -> tuple[str, Run]:
    """The best stored result, or the best candidate subset; never with a safeguard in it."""
    if own:
        return f"the stored result of {own[0].system}", own[0].ranked
    best = profile.best
    assert best is not None
    run = next(one.run for one in lists if one.role == best.role)
    depth = 100 if best.role == "reranking_hybrid" else run.lengths.max(initial=0)
    return f"the {TITLES[best.role]} candidates", run.truncated(int(depth))


def _texts(task: Task, failures: Sequence[Failures]) -> dict[str, str]:
    found: dict[str, str] = {}
    for failure in (one for group in failures for one in group.examples):
        found[f"q:{failure.query}"] = excerpt(task.query(failure.query))
        for document in (failure.first, failure.positive):
            if document is not None:
                found[f"d:{document}"] = _document(task, document)
    return found


def _document(task: Task, document: str) -> str:
    try:
        return excerpt(task.document(document))
    except KeyError:
        return "(not in the corpus)"


def _pairs(task: Task) -> tuple[Pair, ...]:
    """The first queries in file order, each with its first positive by id."""
    positives = positives_of(task.judgements)
    asked = [query for query in task.queries.ids.to_pylist() if query in positives]
    return tuple(
        Pair(query, excerpt(task.query(query)), first, _document(task, first))
        for query in asked[:_EXAMPLE_PAIRS]
        for first in positives[query][:1]
    )
