from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.bm25.words import ByteWords, numbered

words = st.text("abé", min_size=1, max_size=40)


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=60))
def test_words_have_equal_keys_when_they_are_equal(many: list[str]) -> None:
    keys = ByteWords.of(many).keys.tolist()

    assert len(set(keys)) == len(set(many))
    assert len(set(zip(keys, many, strict=True))) == len(set(many))


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), max_size=50))
def test_numbers_follow_first_appearance(keys: list[int]) -> None:
    known: dict[int, int] = {}
    wanted = [known.setdefault(key, len(known)) for key in keys]

    numbers, first = numbered(np.array(keys, dtype=np.uint64))

    assert numbers.tolist() == wanted
    assert first.tolist() == [keys.index(key) for key in known]


@settings(deadline=None)
@given(st.lists(words, max_size=20), st.data())
def test_words_taken_out_are_the_same_words(many: list[str], data: st.DataObject) -> None:
    held = ByteWords.of(many)
    places = data.draw(st.lists(st.integers(0, len(many) - 1), max_size=10)) if many else []

    taken = held.take(np.array(places, dtype=np.int64))
    joined = ByteWords.concatenated([taken, held])

    assert [joined.text(place) for place in range(len(joined))] == [
        *(many[place] for place in places),
        *many,
    ]
