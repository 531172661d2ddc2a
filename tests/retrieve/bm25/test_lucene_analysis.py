from __future__ import annotations

import hashlib
import json

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.retrieve.bm25 import words
from r2med.retrieve.bm25.analyzers import ANALYZERS, find_analyzer
from r2med.retrieve.bm25.lucene import CLASSES, class_table, scan, word_spans
from tests.building import texts
from tests.retrieve.bm25.small import fixture, terms

#: Raise an analyzer's identity with its answers, or cached indexes would go stale.
ANSWERS = {
    "lucene-english-1": "1d8e6f9a63db",
    "nano-1": "32374c05cb61",
}


def _any_class() -> st.SearchStrategy[str]:
    """Characters of every word-break class alike, so that rare rules meet often."""
    table = class_table()
    members = {
        symbol: [
            c for c in (table == ord(symbol)).nonzero()[0].tolist() if not 0xD800 <= c < 0xE000
        ]
        for symbol in CLASSES.values()
    }
    character = st.sampled_from(sorted(members)).flatmap(lambda s: st.sampled_from(members[s]))
    return character.map(chr)


texts_of_any_class = st.text(st.one_of(_any_class(), st.sampled_from("ab1 '._\n")), max_size=30)


def test_terms_equal_lucenes() -> None:
    cases = fixture("lucene_terms")["cases"]

    columns = find_analyzer("lucene").analyze(texts(*(text for text, _ in cases)))

    wrong = [
        (text, wanted, columns.row(row))
        for row, (text, wanted) in enumerate(cases)
        if columns.row(row) != wanted
    ]
    assert wrong == []


@settings(max_examples=300, deadline=None)
@given(texts_of_any_class)
@example("😀" + "x" * 300 + "😀")
@example("_©_")
def test_bulk_rules_find_the_words_of_the_exact_scanner(text: str) -> None:
    block = f"\n{text}\n".encode()

    starts, ends = word_spans(block)

    found = [block[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    assert [word for word in found if word.strip("_‿⁀⁔︳︴﹍﹎﹏＿\u202f")] == [
        text[start:end] for start, end in scan(text)
    ]


@settings(max_examples=50, deadline=None)
@given(st.lists(texts_of_any_class, max_size=8))
def test_a_texts_terms_do_not_depend_on_its_neighbours(many: list[str]) -> None:
    columns = find_analyzer("lucene").analyze(texts(*many))

    assert [columns.row(row) for row in range(len(many))] == [terms(text) for text in many]


def test_blocks_chunks_slices_and_nulls_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    analyzer = find_analyzer("lucene")
    many = [f"Row {row}'s text, number {row * 7}." for row in range(50)]
    whole = analyzer.analyze(texts(*many))
    monkeypatch.setattr(words, "_BLOCK_BYTES", 40)

    chunked = analyzer.analyze(pa.chunked_array([texts(*many[:7]), texts(), texts(*many[7:])]))
    sliced = analyzer.analyze(texts("before", *many, "after").slice(1, 50))
    with_null = analyzer.analyze(texts(None, *many))

    for other in (chunked, sliced):
        assert [other.row(row) for row in range(50)] == [whole.row(row) for row in range(50)]
    assert with_null.row(0) == []
    assert with_null.row(1) == whole.row(0)


def test_an_empty_column_has_no_rows() -> None:
    columns = find_analyzer("lucene").analyze(texts())

    assert len(columns) == 0
    assert len(columns.words) == 0


def test_the_vocabulary_holds_each_term_once() -> None:
    columns = find_analyzer("lucene").analyze(texts("Running runs", "the runner RAN run’s"))

    words = [columns.words.text(place) for place in range(len(columns.words))]
    assert sorted(words) == ["ran", "run", "runner"]


def test_nano_takes_ascii_words_only() -> None:
    assert terms("Sjögren's dying patients: IL-6 at 3.5, THE best", "nano") == [
        "sj", "gren", "s", "die", "patient", "il", "6", "3", "5", "best",
    ]  # fmt: skip


def test_an_unknown_analyzer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'lucene'"):
        find_analyzer("lucen")


@pytest.mark.parametrize("name", ANALYZERS)
def test_an_identity_stands_for_its_answers(name: str) -> None:
    analyzer = find_analyzer(name)
    columns = analyzer.analyze(texts(*(text for text, _ in fixture("lucene_terms")["cases"])))

    answers = json.dumps([columns.row(row) for row in range(len(columns))]).encode()

    assert hashlib.sha256(answers).hexdigest()[:12] == ANSWERS[analyzer.identity]
