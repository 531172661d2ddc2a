"""The four conditions: which passages a model sees for a question.

*Closed-book* shows none and is the floor; *retrieved* shows the first k documents of a system's
run; *oracle* shows the judged positives and is the ceiling; *distracted* shows the best-ranked
documents of the run that are judged not relevant.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from r2med.errors import DataError, plural
from r2med.judge.pool import query_texts, texts_of
from r2med.measure.scores import measure
from r2med.results.select import Ranking
from r2med.tasks.task import Task

Condition = Literal["closed-book", "retrieved", "oracle", "distracted"]
CONDITIONS: tuple[Condition, ...] = get_args(Condition)
#: Conditions that depend on a system's run.
OF_SYSTEMS: tuple[Condition, ...] = ("retrieved", "distracted")
_NAMED_QUERIES = 5


@dataclass(frozen=True)
class PosedQuestion:
    """A question under one condition, with the passages in the order of their numbers."""

    query_id: str
    condition: Condition
    system: str
    """The system whose run the passages are from; empty for closed-book and oracle."""
    text: str
    reference: str
    passage_ids: tuple[str, ...]
    passages: tuple[str, ...]
    relevant: tuple[int, ...]
    """The numbers of the passages that are judged relevant."""
    positives: int
    """Judged positives of the query."""
    retrieval: Mapping[str, float]
    """Retrieval measures of the query, for retrieved passages."""


@dataclass(frozen=True)
class Questions:
    """All questions of a task, the queries that were left out, and notices."""

    questions: tuple[PosedQuestion, ...]
    without_answer: tuple[str, ...]
    """Queries that have no reference answer."""
    without_positive: tuple[str, ...]
    """Queries with an answer, but without a judged positive in the corpus."""
    notices: tuple[str, ...]
    distractors: str
    """`judged` if the distractors were judged not relevant; `unjudged` if the task has no such
    documents.
    """


def build_questions(
    task: Task,
    rankings: Sequence[Ranking],
    *,
    k: int,
    conditions: Collection[Condition] = CONDITIONS,
) -> Questions:
    """Return the questions of a task under the chosen conditions.

    Only queries with a reference answer and a judged positive are asked, the same ones under
    all conditions.

    Raises:
        DataError: No query has both a reference answer and a judged positive.
    """
    texts = query_texts(task)
    judged = task.judgements.by_query()
    in_corpus = set(task.corpus.document_ids.to_pylist())
    positives = {
        query_id: _order_positives(judged.get(query_id, {}), in_corpus) for query_id in texts
    }
    without_answer = tuple(name for name in texts if not texts[name]["answer"].strip())
    without_positive = tuple(
        name for name in texts if name not in set(without_answer) and not positives[name]
    )
    left_out = {*without_answer, *without_positive}
    query_ids = [query_id for query_id in texts if query_id not in left_out]
    if not query_ids:
        raise DataError(
            f"{task.name}: no query can be asked: {plural(len(without_answer), 'query')} "
            f"without a reference answer, {len(without_positive)} without a judged positive.\n"
            "Answers are read from the column or field `answer` of the queries; see docs/data.md."
        )
    has_negatives = any(score <= 0 for scores in judged.values() for score in scores.values())
    builder = _Builder(task, texts, judged, positives, query_ids, k, has_negatives)
    questions: list[PosedQuestion] = []
    notices = [
        _name_queries(without_answer, "no reference answer"),
        _name_queries(without_positive, "no judged positive"),
    ]
    for condition in CONDITIONS:
        if condition not in conditions:
            continue
        if condition in OF_SYSTEMS:
            for ranking in rankings:
                added, notice = builder.of_system(condition, ranking)
                questions += added
                notices.append(notice)
        else:
            questions += builder.of_task(condition)
    if not has_negatives and "distracted" in conditions and rankings:
        notices.append(
            "the benchmark has no documents judged not relevant; the distracted condition shows "
            "the best-ranked documents that are not judged."
        )
    order = {query_id: index for index, query_id in enumerate(query_ids)}
    questions.sort(key=lambda question: order[question.query_id])
    return Questions(
        tuple(questions),
        without_answer,
        without_positive,
        tuple(f"{task.name}: {notice}" for notice in notices if notice),
        "judged" if has_negatives else "unjudged",
    )


def retrieval_measures(k: int) -> tuple[str, ...]:
    """Return the retrieval measures that answers are related to."""
    cut = (f"recall@{k}", f"precision@{k}", f"hit@{k}", f"ndcg@{k}")
    return tuple(dict.fromkeys((*cut, "ndcg@10", "recall@10", "recall@100", "mrr")))


@dataclass(frozen=True)
class _Builder:
    task: Task
    texts: Mapping[str, Mapping[str, str]]
    judged: Mapping[str, Mapping[str, int]]
    positives: Mapping[str, Sequence[str]]
    query_ids: Sequence[str]
    k: int
    has_negatives: bool

    def of_task(self, condition: Condition) -> list[PosedQuestion]:
        """Return closed-book or oracle questions."""
        documents_shown = {
            query_id: self.positives[query_id] if condition == "oracle" else ()
            for query_id in self.query_ids
        }
        return self._questions(condition, "", documents_shown, {})

    def of_system(self, condition: Condition, ranking: Ranking) -> tuple[list[PosedQuestion], str]:
        """Return questions with passages of one run, and a notice if lists are shorter than k."""
        documents_shown: dict[str, Sequence[str]] = {}
        for query_id in self.query_ids:
            documents = ranking.run.ranked_documents(query_id)
            if condition == "distracted":
                documents = [name for name in documents if self._distracts(query_id, name)]
            documents_shown[query_id] = documents[: self.k]
        short = [name for name, documents in documents_shown.items() if len(documents) < self.k]
        notice = ""
        if short:
            least = min(len(documents_shown[name]) for name in short)
            notice = (
                f"{ranking.name}, {condition}: {plural(len(short), 'query')} with fewer than "
                f"{self.k} passages (the least has {least}); what there is was shown."
            )
        measures = self._measures(ranking) if condition == "retrieved" else {}
        if condition == "distracted":  # without a distracting document there is nothing to test
            documents_shown = {
                name: documents for name, documents in documents_shown.items() if documents
            }
        return self._questions(condition, ranking.name, documents_shown, measures), notice

    def _distracts(self, query_id: str, document_id: str) -> bool:
        score = self.judged.get(query_id, {}).get(document_id)
        return score is None if not self.has_negatives else score is not None and score <= 0

    def _measures(self, ranking: Ranking) -> dict[str, dict[str, float]]:
        names = retrieval_measures(self.k)
        scores = measure(ranking.run, self.task.judgements, names)
        by_measure = {name: scores.by_query(name) for name in names}
        return {
            query_id: {name: by_measure[name][query_id] for name in names}
            for query_id in self.query_ids
        }

    def _questions(
        self,
        condition: Condition,
        system: str,
        documents_shown: Mapping[str, Sequence[str]],
        measures: Mapping[str, Mapping[str, float]],
    ) -> list[PosedQuestion]:
        needed = {document for documents in documents_shown.values() for document in documents}
        texts = texts_of(self.task, needed)
        questions = []
        for query_id, documents in documents_shown.items():
            present = [document for document in documents if document in texts]
            positives = set(self.positives[query_id])
            questions.append(
                PosedQuestion(
                    query_id=query_id,
                    condition=condition,
                    system=system,
                    text=self.texts[query_id]["query"],
                    reference=self.texts[query_id]["answer"].strip(),
                    passage_ids=tuple(present),
                    passages=tuple(texts[document] for document in present),
                    relevant=tuple(
                        number
                        for number, document in enumerate(present, start=1)
                        if document in positives
                    ),
                    positives=len(positives),
                    retrieval=measures.get(query_id, {}),
                )
            )
        return questions


def _order_positives(scores: Mapping[str, int], in_corpus: Collection[str]) -> list[str]:
    """Return the positives in the corpus, highest score first."""
    positives = [name for name, score in scores.items() if score > 0 and name in in_corpus]
    return sorted(positives, key=lambda name: (-scores[name], name))


def _name_queries(query_ids: Sequence[str], lack: str) -> str:
    if not query_ids:
        return ""
    listed = ", ".join(query_ids[:_NAMED_QUERIES])
    more = f" and {len(query_ids) - _NAMED_QUERIES} more" if len(query_ids) > _NAMED_QUERIES else ""
    verb = "has" if len(query_ids) == 1 else "have"
    return f"{plural(len(query_ids), 'query')} ({listed}{more}) {verb} {lack} and cannot be asked."
