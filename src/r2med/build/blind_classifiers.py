"""Classifiers that learn to find positives without reading the query, and how well they do it.

The classifiers are measured on documents that were left out of training. They are written here
rather than taken from a library because the package does not depend on scikit-learn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from r2med.build.judged_texts import Against, Floats, Group, JudgedTexts, Preference, prefer
from r2med.build.text_features import count_style_tokens, find_words

Labels = NDArray[np.bool_]
#: A function from training rows, their labels and other rows to scores of the latter.
Classifier = Callable[[csr_array, Labels, csr_array], Floats]
#: Parts of the queries, and of the documents that are compared with the background.
_FOLDS, _DOCUMENT_FOLDS = 20, 5
#: Training rows of the logistic regression, whose time grows with their third power.
_MOST_ROWS = 600
#: Weights that change by less than this have converged.
_CLOSE = 1e-6


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Token counts as a sparse matrix: a row per document, a column per token."""

    rows: Mapping[str, int]
    matrix: csr_array

    @classmethod
    def of(cls, counts: Mapping[str, Mapping[str, int]], *, least_documents: int) -> TokenCounts:
        """Make the matrix of counts, without tokens in fewer than `least_documents` documents."""
        frequencies = Counter(token for tokens in counts.values() for token in tokens)
        tokens = sorted(t for t, number in frequencies.items() if number >= least_documents)
        columns = {token: column for column, token in enumerate(tokens)}
        values, indices, offsets = [], [], [0]
        for document_tokens in counts.values():
            present = sorted(token for token in document_tokens if token in columns)
            indices += [columns[token] for token in present]
            values += [document_tokens[token] for token in present]
            offsets.append(len(indices))
        shape = (len(counts), len(columns))
        matrix = csr_array((np.array(values, np.float64), indices, offsets), shape=shape)
        return cls({document_id: row for row, document_id in enumerate(counts)}, matrix)

    def take(self, document_ids: Sequence[str]) -> csr_array:
        """Return the matrix rows of documents, in their order."""
        return self.matrix[[self.rows[document_id] for document_id in document_ids]]


class BlindClassifiers:
    """Measures how well classifiers find the positives of one task without its queries."""

    def __init__(self, judged: JudgedTexts) -> None:
        self._judged = judged

    def compare_style(self, against: Against) -> Preference | None:
        """Return the figure of naive Bayes on function words, punctuation and numbers."""
        if against == "background":
            return prefer(self._background_groups(self._style, naive_bayes_of_rates))
        return prefer(self._query_groups(self._style, naive_bayes_of_rates, against, None))

    def compare_words(self, against: Against, *, shuffled: int | None = None) -> Preference | None:
        """Return the better figure of naive Bayes and logistic regression on words and word pairs.

        If `shuffled` is given, it is the seed for shuffling the training labels; the result shows
        what chance gives on as few texts.
        """
        figures = [
            prefer(self._query_groups(self._words, classify, against, shuffled))
            for classify in (naive_bayes_of_words, logistic_regression)
        ]
        measured = [figure for figure in figures if figure is not None]
        return max(measured, key=lambda figure: figure.value, default=None)

    @cached_property
    def _style(self) -> TokenCounts:
        counts = {d: count_style_tokens(text) for d, text in self._judged.texts.items()}
        return TokenCounts.of(counts, least_documents=2)

    @cached_property
    def _words(self) -> TokenCounts:
        return TokenCounts.of(
            {
                document_id: dict.fromkeys(_words_and_pairs(text), 1)
                for document_id, text in self._judged.texts.items()
            },
            least_documents=2,
        )

    def _query_groups(
        self, tokens: TokenCounts, classify: Classifier, against: Against, shuffled: int | None
    ) -> Iterator[Group]:
        """Yield the scores of positives and negatives per query, after training on other folds.

        Documents of the tested queries are left out of training.
        """
        judged, random = self._judged, np.random.default_rng(shuffled)
        queries = judged.queries
        for fold in range(min(_FOLDS, len(queries))):
            tested = queries[fold::_FOLDS]
            tested_ids = {d for query in tested for d in (*query.positives, *query.negatives)}
            pairs = [
                (document_id, is_positive)
                for index, query in enumerate(queries)
                if index % _FOLDS != fold
                for document_ids, is_positive in (
                    (query.positives, True),
                    (judged.negatives_of(query, against), False),
                )
                for document_id in document_ids
                if document_id not in tested_ids
            ]
            labels = np.array([is_positive for _, is_positive in pairs], dtype=bool)
            if labels.all() or not labels.any():
                continue
            if shuffled is not None:
                labels = random.permutation(labels)
            training = tokens.take([document_id for document_id, _ in pairs])
            compared = [(query.positives, judged.negatives_of(query, against)) for query in tested]
            rows = tokens.take([d for group in compared for documents in group for d in documents])
            scores = iter(classify(training, labels, rows).tolist())
            for positives, negatives in compared:
                yield list(islice(scores, len(positives))), list(islice(scores, len(negatives)))

    def _background_groups(self, tokens: TokenCounts, classify: Classifier) -> Iterator[Group]:
        """Yield each positive's score with the background's, after training on other folds."""
        positives, background = sorted(self._judged.positives), self._judged.background
        for fold in range(min(_DOCUMENT_FOLDS, len(positives), len(background))):
            tested = [*positives[fold::_DOCUMENT_FOLDS], *background[fold::_DOCUMENT_FOLDS]]
            training = [
                *(d for index, d in enumerate(positives) if index % _DOCUMENT_FOLDS != fold),
                *(d for index, d in enumerate(background) if index % _DOCUMENT_FOLDS != fold),
            ]
            labels = np.array([document_id in self._judged.positives for document_id in training])
            if labels.all() or not labels.any():
                continue
            scores = classify(tokens.take(training), labels, tokens.take(tested)).tolist()
            count = len(positives[fold::_DOCUMENT_FOLDS])
            yield from (([score], scores[count:]) for score in scores[:count])


def naive_bayes_of_rates(training: csr_array, labels: Labels, rows: csr_array) -> Floats:
    """Return multinomial naive Bayes scores of `rows` per token, so that length does not count."""
    positive = np.asarray(training[labels].sum(axis=0)) + 1.0
    negative = np.asarray(training[~labels].sum(axis=0)) + 1.0
    weights = np.log(positive / positive.sum()) - np.log(negative / negative.sum())
    totals = np.maximum(np.asarray(rows.sum(axis=1)), 1.0)
    scores: Floats = (rows @ weights) / totals
    return scores


def naive_bayes_of_words(training: csr_array, labels: Labels, rows: csr_array) -> Floats:
    """Return Bernoulli naive Bayes scores of `rows`; only tokens that a text has count."""
    positive = (np.asarray(training[labels].sum(axis=0)) + 0.5) / (labels.sum() + 1.0)
    negative = (np.asarray(training[~labels].sum(axis=0)) + 0.5) / ((~labels).sum() + 1.0)
    weights = np.log(positive / (1 - positive)) - np.log(negative / (1 - negative))
    scores: Floats = rows @ weights
    return scores


def logistic_regression(training: csr_array, labels: Labels, rows: csr_array) -> Floats:
    """Return scores of `rows` from a ridge-penalised logistic regression.

    It is fitted by Newton's method in dual form (one weight per training text), with balanced
    classes, on a sample of the training texts if there are many.
    """
    if len(labels) > _MOST_ROWS:
        chosen = np.sort(np.random.default_rng(0).permutation(len(labels))[:_MOST_ROWS])
        training, labels = training[chosen], labels[chosen]
    training, rows = _scale(training), _scale(rows)
    kernel = (training @ training.T).toarray()
    balance = np.where(labels, (~labels).sum() / max(labels.sum(), 1), 1.0)
    alpha: Floats = np.zeros(len(labels))
    for _ in range(25):
        chance = 1.0 / (1.0 + np.exp(-(kernel @ alpha)))
        curvature = np.maximum(balance * chance * (1 - chance), 1e-6)
        target = kernel @ alpha + balance * (labels - chance) / curvature
        solved = np.linalg.solve(kernel + np.diag(0.1 / curvature), target)
        is_converged = np.allclose(solved, alpha, rtol=0, atol=_CLOSE)
        alpha = np.asarray(solved, dtype=np.float64)
        if is_converged:
            break
    scores: Floats = (rows @ training.T).toarray() @ alpha
    return scores


def _scale(rows: csr_array) -> csr_array:
    totals = np.sqrt(np.maximum(np.asarray(rows.sum(axis=1)), 1.0))
    return csr_array(rows.multiply(1.0 / totals[:, np.newaxis]))


def _words_and_pairs(text: str) -> set[str]:
    words = find_words(text)
    return {*words, *(f"{first} {second}" for first, second in pairwise(words))}
