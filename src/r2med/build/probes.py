"""Probes: rules that find positives without understanding the query.

A benchmark that such a rule solves is easy for the wrong reason: its positives differ in length,
typography or wording from other documents. Every *preference* is the probability that a rule scores
a positive higher than another document (0.5 is chance). A *gain* is the change of nDCG@10 of BM25
if a rule corrects its scores, and a *share* describes how positives were chosen.

`r2med build check`, `r2med build probes` and the tests of the demo suite all use this module.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.build.blind_classifiers import BlindClassifiers
from r2med.build.judged_texts import (
    AGAINST,
    JudgedQuery,
    JudgedTexts,
    Preference,
)
from r2med.build.searching import run_system
from r2med.build.text_features import (
    LENGTHS,
    OCCUPATIONS,
    TYPOGRAPHY,
    WORDING,
    find_words,
    opening_form,
)
from r2med.execution.resources import Resources
from r2med.measure.scores import measure
from r2med.runs import Run
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.task import Judgements, Task

Probe = Literal[
    "length", "typography", "wording", "opening", "person", "answers", "style", "words", "owners"
]
Unit = Literal["preference", "gain", "share"]
#: Preferences between LEAST and MOST are close enough to chance.
MOST = 0.65
LEAST = round(1 - MOST, 2)
#: Largest gain of BM25 that a rule may bring.
MOST_GAIN = 0.05
_METRIC = "ndcg@10"
#: Probes that learn which documents are positives.
_CLASSIFIERS = ("style", "words")
#: An opening form is common if at least this share of the judged documents has it.
_COMMON_SHARE = 1 / 8
#: Years by which two ages may differ to be taken for the same.
_AGE_DISTANCE = 3
#: Answers longer than this are sentences, which no passage repeats.
_MOST_TERM_WORDS = 6
_SHORTEST_TERM = 4
_AGE = re.compile(
    r"(?:aged|age)\s+(\d{1,3})|\b(\d{1,3})[- ]?(?:-?years?(?:[- ]old)?|y/?o)\b"
    r"|,\s(\d{1,3})\s+years?\b",
    re.IGNORECASE,
)

Terms = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class ProbeFigure:
    """The figure of one rule, and the group of documents that positives are compared with."""

    probe: str
    feature: str
    against: str
    unit: str
    value: float | None
    """None if there is nothing to compare, such as a task without hard negatives."""
    low: float | None = None
    high: float | None = None
    """`low` and `high` are the limits of the 95 % interval of a preference."""
    pairs: int = 0

    @property
    def is_outside(self) -> bool | None:
        """Whether the figure exceeds our limits; None for shares and unmeasured figures."""
        return self.exceeds(MOST, MOST_GAIN)

    def exceeds(self, most: float, most_gain: float) -> bool | None:
        """Whether a preference is above `most` or below 1 - `most`, or a gain above `most_gain`.

        Classifiers have no lower limit, because a classifier that prefers other documents does not
        find the positives.
        """
        if self.value is None or self.unit == "share":
            return None
        if self.unit == "gain":
            return self.value > most_gain
        is_below = self.value < 1 - most and self.probe not in _CLASSIFIERS
        return self.value > most or is_below

    @property
    def is_chance(self) -> bool:
        """Whether the interval of a preference includes 0.5."""
        return self.low is not None and self.high is not None and self.low <= 0.5 <= self.high

    @property
    def distance(self) -> float:
        """Distance of a preference from chance; 0 if it was not measured."""
        return 0.0 if self.value is None else abs(self.value - 0.5)


@dataclass(frozen=True, eq=False)
class ProbeTable(Tabular):
    """The figures of all probes on one task."""

    name: str
    queries: int
    positives: int
    hard_negatives: int
    never_positive: int
    background: int
    """Background documents that positives were compared with; at most 2,000."""
    figures: tuple[ProbeFigure, ...]

    is_drawn = True

    def find(self, probe: str, feature: str, against: str = "") -> ProbeFigure:
        """Return the figure of a probe's rule (`feature`) against a group of documents.

        Raises:
            KeyError: There is no such figure.
        """
        for figure in self.figures:
            if (figure.probe, figure.feature, figure.against) == (probe, feature, against):
                return figure
        raise KeyError(f"no figure {probe}, {feature}, {against or 'without comparison'}")

    def farthest(self, probe: str, against: str) -> ProbeFigure | None:
        """Return a probe's figure whose preference is farthest from chance; None without any."""
        figures = (
            figure
            for figure in self.figures
            if (figure.probe, figure.against, figure.unit) == (probe, against, "preference")
            and figure.value is not None
        )
        return max(figures, key=lambda figure: figure.distance, default=None)

    @property
    def outside(self) -> list[ProbeFigure]:
        """Figures outside the limits, the farthest from chance first."""
        figures = [figure for figure in self.figures if figure.is_outside]
        return sorted(figures, key=lambda figure: -figure.distance)

    def to_arrow(self) -> pa.Table:
        """One row per figure."""
        return make_table(table_columns(ProbeFigure), [asdict(f) for f in self.figures])

    def to_json(self) -> dict[str, Any]:
        """All figures as JSON values."""
        counts = {name: value for name, value in vars(self).items() if name != "figures"}
        rows = [{**asdict(figure), "outside": figure.is_outside} for figure in self.figures]
        return {**counts, "limits": [LEAST, MOST], "most_gain": MOST_GAIN, "figures": rows}


def probe_task(
    task: Task, *, answer_terms: Terms | None = None, resources: Resources | None = None
) -> ProbeTable:
    """Measure all probes on a task with judgements.

    Args:
        task: Any loaded task. Without judged negatives, only the comparison with the background
            is measured.
        answer_terms: Words that name the answer, by query. By default the field `answer_terms` of
            the task's query.jsonl, else answers of at most six words; without any, probes on
            answers are left out.
        resources: Options and callbacks of the BM25 run that gains are measured on.

    Example:
        >>> table = probe_task(r2med.load_task("demo/biology"))
        >>> table.find("length", "words", "background").value
    """
    judged = JudgedTexts.of(task)
    terms = find_answer_terms(task) if answer_terms is None else answer_terms
    answers = AnswerNames(judged, terms)
    run = run_system("bm25", task, resources or Resources())
    figures = (
        *_surface_figures(judged),
        *_opening_figures(judged),
        *_person_figures(judged),
        *_answer_figures(judged, answers),
        *_classifier_figures(judged),
        *_owner_figures(judged, run, task.judgements),
        *_run_figures(judged, run, task.judgements, answers),
    )
    return ProbeTable(
        name=task.name,
        queries=len(judged.queries),
        positives=len(judged.positives),
        hard_negatives=len({d for query in judged.queries for d in query.negatives}),
        never_positive=len(judged.never_positive),
        background=len(judged.background),
        figures=figures,
    )


def find_answer_terms(task: Task) -> dict[str, tuple[str, ...]]:
    """Return terms that name a query's answer, by query id; queries without terms are left out."""
    terms: dict[str, tuple[str, ...]] = {
        query_id: (answer.strip(" ."),)
        for query_id, answer in zip(
            task.queries.ids.to_pylist(), task.queries.answers.to_pylist(), strict=True
        )
        if answer and len(answer.split()) <= _MOST_TERM_WORDS
    }
    path = task.source / "query.jsonl"
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                row = json.loads(line) if line.strip() else {}
                if row.get("answer_terms"):
                    terms[str(row["id"])] = tuple(map(str, row["answer_terms"]))
    return terms


def find_shared_sentences(judged: JudgedTexts, *, least_words: int = 6) -> list[str]:
    """Return the sentences of `least_words` or more words that several documents contain."""
    counts = Counter(
        sentence
        for text in judged.texts.values()
        for sentence in {
            " ".join(find_words(part)) for part in re.split(r"(?<=[.!?:;])\s+|\n", text)
        }
        if sentence.count(" ") >= least_words - 1
    )
    return [sentence for sentence, count in counts.items() if count > 1]


class AnswerNames:
    """Finds where documents name the answers of a task."""

    def __init__(self, judged: JudgedTexts, terms: Terms) -> None:
        """Compile the terms of every query that has any."""
        self._texts = judged.texts
        self.patterns = {
            query.id: _compile_terms(terms[query.id])
            for query in judged.queries
            if terms.get(query.id)
        }

    def position(self, query_id: str, document_id: str) -> float | None:
        """Return where a document first names a query's answer, from 0 to 1; None if nowhere."""
        if query_id not in self.patterns:
            return None
        return self._first(document_id, [self.patterns[query_id]])

    def first_position(self, document_id: str) -> float | None:
        """Return where a document first names any of the task's answers, from 0 to 1, or None."""
        return self._first(document_id, self.patterns.values())

    def count(self, document_id: str) -> int:
        """Return the number of different answers of the task that a document names."""
        text = self._texts[document_id]
        return len({p.pattern for p in self.patterns.values() if p.search(text)})

    def _first(self, document_id: str, patterns: Iterable[re.Pattern[str]]) -> float | None:
        text = self._texts[document_id]
        starts = [match.start() for pattern in patterns if (match := pattern.search(text))]
        return min(starts) / len(text) if starts else None


def _compile_terms(terms: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern for terms at the start of a word; short terms match whole, by case."""
    parts = [
        rf"(?-i:\b{re.escape(term)}\b)" if len(term) < _SHORTEST_TERM else rf"\b{re.escape(term)}"
        for term in sorted(terms)
    ]
    return re.compile("|".join(parts), re.IGNORECASE)


def _figure(probe: Probe, feature: str, against: str, preference: Preference | None) -> ProbeFigure:
    if preference is None:
        return ProbeFigure(probe, feature, against, "preference", None)
    low, high = preference.interval.low, preference.interval.high
    return ProbeFigure(
        probe, feature, against, "preference", preference.value, low, high, preference.pairs
    )


def _compare_all(
    judged: JudgedTexts, probe: Probe, feature: str, score: Callable[[str], float]
) -> Iterator[ProbeFigure]:
    scores = {document_id: score(text) for document_id, text in judged.texts.items()}
    for against in AGAINST:
        yield _figure(probe, feature, against, judged.compare_documents(scores, against))


def _surface_figures(judged: JudgedTexts) -> Iterator[ProbeFigure]:
    """Compare length, typography and wording of positives with those of other documents."""
    for feature, length in LENGTHS.items():
        yield from _compare_all(judged, "length", feature, length)
        lengths = [length(judged.texts[document_id]) for document_id in judged.positives]
        middle = float(np.median(lengths)) if lengths else 0.0

        def distance(
            text: str, length: Callable[[str], float] = length, middle: float = middle
        ) -> float:
            return abs(length(text) - middle)

        yield from _compare_all(judged, "length", f"{feature}, distance from median", distance)
    for feature, score in TYPOGRAPHY.items():
        yield from _compare_all(judged, "typography", feature, score)
    for feature, score in WORDING.items():
        yield from _compare_all(judged, "wording", feature, score)


def _opening_figures(judged: JudgedTexts) -> Iterator[ProbeFigure]:
    """Compare how often positives and others begin with each common form of opening."""
    judged_ids = {d for query in judged.queries for d in (*query.positives, *query.negatives)}
    counts = Counter(opening_form(judged.texts[document_id]) for document_id in judged_ids)
    for form, count in sorted(counts.items()):
        if count >= _COMMON_SHARE * len(judged_ids):
            yield from _compare_all(
                judged,
                "opening",
                form,
                lambda text, form=form: float(opening_form(text) == form),  # type: ignore[misc]
            )


def _person_figures(judged: JudgedTexts) -> Iterator[ProbeFigure]:
    """Compare how often documents name a person of the query's age or occupation."""
    ages = {document_id: _first_age(text) for document_id, text in judged.texts.items()}
    occupations = {
        document_id: OCCUPATIONS.intersection(find_words(text))
        for document_id, text in judged.texts.items()
    }

    def share_age(query: JudgedQuery, document_id: str) -> float:
        age, other_age = _first_age(query.text), ages[document_id]
        is_known = age is not None and other_age is not None
        return float(is_known and abs(age - other_age) <= _AGE_DISTANCE)  # type: ignore[operator]

    def share_occupation(query: JudgedQuery, document_id: str) -> float:
        return float(bool(occupations[document_id].intersection(find_words(query.text))))

    for against in AGAINST:
        yield _figure("person", "age", against, judged.compare_pairs(share_age, against))
        yield _figure(
            "person", "occupation", against, judged.compare_pairs(share_occupation, against)
        )


def _answer_figures(judged: JudgedTexts, answers: AnswerNames) -> Iterator[ProbeFigure]:
    """Compare where a document names the answer, and how many answers of the task it names."""
    if not answers.patterns:
        return
    counts: dict[str, float | None] = {d: float(answers.count(d)) for d in judged.texts}
    positions = {d: answers.first_position(d) for d in judged.texts}
    for against in AGAINST:
        if against == "background":
            position = judged.compare_documents(positions, against)
        else:
            position = judged.compare_pairs(lambda q, d: answers.position(q.id, d), against)
        yield _figure("answers", "position of the answer", against, position)
        number = judged.compare_documents(counts, against)
        yield _figure("answers", "number of answers named", against, number)
    names_answer = [
        answers.position(query.id, document_id) is not None
        for query in judged.queries
        if query.id in answers.patterns
        for document_id in query.negatives
    ]
    yield _share("answers", "hard negatives that name the answer", names_answer)


def _classifier_figures(judged: JudgedTexts) -> Iterator[ProbeFigure]:
    classifiers = BlindClassifiers(judged)
    for against in AGAINST:
        preference = classifiers.compare_style(against)
        yield _figure("style", "naive Bayes on function words", against, preference)
    words = classifiers.compare_words("hard negatives")
    yield _figure("words", "words and word pairs", "hard negatives", words)
    shuffled = classifiers.compare_words("hard negatives", shuffled=1)
    value = None if shuffled is None else shuffled.value
    pairs = 0 if shuffled is None else shuffled.pairs
    yield ProbeFigure(
        "words", "the same with shuffled labels", "hard negatives", "share", value, pairs=pairs
    )


def _owner_figures(judged: JudgedTexts, run: Run, judgements: Judgements) -> Iterator[ProbeFigure]:
    """Measure how many positives belong to one query only, and BM25's gain from using that."""
    owners = Counter(document_id for query in judged.queries for document_id in query.positives)
    yield _share("owners", "positives of a single query", [n == 1 for n in owners.values()])
    if owners and len(judged.queries) > 1:
        yield _gain("owners", "BM25 less its best score for another query", run,
                    _subtract_others(run), judgements)  # fmt: skip


def _run_figures(
    judged: JudgedTexts, run: Run, judgements: Judgements, answers: AnswerNames
) -> Iterator[ProbeFigure]:
    """Measure BM25's gain from counting answers, and how often its first hit is a negative."""
    if not judged.positives:
        return
    if answers.patterns:
        factors = {d: 1.0 + answers.count(d) for d in judged.texts}
        yield _gain("answers", "BM25 times the number of answers named", run,
                    _multiply(run, factors), judgements)  # fmt: skip
    first_hits = [
        bool(ranked) and ranked[0] in query.negatives
        for query in judged.queries
        if query.negatives
        for ranked in [run.ranked_documents(query.id)[:1]]
    ]
    yield _share("words", "first BM25 hit is a hard negative", first_hits)


def _share(probe: Probe, feature: str, flags: Sequence[bool]) -> ProbeFigure:
    value = float(np.mean(flags)) if flags else None
    return ProbeFigure(probe, feature, "", "share", value, pairs=len(flags))


def _gain(
    probe: Probe, feature: str, run: Run, changed: Run, judgements: Judgements
) -> ProbeFigure:
    before, after = (
        float(measure(scored, judgements, [_METRIC], ties="list")[_METRIC].mean())
        for scored in (run, changed)
    )
    return ProbeFigure(probe, feature, "", "gain", after - before)


def _subtract_others(run: Run) -> Run:
    """Return the run with each document's best score for another query subtracted."""
    best: dict[int, list[float]] = {}
    for document, score in zip(run.documents.tolist(), run.scores.tolist(), strict=True):
        best.setdefault(document, []).append(score)
    top = {document: sorted(scores)[-2:] for document, scores in best.items()}

    def correct(document: int, score: float) -> float:
        highest = top[document]
        if len(highest) == 1:
            return score
        return score - (highest[0] if score == highest[1] else highest[1])

    return _rescore(run, correct)


def _multiply(run: Run, factors: Mapping[str, float]) -> Run:
    ids = run.document_ids.to_pylist()
    return _rescore(run, lambda document, score: score * factors.get(ids[document], 1.0))


def _rescore(run: Run, correct: Callable[[int, float], float]) -> Run:
    """Return the run with `correct(document, score)` as scores and every list sorted again."""
    ids = run.document_ids.to_pylist()
    lists = {}
    for row, query_id in enumerate(run.query_ids.to_pylist()):
        entries = slice(run.offsets[row], run.offsets[row + 1])
        documents, scores = run.documents[entries].tolist(), run.scores[entries].tolist()
        corrected = [
            (ids[document], correct(document, score))
            for document, score in zip(documents, scores, strict=True)
        ]
        lists[query_id] = sorted(corrected, key=lambda pair: -pair[1])
    return Run.from_lists(lists)


def _first_age(text: str) -> int | None:
    match = _AGE.search(text)
    return int(next(filter(None, match.groups()))) if match else None
