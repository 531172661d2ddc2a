"""Review by people: a shared queue, decisions that are on disk at once, and settlement.

The queue is one stratified sample for all reviewers, so that reviewers can be compared; every
reviewer sees it in a different order. The page is blind: codes instead of ids, no system, no grade
of a judge, no label of another reviewer.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from r2med.errors import DamagedError, DataError, MissingError, UsageError
from r2med.judge.log import RecordLog, Warn
from r2med.judge.pool import draw
from r2med.judge.rubric import Rubric, read_stored_rubric
from r2med.judge.store import JudgementSet, Pair, texts_hash
from r2med.paths import slug
from r2med.storage import lock, seal, unseal, write_file
from r2med.tasks.task import Task

Action = Literal["label", "skip", "undo", "settle"]

FOLDER = "reviews"
SIZE = 200
#: Share of the queue whose answer is known, to check attention.
CHECKS = 0.1
#: Pairs of one query that follow each other.
_BLOCK = 5
_QUEUE = "queue.json"
_SUFFIX = ".reviewed"
_SCHEMA = 1
_CODE = 12
_LONGEST_COMMENT, _LONGEST_NAME = 2_000, 60


@dataclass(frozen=True)
class ReviewQueue:
    """The pairs that people review, and the scale of their labels."""

    rubric: Rubric
    pairs: tuple[Pair, ...]
    checks: Mapping[Pair, bool] = field(default_factory=dict)
    """Pairs whose relevance is known, to check attention."""
    texts: str = ""
    """Hash of the task's documents and queries."""

    def order(self, reviewer: str) -> list[Pair]:
        """Return the pairs in the order of one reviewer.

        Up to five pairs of one query follow each other, so that a reviewer reads a query once for
        all of them.
        """
        purpose = f"review/{reviewer}"
        by_query: dict[str, list[Pair]] = {}
        for pair in draw(self.pairs, purpose):
            by_query.setdefault(pair[0], []).append(pair)
        blocks = {
            pairs[start]: pairs[start : start + _BLOCK]
            for pairs in by_query.values()
            for start in range(0, len(pairs), _BLOCK)
        }
        return [pair for first in draw(blocks, purpose) for pair in blocks[first]]

    @cached_property
    def codes(self) -> dict[str, Pair]:
        """Pairs by the code that reviewers see instead of ids."""
        return {self.code(pair): pair for pair in self.pairs}

    def code(self, pair: Pair) -> str:
        """Return the code of a pair; ids cannot be recovered from it."""
        text = "\0".join((self.texts, *pair))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_CODE]


@dataclass(frozen=True)
class Decision:
    """A reviewer's decision about a pair."""

    reviewer: str
    query_id: str
    item_id: str
    action: Action
    label: int | None = None
    comment: str = ""
    span: str = ""
    """The part of the passage that the reviewer selected as support for the label."""
    seconds: float | None = None
    """Seconds between showing the page and the decision."""
    date: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    @property
    def pair(self) -> Pair:
        """Query id and item id."""
        return self.query_id, self.item_id


def build_queue(
    task: Task,
    sets: Sequence[JudgementSet],
    *,
    size: int = SIZE,
    rubric: Rubric | None = None,
    has_checks: bool = True,
) -> ReviewQueue:
    """Sample judged pairs for review.

    Pairs on which judges disagree come first; then grades and systems take turns, so that all are
    represented. A tenth are pairs that the benchmark has judged, to check attention.

    Args:
        task: The task.
        sets: Judgement sets to check; all must have the same scale of grades.
        size: Pairs in the queue, checks included.
        rubric: What labels mean; by default the rubric of the first set.
        has_checks: Whether a tenth are pairs of the benchmark; False if items are not documents.

    Raises:
        MissingError: There is nothing to review.
        DataError: The sets have different scales.
    """
    if not sets:
        raise MissingError(
            f"{task.name} has no judgements to review.\n"
            f"Make some: r2med judge SYSTEM... --task {task.name} --judge LLM"
        )
    chosen = rubric or sets[0].rubric
    for judged in sets:
        if judged.rubric.scale != chosen.scale:
            raise DataError(
                f"judgement sets {sets[0].name!r} and {judged.name!r} have different scales; "
                "review one at a time with --judgements NAME."
            )
    checks = _known_pairs(task, round(size * CHECKS)) if has_checks else {}
    candidates = _candidates(sets, exclude=set(checks))
    pairs = _stratify(candidates, size - len(checks))
    return ReviewQueue(chosen, (*pairs, *checks), checks, texts_hash(task))


class ReviewStore:
    """The review of one task: its queue and the log of all decisions. Threads may share it."""

    def __init__(self, results: Path, task: str, suite: str | None, *, warn: Warn) -> None:
        self.folder = results / FOLDER / slug(suite or "local") / slug(task)
        self._log = RecordLog(self.folder, _SUFFIX, content="decisions", warn=warn)
        self._guard = threading.RLock()
        self._applied = 0
        self._last_written = 0
        self._active: dict[str, dict[Pair, Decision]] = {}
        self._settled: dict[Pair, Decision] = {}

    @property
    def exists(self) -> bool:
        """Whether a review was started."""
        return (self.folder / _QUEUE).is_file()

    def open(self, queue: ReviewQueue) -> ReviewQueue:
        """Store the queue of a review, or extend the stored one with further pairs.

        Raises:
            UsageError: The stored review has another rubric or other texts.
        """
        with lock(self.folder / ".queue.lock"):
            if self.exists:
                stored = self.queue()
                if (stored.rubric.hash, stored.texts) != (queue.rubric.hash, queue.texts):
                    raise UsageError(
                        f"{self.folder}: the review has another rubric or other texts. Export and "
                        "move that folder to start a new one."
                    )
                pairs = dict.fromkeys((*stored.pairs, *queue.pairs))
                checks = {**stored.checks, **queue.checks}
                queue = ReviewQueue(queue.rubric, tuple(pairs), checks, queue.texts)
                if len(queue.pairs) == len(stored.pairs):
                    return stored
            record = {
                "schema": _SCHEMA,
                "rubric": asdict(queue.rubric),
                "texts": queue.texts,
                "pairs": [list(pair) for pair in queue.pairs],
                "checks": [[*pair, relevant] for pair, relevant in queue.checks.items()],
            }
            write_file(self.folder / _QUEUE, seal(record, indent=None))
        return queue

    def queue(self) -> ReviewQueue:
        """Return the stored queue.

        Raises:
            MissingError: No review was started.
            DamagedError: The stored queue cannot be read.
        """
        path = self.folder / _QUEUE
        if not self.exists:
            raise MissingError(
                f"{path}: no review was started. Run: r2med review --task TASK --reviewer NAME"
            )
        values = unseal(path.read_bytes(), path)
        if values.get("schema") != _SCHEMA:
            raise DamagedError(f"{path}: expected a review of schema {_SCHEMA}.")
        return ReviewQueue(
            rubric=read_stored_rubric(values["rubric"]),
            pairs=tuple((query_id, item_id) for query_id, item_id in values["pairs"]),
            checks={
                (query_id, item_id): relevant for query_id, item_id, relevant in values["checks"]
            },
            texts=values["texts"],
        )

    def add(self, *decisions: Decision) -> None:
        """Store decisions; once this returns, a kill cannot lose them."""
        with self._guard:
            self._log.append([asdict(decision) for decision in decisions])

    def undo(self, reviewer: str) -> Pair | None:
        """Take back the reviewer's last decision and return its pair; None without one."""
        with self._guard:
            decided = self.decisions(reviewer)
            if not decided:
                return None
            last = list(decided.values())[-1]
            self.add(Decision(reviewer, *last.pair, action="undo"))
            return last.pair

    def decisions(self, reviewer: str) -> dict[Pair, Decision]:
        """Return a reviewer's labels and skips that were not taken back, oldest first."""
        with self._guard:
            self._refresh()
            return dict(self._active.get(reviewer, {}))

    def reviewers(self) -> list[str]:
        """Return the names of all reviewers with a label."""
        return list(self.labels())

    def labels(self) -> dict[str, dict[Pair, int]]:
        """Return the labels by reviewer and pair, without skipped pairs."""
        with self._guard:
            self._refresh()
            labels = {
                reviewer: {
                    pair: decision.label
                    for pair, decision in decided.items()
                    if decision.label is not None
                }
                for reviewer, decided in self._active.items()
            }
        return {name: rated for name, rated in sorted(labels.items()) if rated}

    def settled_decisions(self) -> dict[Pair, Decision]:
        """Return the decision that settled each pair; its `reviewer` is who settled the pair."""
        with self._guard:
            self._refresh()
            return dict(self._settled)

    def disagreements(self) -> list[Pair]:
        """Return pairs with different labels that are not settled."""
        settled = self.settled_decisions()
        return [
            pair
            for pair, labels in self._labels_by_pair().items()
            if len(set(labels)) > 1 and pair not in settled
        ]

    def final_labels(self, rubric: Rubric | None = None) -> dict[Pair, int]:
        """Return one label per pair: the settled label, or the label that most reviewers gave.

        Args:
            rubric: With a rubric, a tie between labels that all mean relevant, or all mean not
                relevant, gives the lowest label. Other pairs with a tie are left out until they
                are settled.
        """
        final: dict[Pair, int] = {}
        for pair, labels in self._labels_by_pair().items():
            counts = Counter(labels).most_common()
            if len(counts) == 1 or counts[0][1] > counts[1][1]:
                final[pair] = counts[0][0]
            elif rubric is not None and len({rubric.is_relevant(label) for label in labels}) == 1:
                final[pair] = min(labels)
        for pair, decision in self.settled_decisions().items():
            if decision.label is not None:
                final[pair] = decision.label
        return final

    def close(self) -> None:
        """End this process's log file."""
        with self._guard:
            self._log.close()

    def _labels_by_pair(self) -> dict[Pair, list[int]]:
        by_pair: dict[Pair, list[int]] = {}
        for labels in self.labels().values():
            for pair, label in labels.items():
                by_pair.setdefault(pair, []).append(label)
        return by_pair

    def _refresh(self) -> None:
        """Apply records that this or another process has written since the last refresh."""
        records = self._log.read()
        if len(records) == self._applied:
            return
        is_in_order = int(records[self._applied]["written"]) >= self._last_written
        if not is_in_order:  # another process wrote in between: apply all again
            self._active, self._settled, self._applied = {}, {}, 0
        for record in records[self._applied :]:
            self._apply(_read_decision(record))
        self._applied, self._last_written = len(records), int(records[-1]["written"])

    def _apply(self, decision: Decision) -> None:
        if decision.action == "settle":
            self._settled[decision.pair] = decision
            return
        decided = self._active.setdefault(decision.reviewer, {})
        decided.pop(decision.pair, None)
        if decision.action != "undo":
            decided[decision.pair] = decision


def label_pair(
    queue: ReviewQueue,
    reviewer: str,
    pair: Pair,
    label: int | None,
    *,
    comment: str = "",
    span: str = "",
    seconds: float | None = None,
) -> Decision:
    """Return a reviewer's decision to label a pair; the label None skips the pair.

    Raises:
        UsageError: The label is not on the scale, or the pair is not in the queue.
    """
    if label is not None and label not in queue.rubric.scale:
        raise UsageError(f"label {label} is not on the scale {queue.rubric.scale}.")
    if queue.code(pair) not in queue.codes:
        raise UsageError("this pair is not in the queue.")
    return Decision(
        reviewer=check_reviewer(reviewer),
        query_id=pair[0],
        item_id=pair[1],
        action="skip" if label is None else "label",
        label=label,
        comment=comment[:_LONGEST_COMMENT],
        span=span[:_LONGEST_COMMENT],
        seconds=seconds,
    )


def settle_pair(
    queue: ReviewQueue, pair: Pair, label: int, *, settled_by: str, reason: str
) -> Decision:
    """Return the decision that settles a pair with one label.

    Raises:
        UsageError: The label is not on the scale, or the reason is missing.
    """
    if label not in queue.rubric.scale:
        raise UsageError(f"label {label} is not on the scale {queue.rubric.scale}.")
    if not reason.strip():
        raise UsageError("a settlement needs a reason.")
    comment = reason.strip()[:_LONGEST_COMMENT]
    return Decision(
        check_reviewer(settled_by), *pair, action="settle", label=label, comment=comment
    )


def check_reviewer(name: str) -> str:
    """Return a reviewer's name without surrounding spaces; refuse an empty or too long one."""
    cleaned = " ".join(name.split())
    if not cleaned or len(cleaned) > _LONGEST_NAME or not cleaned.isprintable():
        raise UsageError(f"--reviewer: expected a name of 1 to {_LONGEST_NAME} characters.")
    return cleaned


@dataclass(frozen=True)
class AttentionCheck:
    """How a reviewer labelled the pairs whose relevance is known."""

    reviewer: str
    checked: int
    correct: int


def check_attention(queue: ReviewQueue, store: ReviewStore) -> list[AttentionCheck]:
    """Count each reviewer's correct labels of known pairs; an undecided label is not correct."""
    checks = []
    for reviewer, labels in store.labels().items():
        seen = [pair for pair in queue.checks if pair in labels]
        correct = sum(queue.rubric.is_relevant(labels[p]) is queue.checks[p] for p in seen)
        checks.append(AttentionCheck(reviewer, len(seen), correct))
    return checks


@dataclass(frozen=True)
class _Candidate:
    pair: Pair
    grade: int
    systems: tuple[str, ...]
    is_disputed: bool


def _candidates(sets: Sequence[JudgementSet], *, exclude: set[Pair]) -> list[_Candidate]:
    grades: dict[Pair, list[int]] = {}
    systems: dict[Pair, dict[str, None]] = {}
    relevant: dict[Pair, set[bool | None]] = {}
    for judged in sets:
        for pair, judgement in judged.judgements().items():
            is_original = judgement.purpose == "pool" and judgement.duplicate_of is None
            if judgement.grade is None or pair in exclude or not is_original:
                continue
            grades.setdefault(pair, []).append(judgement.grade)
            systems.setdefault(pair, {}).update(dict.fromkeys(judgement.systems))
            votes = [v.scores for v in judgement.votes if not v.problem]
            called = {judged.rubric.is_relevant(judged.rubric.grade_of(vote)) for vote in votes}
            relevant.setdefault(pair, set()).update(called)
    return [
        _Candidate(pair, min(pair_grades), tuple(systems[pair]), len(relevant[pair]) > 1)
        for pair, pair_grades in grades.items()
    ]


def _stratify(candidates: Sequence[_Candidate], size: int) -> list[Pair]:
    """Return up to `size` pairs: disputed ones, then one of each grade and system in turn."""
    by_pair = {candidate.pair: candidate for candidate in candidates}
    order = draw(by_pair, "review")
    chosen = dict.fromkeys([pair for pair in order if by_pair[pair].is_disputed][:size])
    strata: dict[tuple[int, str], list[Pair]] = {}
    for pair in order:
        for system in by_pair[pair].systems or ("",):
            strata.setdefault((by_pair[pair].grade, system), []).append(pair)
    for pair in _take_turns([strata[key] for key in sorted(strata)]):
        if len(chosen) >= size:
            break
        chosen.setdefault(pair)
    return list(chosen)


def _take_turns(groups: Sequence[Sequence[Pair]]) -> Iterator[Pair]:
    longest = max((len(group) for group in groups), default=0)
    for position in range(longest):
        for group in groups:
            if position < len(group):
                yield group[position]


def _known_pairs(task: Task, size: int) -> dict[Pair, bool]:
    """Sample pairs that the benchmark judged, alternately relevant and not relevant."""
    documents = set(task.corpus.document_ids.to_pylist())
    relevance = {
        (query_id, document_id): score > 0
        for query_id, scores in task.judgements.by_query().items()
        for document_id, score in scores.items()
        if document_id in documents
    }
    order = draw(relevance, "attention")
    groups = [[pair for pair in order if relevance[pair] is relevant] for relevant in (True, False)]
    sampled = [pair for _, pair in zip(range(size), _take_turns(groups), strict=False)]
    return {pair: relevance[pair] for pair in sampled}


def _read_decision(record: Mapping[str, Any]) -> Decision:
    return Decision(**{key: value for key, value in record.items() if key != "written"})
