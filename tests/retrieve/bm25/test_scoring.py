from __future__ import annotations

import math
from collections import Counter
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.bm25 import analyzers, words
from r2med.retrieve.bm25.analyzers import TermStream, find_analyzer
from r2med.retrieve.bm25.index import build_index, load_sparse_loops
from r2med.retrieve.bm25.retriever import Bm25Retriever
from tests.building import texts
from tests.retrieve.bm25.small import task_of

word = st.sampled_from(["aorta", "biopsy", "colon", "dose", "edema", "fever", "gene"])
text = st.lists(word, max_size=12).map(" ".join)


@pytest.mark.parametrize("group_words", [1 << 14, 30, 1])
@settings(deadline=None)
@given(st.lists(text, max_size=8))
def test_the_index_counts_every_term_of_every_document_however_it_is_cut(
    group_words: int, documents: list[str]
) -> None:
    with (
        patch.object(words, "_BLOCK_BYTES", 20),
        patch.object(words, "_GROUP_WORDS", group_words),
        patch.object(analyzers, "_BATCH_WORDS", 2 * group_words),
    ):
        index = build_index(TermStream(find_analyzer("nano"), texts(*documents)))

    found = {
        (index.words.text(term), int(index.rows[place])): int(index.counts[place])
        for term in range(len(index.keys))
        for place in range(index.offsets[term], index.offsets[term + 1])
    }

    analysed = find_analyzer("nano").analyze(texts(*documents))
    assert found == {
        (term, row): count
        for row in range(len(documents))
        for term, count in Counter(analysed.row(row)).items()
    }
    assert index.lengths.tolist() == [len(document.split()) for document in documents]


def _by_hand(documents: list[str], query: str, weighting: dict[str, Any]) -> list[float]:
    """The protocol's formula, term by term."""
    bags = [Counter(document.split()) for document in documents]
    average = sum(map(len, (d.split() for d in documents))) / len(documents) or 1.0
    known = {term for bag in bags for term in bag}
    asked = Counter(term for term in query.split() if term in known)

    def saturated(count: int, length: int) -> float:
        longer = 1 - weighting["b"] + weighting["b"] * length / average
        return float(count / (count + weighting["k1"] * longer))

    scores = []
    for bag in bags:
        score = 0.0
        for term, count in asked.items():
            frequency = sum(term in other for other in bags)
            if weighting["idf"] == "lucene":
                idf = math.log(len(bags) + 1) - math.log(frequency + 0.5)
            else:
                idf = math.log(max(1, (len(bags) - frequency + 0.5) / (frequency + 0.5)))
            if bag[term]:
                weight = idf * count
                if weighting["query"] == "weighted":
                    weight = idf * idf * saturated(count, asked.total())
                score += weight * saturated(bag[term], bag.total())
        scores.append(score)
    return scores


@settings(max_examples=60, deadline=None)
@given(
    st.lists(text, min_size=1, max_size=8),
    text,
    st.fixed_dictionaries(
        {
            "k1": st.floats(0.1, 3),
            "b": st.floats(0, 1),
            "idf": st.sampled_from(["lucene", "robertson"]),
            "query": st.sampled_from(["weighted", "bag"]),
        }
    ),
)
def test_scores_follow_the_formula(
    documents: list[str], query: str, weighting: dict[str, Any]
) -> None:
    # Words that Porter leaves alone, so that the formula can be worked out on them directly.
    plain = str.maketrans({"a": "o", "e": "o"})
    documents = [document.translate(plain) for document in documents]
    analyzer, asked = find_analyzer("nano"), query.translate(plain)
    task = task_of([(f"{row}", document) for row, document in enumerate(documents)], {"q": asked})
    retriever = Bm25Retriever(analyzer="nano", unmatched="fill", **weighting)

    ranked = dict(retriever.prepare(task).search(task.queries, depth=9).ranking("q"))

    stem = {word: analyzer.analyze(texts(word)).row(0)[0] for d in documents for word in d.split()}
    stemmed = [" ".join(stem[word] for word in document.split()) for document in documents]
    terms = " ".join(analyzer.analyze(texts(asked)).row(0))
    scores = [ranked[f"{row}"] for row in range(len(documents))]
    assert scores == pytest.approx(_by_hand(stemmed, terms, weighting))


def test_scipy_still_works_beside_the_loops_that_were_loaded_alone() -> None:
    assert load_sparse_loops() is not None

    from scipy.sparse import csc_array

    assert (csc_array([[1.0, 2.0]]) @ np.array([3.0, 4.0])).tolist() == [11.0]
