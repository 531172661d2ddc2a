"""Pages of answers: all answer sets, one set with its conditions, one query side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from r2med.answer.citations import AnswerPiece, split_citations
from r2med.answer.conditions import CONDITIONS, OF_SYSTEMS, Condition
from r2med.answer.correctness import Correctness
from r2med.answer.grading import find_grades, judged_correctness
from r2med.answer.listing import rank_answers
from r2med.answer.reporting import AnswerReport, report_answers
from r2med.answer.scoring import find_correctness
from r2med.answer.store import AnswerSet, AnswerStore, StoredAnswer, data_hash
from r2med.errors import DataError, MissingError, R2MedError, nearest
from r2med.explore.library import Snapshot
from r2med.explore.render import Axis, Link, plural, points, render
from r2med.judge.pool import texts_of
from r2med.measure.intervals import Interval
from r2med.number_format import join_words
from r2med.report.answers import describe_relation, format_correlation, summarise
from r2med.results.diagnosis.findings import label_of

#: Characters of a passage before it is folded.
_EXCERPT = 280


@dataclass(frozen=True)
class ShownPassage:
    """A passage as the model saw it, with its judgement and whether it was cited."""

    number: int
    document_id: str
    label: str
    is_cited: bool
    head: str
    rest_of_text: str


@dataclass(frozen=True)
class ShownAnswer:
    """One answer under one condition, with its passages."""

    condition: Condition
    system: str
    outcome: Correctness | None
    f1: float
    segments: Sequence[AnswerPiece]
    invented: Sequence[int]
    """Numbers that the answer cites although no passage has them."""
    passages: Sequence[ShownPassage]


@dataclass(frozen=True, eq=False)
class AnswerSetData:
    """A stored answer set, with the values that pages need."""

    answer_set: AnswerSet

    @cached_property
    def answers(self) -> list[StoredAnswer]:
        """All answers of the set."""
        return list(self.answer_set.answers().values())

    @cached_property
    def judged(self) -> Mapping[tuple[str, str], Correctness]:
        """The correctness of graded answers, by query and answer."""
        return judged_correctness(find_grades(self.answer_set, None))

    @cached_property
    def query_ids(self) -> list[str]:
        """The ids of queries in the order in which they were asked."""
        return list(dict.fromkeys(answer.query_id for answer in self.answers))

    @cached_property
    def systems(self) -> list[str]:
        """The systems whose passages were shown to the model."""
        return list(dict.fromkeys(answer.system for answer in self.answers if answer.system))


def answers_page(snapshot: Snapshot, link: Link) -> str:
    """Return the page of all answer sets: scores of models and systems by condition, per task."""
    folder = snapshot.library.folder
    problems: list[str] = []
    sets = AnswerStore(folder, warn=problems.append).sets()
    board = rank_answers(sets)
    best = max((row for row in board.rows if row.system), key=lambda row: row.score, default=None)
    answer = "No answers are stored yet."
    if best is not None:
        answer = (
            f"The best answers with retrieved passages: {best.llm} with {best.system} scores "
            f"{100 * best.score:.1f} on {best.task}."
        )
    elif board.rows:
        answer = f"{plural(len(sets), 'answer set')}, none with retrieved passages."
    return render(
        "answers.html",
        link,
        page="answers",
        title="Answers",
        answer=answer,
        rows=board.rows,
        problems=[*problems, *board.left_out],
        interval=lambda row: Interval(row.low, row.high),
    )


def answer_set_page(snapshot: Snapshot, link: Link, task: str, name: str) -> str:
    """Return the page of an answer set: scores by condition, relation to retrieval, and queries."""
    data = AnswerSetData(_find_set(snapshot, task, name))
    description = data.answer_set.description
    report, problem = None, ""
    try:
        report = report_answers([data.answer_set])
    except DataError as error:
        problem = str(error)
    rows = [] if report is None else list(report.rows)
    ends = [end for row in rows for end in (row.interval.low, row.interval.high)]
    return render(
        "answer_set.html",
        link,
        page="answers",
        title=f"Answers of {description.llm} on {task}",
        task=task,
        suite=description.suite,
        description=description,
        answer=_describe_scores(report) if report else _count_sentence(data),
        problem=problem,
        report=report,
        rows=rows,
        axis=Axis.around(ends) if ends else None,
        relation=""
        if report is None or report.relation is None
        else describe_relation(report.relation),
        correlation=format_correlation,
        queries=_query_rows(data),
        arms=_arms(data),
    )


def answer_query_page(
    snapshot: Snapshot, link: Link, task: str, name: str, query_id: str, system: str | None
) -> str:
    """Return the page of a query: answers under four conditions, passages and citations."""
    data = AnswerSetData(_find_set(snapshot, task, name))
    if query_id not in data.query_ids:
        raise MissingError(f"{name} on {task} has no answer to query {query_id[:100]!r}.")
    if system is not None and system not in data.systems:
        raise MissingError(
            f"{name} on {task} has no answers with {system[:100]!r}. "
            f"{nearest(system, data.systems)}"
        )
    chosen = system or next(iter(data.systems), "")
    of_query = [answer for answer in data.answers if answer.query_id == query_id]
    passages, missing = _read_passages(snapshot, data.answer_set, of_query)
    shown_answers = []
    for condition in CONDITIONS:
        wanted_system = chosen if condition in OF_SYSTEMS else ""
        for answer in of_query:
            if (answer.condition, answer.system, answer.sample) == (condition, wanted_system, 0):
                shown_answers.append(_show(answer, data, passages))
    position = data.query_ids.index(query_id)
    first = of_query[0]
    return render(
        "answer_query.html",
        link,
        page="answers",
        title=f"Answers to query {query_id}",
        task=task,
        suite=data.answer_set.description.suite,
        description=data.answer_set.description,
        name=name,
        query_id=query_id,
        question=first.question,
        reference=first.reference,
        answer=_sentence(shown_answers, data.answer_set.description.llm),
        columns=shown_answers,
        systems=data.systems,
        chosen=chosen,
        samples=max(answer.sample for answer in of_query) + 1,
        missing=missing,
        position=position + 1,
        total=len(data.query_ids),
        before=data.query_ids[position - 1] if position else None,
        after=data.query_ids[position + 1] if position + 1 < len(data.query_ids) else None,
    )


def _find_set(snapshot: Snapshot, task: str, name: str) -> AnswerSet:
    store = AnswerStore(snapshot.library.folder, warn=lambda _: None)
    for answer_set in store.sets():
        if (answer_set.description.task, answer_set.name) == (task, name):
            return answer_set
    raise MissingError(f"No answer set {name[:100]!r} is stored on {task[:100]!r}.")


@dataclass(frozen=True)
class _Passages:
    """Texts and judgements of the passages that were shown for a query."""

    texts: Mapping[str, str]
    judged: Mapping[str, int]


def _read_passages(
    snapshot: Snapshot, answer_set: AnswerSet, answers: Sequence[StoredAnswer]
) -> tuple[_Passages | None, str]:
    """Return all shown passages of a query, or None and the reason why they cannot be read."""
    try:
        task = snapshot.library.task(answer_set.description.task)
    except R2MedError as problem:
        return None, str(problem)
    if data_hash(task) != answer_set.description.data:
        return None, "The data of this task has changed since these answers were given."
    texts = texts_of(task, {name for answer in answers for name in answer.passage_ids})
    return _Passages(texts, task.judgements.by_query().get(answers[0].query_id, {})), ""


def _show(answer: StoredAnswer, data: AnswerSetData, passages: _Passages | None) -> ShownAnswer:
    count = len(answer.passage_ids)
    shown_passages = []
    for number, document_id in enumerate(answer.passage_ids, start=1):
        text = passages.texts.get(document_id, "") if passages else ""
        text = data.answer_set.description.prompt.shorten(text)
        head = text if len(text) <= _EXCERPT else text[:_EXCERPT].rsplit(" ", 1)[0]
        label = "positive" if number in answer.relevant else ""
        if not label and passages:
            label = label_of(passages.judged.get(document_id))
        shown_passages.append(
            ShownPassage(
                number=number,
                document_id=document_id,
                label=label,
                is_cited=number in answer.cited,
                head=head,
                rest_of_text=text[len(head) :],
            )
        )
    return ShownAnswer(
        condition=answer.condition,
        system=answer.system,
        outcome=find_correctness(answer, data.judged),
        f1=answer.f1,
        segments=split_citations(answer.text, count),
        invented=[number for number in answer.cited if not 1 <= number <= count],
        passages=shown_passages,
    )


def _sentence(shown_answers: Sequence[ShownAnswer], llm: str) -> str:
    """Describe the outcomes in one sentence."""
    words = {"closed-book": "closed-book", "oracle": "with the judged positives"}
    parts = []
    for item in shown_answers:
        where = words.get(item.condition, "")
        if item.condition == "retrieved":
            where = f"with the passages of {item.system}"
        elif item.condition == "distracted":
            where = "with distracting passages"
        outcome = item.outcome or f"F1 {100 * item.f1:.0f}"
        parts.append(f"{where} {outcome}")
    return f"{llm}: {'; '.join(parts)}."


def _describe_scores(report: AnswerReport) -> str:
    """Describe how far the best system gets from floor to ceiling; without both, its score."""
    sentence = summarise(report)
    best = max((row for row in report.rows if row.system), key=lambda row: row.score, default=None)
    if sentence or best is None:
        return sentence or f"{plural(len(report.rows), 'condition is', 'conditions are')} scored."
    references = [f"{row.condition} {points(row.score)}" for row in report.rows if not row.system]
    compared = f" against {join_words(references)}" if references else ""
    return f"With passages of {best.system} answers score {points(best.score)}{compared}."


def _count_sentence(data: AnswerSetData) -> str:
    queries = plural(len(data.query_ids), "query", "queries")
    return f"{plural(len(data.answers), 'answer')} to {queries}, not scored yet."


def _arms(data: AnswerSetData) -> list[tuple[Condition, str]]:
    present = {(answer.condition, answer.system) for answer in data.answers}
    return sorted(present, key=lambda arm: (CONDITIONS.index(arm[0]), arm[1]))


def _query_rows(
    data: AnswerSetData,
) -> list[tuple[str, str, list[tuple[Correctness | None, float] | None]]]:
    """Return for each query its id, its question and the first sample's outcome under every arm."""
    by_key = {
        (answer.query_id, answer.condition, answer.system): (
            find_correctness(answer, data.judged),
            answer.f1,
        )
        for answer in data.answers
        if answer.sample == 0
    }
    questions = {answer.query_id: answer.question for answer in data.answers}
    return [
        (
            query_id,
            questions[query_id],
            [by_key.get((query_id, condition, system)) for condition, system in _arms(data)],
        )
        for query_id in data.query_ids
    ]
