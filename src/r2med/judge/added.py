"""Which judgements a score uses: the benchmark's, or also those of judges and people.

Added judgements fill holes only: a pair that the benchmark judged keeps its score. Of several
sources, settled labels come first, then labels of people, then judges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from r2med.errors import DataError, MissingError, plural
from r2med.judge.log import Warn
from r2med.judge.review import ReviewStore
from r2med.judge.rubric import Rubric
from r2med.judge.store import JudgementSet, JudgementStore, Pair, texts_hash
from r2med.results.record import BENCHMARK
from r2med.tasks.task import Judgements, Task

ALL, REVIEW = "all", "review"


@dataclass(frozen=True)
class Source:
    """Grades of one judge or of people, with the rubric that defines them."""

    name: str
    rubric: Rubric
    grades: Mapping[Pair, int]


@dataclass(frozen=True, eq=False)
class ChosenJudgements:
    """The judgements that --judgements selects, with counts of the added ones."""

    choice: str
    judgements: Judgements
    sources: tuple[str, ...] = ()
    added: int = 0
    """Pairs without a judgement in the benchmark."""
    relevant: int = 0
    """Added pairs that are relevant."""
    undecided: int = 0
    """Pairs left out because they are neither relevant nor irrelevant."""
    copied: int = 0
    """Added pairs whose document has the same text as one that the benchmark judged."""

    @property
    def label(self) -> str:
        """The label of scores with these judgements in tables, pages and exports."""
        if self.choice == BENCHMARK:
            return "benchmark judgements"
        return (
            f"benchmark + {', '.join(self.sources)}: {plural(self.added, 'added judgement')}, "
            f"{self.relevant:,} relevant; not comparable with published figures"
        )


def choose_judgements(task: Task, choice: str, results: Path, *, warn: Warn) -> ChosenJudgements:
    """Return a task's judgements for the choice `benchmark`, `all`, `review` or a set's name.

    Raises:
        MissingError: The task has no set of this name.
        DataError: A set was judged on other documents or queries.
    """
    if choice == BENCHMARK:
        return ChosenJudgements(choice, task.judgements)
    people = _read_people(task, results, warn)
    store = JudgementStore(results, warn=warn)
    if choice == ALL:
        sources = [*people, *(_source(judged, task) for judged in store.graded_sets(task))]
        if not sources:
            raise MissingError(
                f"--judgements all: {task.name} has no added judgements in {results}.\n"
                f"Make some: r2med judge SYSTEM... --task {task.name} --judge LLM"
            )
    elif choice == REVIEW:
        sources = people
        if not sources:
            raise MissingError(
                f"--judgements review: {task.name} has no reviewed pair in {results}.\n"
                f"Start a review: r2med review --task {task.name} --reviewer NAME"
            )
    else:
        sources = [_source(store.find(choice, task), task)]
    return add_judgements(task, sources, choice=choice)


def add_judgements(task: Task, sources: Sequence[Source], *, choice: str = ALL) -> ChosenJudgements:
    """Add grades to a task's own judgements.

    Labels of people replace the grades of judges. Without a label of people, several judges vote on
    a pair: the majority counts, and a tie means not relevant.
    """
    scores, undecided = _decide(sources, is_graded=_is_graded(task))
    judged = task.judgements.by_query()
    documents = set(task.corpus.document_ids.to_pylist())
    queries = set(task.queries.ids.to_pylist())
    copies = copy_to_equal_texts(task)
    added: dict[Pair, int] = dict(copies)
    for (query_id, document_id), score in scores.items():
        is_known = query_id in queries and document_id in documents
        if is_known and document_id not in judged.get(query_id, {}):
            added.setdefault((query_id, document_id), score)
    return ChosenJudgements(
        choice=choice,
        judgements=_extend(task.judgements, added),
        sources=tuple(source.name for source in sources),
        added=len(added),
        relevant=sum(score > 0 for score in added.values()),
        undecided=sum(pair[1] not in judged.get(pair[0], {}) for pair in undecided - added.keys()),
        copied=len(copies),
    )


def copy_to_equal_texts(task: Task) -> dict[Pair, int]:
    """Return scores for unjudged documents that have the same text as a judged document.

    If equal texts have different scores, the highest is returned.
    """
    encoded = task.corpus.texts.take(pa.array(task.corpus.last_rows)).dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    ids = task.corpus.document_ids.to_pylist()
    text_of = dict(zip(ids, codes.tolist(), strict=True))
    repeated = {code for code, count in Counter(codes.tolist()).items() if count > 1 and code >= 0}
    sharing: dict[int, list[str]] = {}
    for document_id, code in text_of.items():
        if code in repeated:
            sharing.setdefault(code, []).append(document_id)
    copies: dict[Pair, int] = {}
    for query_id, scores in task.judgements.by_query().items():
        for document_id, score in scores.items():
            for copy_id in sharing.get(text_of.get(document_id, -1), ()):
                if copy_id not in scores:
                    pair = (query_id, copy_id)
                    copies[pair] = max(score, copies.get(pair, score))
    return copies


def _decide(sources: Sequence[Source], *, is_graded: bool) -> tuple[dict[Pair, int], set[Pair]]:
    """Return a score for every decided pair, and the pairs that no source decides."""
    scores: dict[Pair, int] = {}
    undecided: set[Pair] = set()
    people = [source for source in sources if source.name == REVIEW]
    judges = [source for source in sources if source.name != REVIEW]
    for source in people:
        for pair, grade in source.grades.items():
            relevant = source.rubric.is_relevant(grade)
            if relevant is not None:
                scores[pair] = _score(grade, relevant, is_graded)
            else:
                undecided.add(pair)
    votes: dict[Pair, list[int]] = {}
    for source in judges:
        for pair, grade in source.grades.items():
            relevant = source.rubric.is_relevant(grade)
            if relevant is None:
                undecided.add(pair)
            else:
                votes.setdefault(pair, []).append(_score(grade, relevant, is_graded))
    reviewed = {pair for source in people for pair in source.grades}
    for pair, cast in votes.items():
        if pair not in reviewed:
            for_it = [score for score in cast if score > 0]
            scores[pair] = min(for_it) if 2 * len(for_it) > len(cast) else 0
    return scores, undecided - scores.keys()


def _score(grade: int, relevant: bool, is_graded: bool) -> int:
    if not relevant:
        return 0
    return max(grade, 1) if is_graded else 1


def _is_graded(task: Task) -> bool:
    """Whether added grades keep their values; they become 0 or 1 if the benchmark is binary."""
    return not len(task.judgements) or int(task.judgements.scores.max()) > 1


def _extend(judgements: Judgements, added: Mapping[Pair, int]) -> Judgements:
    if not added:
        return judgements
    queries = pa.array([query_id for query_id, _ in added], pa.large_string())
    documents = pa.array([document_id for _, document_id in added], pa.large_string())
    scores = np.array(list(added.values()), dtype=np.int32)
    return Judgements(
        pa.concat_arrays([judgements.query_ids, queries]),
        pa.concat_arrays([judgements.document_ids, documents]),
        np.concatenate([judgements.scores, scores]),
    )


def _source(judged: JudgementSet, task: Task) -> Source:
    if judged.description.texts != texts_hash(task):
        raise DataError(
            f"judgement set {judged.name!r}: it was judged on other documents or queries than "
            f"{task.name} has now.\nJudge again under another name, or delete the set: "
            f"r2med judge delete {judged.name} --task {task.name}"
        )
    return Source(judged.name, judged.rubric, judged.grades())


def _read_people(task: Task, results: Path, warn: Warn) -> list[Source]:
    """Return the labels of people as one source; empty without a review of these texts."""
    store = ReviewStore(results, task.name, task.suite, warn=warn)
    if not store.exists:
        return []
    queue = store.queue()
    labels = store.final_labels(queue.rubric)
    if queue.texts != texts_hash(task):
        warn(f"{store.folder}: the review is of other documents or queries and is left out.")
        return []
    return [Source(REVIEW, queue.rubric, labels)] if labels else []
