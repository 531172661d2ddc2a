"""Artefacts of construction: rules that find positives without understanding the query.

Every figure is a within-query probability: of all pairs of a positive and a hard negative of one
query, the share in which the rule scores the positive higher (ties count one half). 0.5 is chance,
so a rule says something about how texts were made as far as it departs from 0.5.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

OCCUPATIONS = frozenset(
    re.findall(
        r"[a-z]+",
        """accountant actor architect baker barber bartender biologist bricklayer builder
        butcher carpenter cashier chef cleaner clerk coach conductor cook courier dancer
        dentist designer diver doctor driver electrician engineer factory farmer firefighter
        fisherman florist forester gardener hairdresser housewife janitor joiner journalist
        judge lawyer librarian lorry mason mechanic midwife miner musician nurse painter
        pharmacist pilot plumber policeman postman potter priest programmer retired roofer
        sailor salesman secretary shepherd singer soldier student surgeon tailor teacher
        technician translator truck veterinarian vet violinist waiter waitress warehouse
        welder worker writer""",
    )
)

_AGE = re.compile(
    r"(?:aged|age)\s+(\d{1,3})|\b(\d{1,3})[- ]?(?:-?years?(?:[- ]old)?|y/?o)\b"
    r"|,\s(\d{1,3})\s+years?\b",
    re.I,
)

#: Wordings in which a text denies its own use, or prescribes.
_DENIALS = re.compile(
    r"\b(?:not (?:meant|intended|suited|useful|helpful|needed|indicated|enough|explained?)|no role"
    r"|cannot (?:explain|account|tell)|does not|do not|is not|are not|was not|were not|rather than"
    r"|instead of|never|neither|nor|without|unlike|calls? for)\b",
    re.I,
)


Length = Callable[[str], float]

#: Ways to measure how long a text is.
LENGTHS: Mapping[str, Length] = {
    "words": lambda text: len(text.split()),
    "characters": len,
    "first sentence": lambda text: len(re.split(r"(?<=[.!?])\s+", text, maxsplit=1)[0].split()),
}


@dataclass(frozen=True)
class JudgedQuery:
    """A query with the texts judged for it."""

    text: str
    answer_terms: tuple[str, ...]
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


@dataclass(frozen=True)
class Collection:
    """A task's queries and texts, read from its folder."""

    queries: tuple[JudgedQuery, ...]
    documents: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Collection:
        """Read corpus, queries and judgements of the reference layout."""

        def rows(name: str) -> list[dict[str, object]]:
            lines = (folder / name).read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]

        documents = {str(row["id"]): str(row["text"]) for row in rows("corpus.jsonl")}
        judgements = rows("qrels.jsonl")

        def judged(query: object, relevant: bool) -> tuple[str, ...]:
            return tuple(
                str(row["p_id"])
                for row in judgements
                if row["q_id"] == query and bool(row["score"]) is relevant
            )

        queries = tuple(
            JudgedQuery(
                str(row["text"]),
                tuple(map(str, row.get("answer_terms") or ())),  # type: ignore[call-overload]
                judged(row["id"], True),
                judged(row["id"], False),
            )
            for row in rows("query.jsonl")
        )
        return cls(queries, documents)

    @cached_property
    def positives(self) -> frozenset[str]:
        """Documents that are positive for at least one query."""
        return frozenset(d for query in self.queries for d in query.positives)

    @cached_property
    def never_positive(self) -> frozenset[str]:
        """Hard negatives that are positive for no query."""
        judged = frozenset(d for query in self.queries for d in query.negatives)
        return judged - self.positives

    @cached_property
    def background(self) -> frozenset[str]:
        """Documents that no query judges."""
        return frozenset(self.documents) - self.positives - self.never_positive

    def within_query(self, score: Callable[[JudgedQuery, str], float]) -> float:
        """How often a positive scores above a hard negative of the same query."""
        return mean_preference(
            (
                [score(query, document) for document in query.positives],
                [score(query, document) for document in query.negatives],
            )
            for query in self.queries
        )

    @cached_property
    def features(self) -> tuple[dict[str, int], NDArray[np.float64]]:
        """Place of each document, and its words and pairs of words as a matrix of 0 and 1."""
        bags = [_words_and_pairs(text) for text in self.documents.values()]
        counts = Counter(feature for bag in bags for feature in bag)
        columns = {
            feature: place
            for place, feature in enumerate(sorted(f for f, n in counts.items() if n > 1))
        }
        matrix = np.zeros((len(bags), len(columns)))
        for row, bag in enumerate(bags):
            matrix[row, [columns[feature] for feature in bag if feature in columns]] = 1.0
        return {document: row for row, document in enumerate(self.documents)}, matrix


def mean_preference(pairs: Iterator[tuple[Sequence[float], Sequence[float]]]) -> float:
    """The share of (higher, lower) pairs in the expected order, pooled; ties count one half."""
    wins = total = 0.0
    for positives, negatives in pairs:
        difference = np.subtract.outer(np.asarray(positives), np.asarray(negatives))
        wins += float((difference > 0).sum() + 0.5 * (difference == 0).sum())
        total += difference.size
    return wins / total if total else 0.5


def length(task: Collection) -> float:
    """Longer texts are positives."""
    return task.within_query(lambda _, document: len(task.documents[document].split()))


def never_positive_length(task: Collection, length: Length) -> float:
    """Longer texts are positives, asked of hard negatives that are positive for no query.

    Other hard negatives are positives elsewhere, so over all pairs a rule on documents gains with
    one query what it loses with another: only these can give positives away.
    """
    return mean_preference(
        (
            [length(task.documents[d]) for d in query.positives],
            [length(task.documents[d]) for d in query.negatives if d in task.never_positive],
        )
        for query in task.queries
    )


def background_length(task: Collection, length: Length) -> float:
    """Longer texts are positives of some query, asked of texts that no query judges."""
    return _preference(task, length, task.background)


def never_positive_spread(task: Collection, length: Length) -> float:
    """Texts far from the usual length of positives are positives, asked of the never positive."""
    return _preference(task, _distance(task, length), task.never_positive)


def background_spread(task: Collection, length: Length) -> float:
    """Texts far from the usual length of positives are positives, asked of the unjudged."""
    return _preference(task, _distance(task, length), task.background)


def _distance(task: Collection, length: Length) -> Length:
    """How far a length lies from the median length of positives."""
    middle = float(np.median([length(task.documents[d]) for d in task.positives]))
    return lambda text: abs(length(text) - middle)


def _preference(task: Collection, score: Length, others: frozenset[str]) -> float:
    """How often a positive scores above one of the others, queries left aside."""
    positives = [score(task.documents[d]) for d in task.positives]
    return mean_preference(iter([(positives, [score(task.documents[d]) for d in others])]))


def word_length(task: Collection) -> float:
    """Texts of longer words are positives."""

    def mean(_: JudgedQuery, document: str) -> float:
        return float(np.mean([len(word) for word in _words(task.documents[document])]))

    return task.within_query(mean)


def age_match(task: Collection) -> float:
    """Texts about somebody of nearly the query's age are positives."""

    def near(query: JudgedQuery, document: str) -> float:
        own, other = _ages(query.text), _ages(task.documents[document])
        return float(bool(own and other) and abs(own[0] - other[0]) <= 3)

    return task.within_query(near)


def occupation_match(task: Collection) -> float:
    """Texts that name an occupation of the query's are positives."""

    def shared(query: JudgedQuery, document: str) -> float:
        own, other = set(_words(query.text)), set(_words(task.documents[document]))
        return float(bool(own & other & OCCUPATIONS))

    return task.within_query(shared)


def opening_forms(task: Collection) -> dict[str, float]:
    """Texts that open in a form that at least an eighth of the judged texts share are positives."""
    judged = {d for q in task.queries for d in (*q.positives, *q.negatives)}
    forms = {document: _form(task.documents[document]) for document in judged}
    common = [form for form, n in Counter(forms.values()).items() if n >= len(judged) / 8]
    return {
        form: task.within_query(lambda _, document, form=form: float(forms[document] == form))  # type: ignore[misc]
        for form in common
    }


def denial_wording(task: Collection) -> float:
    """Texts that deny or prescribe more often, for their length, are positives."""

    def share(_: JudgedQuery, document: str) -> float:
        text = task.documents[document]
        return len(_DENIALS.findall(text)) / len(text.split())

    return task.within_query(share)


def query_blind(task: Collection, *, shuffled: int | None = None) -> float:
    """The better of two classifiers of words and word pairs that never see the query.

    Each query is left out in turn. `shuffled` seeds a permutation of the training labels, which
    shows what chance gives on texts so few.
    """
    return max(
        _left_out(task, _naive_bayes, shuffled),
        _left_out(task, _logistic_regression, shuffled),
    )


def first_hit_is_negative(task: Collection, first: Callable[[str], str]) -> float:
    """The share of queries whose first hit is one of their hard negatives."""
    hits = [first(query.text) in query.negatives for query in task.queries]
    return float(np.mean(hits))


def right_subject_wrong_aspect(task: Collection) -> float:
    """The share of hard negatives that name what the query's answer names."""
    named = [
        any(re.search(rf"\b{re.escape(term)}", task.documents[d], re.I) for term in q.answer_terms)
        for q in task.queries
        for d in q.negatives
    ]
    return float(np.mean(named))


def shared_sentences(task: Collection) -> list[str]:
    """Sentences of six words or more that two documents have in common."""
    seen = Counter(
        sentence
        for text in task.documents.values()
        for sentence in {" ".join(_words(part)) for part in re.split(r"(?<=[.!?:;])\s+|\n", text)}
        if len(sentence.split()) >= 6
    )
    return [sentence for sentence, count in seen.items() if count > 1]


Classifier = Callable[[Floats, NDArray[np.bool_], Floats], Floats]


def _left_out(task: Collection, classify: Classifier, shuffled: int | None) -> float:
    place, matrix = task.features
    random = np.random.default_rng(shuffled)

    def scored() -> Iterator[tuple[Floats, Floats]]:
        for left_out in task.queries:
            apart = {*left_out.positives, *left_out.negatives}
            rows, labels = [], []
            for query in task.queries:
                if query is left_out:
                    continue
                for documents, label in ((query.positives, True), (query.negatives, False)):
                    kept = [place[d] for d in documents if d not in apart]
                    rows += kept
                    labels += [label] * len(kept)
            truth = np.array(labels)
            if shuffled is not None:
                truth = random.permutation(truth)
            asked = matrix[[place[d] for d in (*left_out.positives, *left_out.negatives)]]
            scores = classify(matrix[rows], truth, asked)
            yield scores[: len(left_out.positives)], scores[len(left_out.positives) :]

    return mean_preference(scored())  # type: ignore[arg-type]


def _naive_bayes(seen: Floats, labels: NDArray[np.bool_], asked: Floats) -> Floats:
    yes = (seen[labels].sum(axis=0) + 0.5) / (labels.sum() + 1.0)
    no = (seen[~labels].sum(axis=0) + 0.5) / ((~labels).sum() + 1.0)
    weights = np.log(yes / (1 - yes)) - np.log(no / (1 - no))
    result: Floats = asked @ weights
    return result


def _logistic_regression(seen: Floats, labels: NDArray[np.bool_], asked: Floats) -> Floats:
    """Ridge-penalised, in the span of the texts: kernel weights by Newton's method."""
    scale = np.sqrt(np.maximum(seen.sum(axis=1, keepdims=True), 1.0))
    seen, asked = seen / scale, asked / np.sqrt(np.maximum(asked.sum(axis=1, keepdims=True), 1.0))
    kernel = seen @ seen.T
    balance = np.where(labels, (~labels).sum() / max(labels.sum(), 1), 1.0)
    alpha: Floats = np.zeros(len(labels))
    for _ in range(25):
        chance = 1.0 / (1.0 + np.exp(-(kernel @ alpha)))
        curvature = np.maximum(balance * chance * (1 - chance), 1e-6)
        target = kernel @ alpha + balance * (labels - chance) / curvature
        solved = np.linalg.solve(kernel + np.diag(0.1 / curvature), target)
        alpha = np.asarray(solved, dtype=np.float64)
    result: Floats = (asked @ seen.T) @ alpha
    return result


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def _words_and_pairs(text: str) -> set[str]:
    words = _words(text)
    return {*words, *(f"{a} {b}" for a, b in pairwise(words))}


def _ages(text: str) -> list[int]:
    return [int(next(filter(None, match))) for match in _AGE.findall(text)]


def _form(text: str) -> str:
    """How a text opens: its first three words, numbers and sexes made alike."""
    start = re.sub(r"\d+", "N", " ".join(_words(text)[:3]))
    return re.sub(r"\b(?:male|female|man|woman|boy|girl|he|she)\b", "S", start)


def table(folder: Path, first: Callable[[str], str]) -> dict[str, float]:
    """All figures of a task; of several alike, the one that is farthest from chance."""
    task = Collection.read(folder)
    return {
        "length": length(task),
        "length, never positive": _farthest(
            never_positive_length(task, measure) for measure in LENGTHS.values()
        ),
        "length, background": _farthest(
            background_length(task, measure) for measure in LENGTHS.values()
        ),
        "word length": word_length(task),
        "age match": age_match(task),
        "occupation match": occupation_match(task),
        "opening form": _farthest(opening_forms(task).values()),
        "denial wording": denial_wording(task),
        "query-blind": query_blind(task),
        "query-blind, shuffled": query_blind(task, shuffled=1),
        "first hit a negative": first_hit_is_negative(task, first),
        "right subject": right_subject_wrong_aspect(task),
    }


def _farthest(figures: Iterable[float]) -> float:
    return max(figures, key=lambda figure: abs(figure - 0.5), default=0.5)
