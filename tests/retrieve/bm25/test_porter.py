from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.bm25.stem import Dialect, stem_text, stem_words
from r2med.retrieve.bm25.words import ByteWords
from tests.retrieve.bm25.small import fixture


def stems(words: list[str], dialect: Dialect) -> list[str]:
    stemmed = stem_words(ByteWords.from_strings(words), dialect)
    return [stemmed.text(place) for place in range(len(words))]


@pytest.mark.parametrize(("dialect", "column"), [("martin", 1), ("nltk", 2)])
def test_stems_equal_nltks(dialect: Dialect, column: int) -> None:
    rows = fixture("porter_stems")["words"]

    found = stems([row[0] for row in rows], dialect)

    assert [(row[0], row[column]) for row in rows] == [
        (row[0], stem) for row, stem in zip(rows, found, strict=True)
    ]


english = st.text("abcdefghilmnoprstuvwyz", min_size=1, max_size=14)
endings = st.sampled_from(["", "s", "ed", "ing", "ational", "fulli", "logi", "biliti", "ied", "e"])
word = st.builds(str.__add__, english, endings)


@settings(deadline=None)
@given(st.lists(word, min_size=1, max_size=20), st.sampled_from(["martin", "nltk"]))
def test_words_are_stemmed_alike_in_bytes_and_in_text(words: list[str], dialect: Dialect) -> None:
    assert stems(words, dialect) == stem_text(words, dialect)


@settings(deadline=None)
@given(st.lists(word, min_size=1, max_size=20), st.sampled_from(["martin", "nltk"]))
def test_a_stem_does_not_depend_on_the_other_words(words: list[str], dialect: Dialect) -> None:
    assert stems(words, dialect) == [stems([one], dialect)[0] for one in words]


@pytest.mark.parametrize("length", [1, 2, 8, 9, 16, 48, 49, 256, 257, 1000])
def test_words_of_any_length_are_stemmed(length: int) -> None:
    long = "b" * (length - 1) + "a"

    assert stems([long, long + "bbing"], "nltk")[1] == long + "b"


@settings(deadline=None)
@given(st.lists(word, min_size=1, max_size=20))
def test_stems_equal_those_of_an_installed_nltk(words: list[str]) -> None:
    porter = pytest.importorskip("nltk.stem.porter")

    for dialect, mode in (("martin", "MARTIN_EXTENSIONS"), ("nltk", "NLTK_EXTENSIONS")):
        stemmer = porter.PorterStemmer(mode=mode)
        assert stems(words, dialect) == [stemmer.stem(one) for one in words]  # type: ignore[arg-type]
