from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.retrieve.bm25.words import ByteWords, Numbering

words = st.text("abé", min_size=1, max_size=40)


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=60))
def test_words_have_equal_keys_when_they_are_equal(many: list[str]) -> None:
    keys = ByteWords.from_strings(many).keys.tolist()

    assert len(set(keys)) == len(set(many))
    assert len(set(zip(keys, many, strict=True))) == len(set(many))


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(1, 40), max_size=50), max_size=6))
def test_numbers_follow_first_appearance_across_blocks(blocks: list[list[int]]) -> None:
    numbering = Numbering(bits=2)
    known: dict[int, int] = {}
    for block in blocks:
        fresh_wanted = [
            place
            for place, key in enumerate(block)
            if key not in known and key not in block[:place]
        ]
        wanted = [known.setdefault(key, len(known)) for key in block]

        numbers, fresh = numbering.number(np.array(block, dtype=np.uint64))

        assert numbers.tolist() == wanted
        assert fresh.tolist() == fresh_wanted


@settings(deadline=None)
@given(st.lists(words, max_size=20), st.data())
def test_words_taken_out_are_the_same_words(many: list[str], data: st.DataObject) -> None:
    held = ByteWords.from_strings(many)
    places = data.draw(st.lists(st.integers(0, len(many) - 1), max_size=10)) if many else []

    taken = held.take(np.array(places, dtype=np.int64))
    joined = ByteWords.concatenate([taken, held])

    assert [joined.text(place) for place in range(len(joined))] == [
        *(many[place] for place in places),
        *many,
    ]
