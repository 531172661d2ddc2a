"""Planted leaks are found, and nothing is reported that the words do not show."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.audit.matching import TextIndex, word_columns, words
from r2med.tasks.load import load_task
from tests.audit.planting import NEAR, PARTS, PLANTS, SAME_WORDS

texts = st.lists(st.text(max_size=60), min_size=1, max_size=6)


@pytest.fixture(scope="module")
def documents() -> list[str]:
    tasks = ("demo/biology", "demo/pmc-treatment", "demo/medical-sciences")
    return [text for name in tasks for text in load_task(name).corpus.texts.to_pylist()]


@given(texts)
def test_the_columns_hold_the_words_of_exclusion_lists(texts: list[str]) -> None:
    columns = word_columns(texts)

    sequences = [words(text) for text in texts]
    assert columns.lengths.tolist() == [len(sequence) for sequence in sequences]
    flat = [word for sequence in sequences for word in sequence]
    numbers: dict[str, int] = {}
    for word, key in zip(flat, columns.keys.tolist(), strict=True):
        assert numbers.setdefault(word, key) == key
    assert len(set(numbers.values())) == len(numbers)


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=2, max_size=8))
def test_hashes_of_runs_and_texts_are_equal_where_the_words_are(drawn: list[list[str]]) -> None:
    columns = word_columns([" ".join(sequence) for sequence in drawn])

    whole = dict(zip(columns.whole().tolist(), map(tuple, drawn), strict=True))
    assert all(
        whole[key] == tuple(d) for key, d in zip(columns.whole().tolist(), drawn, strict=True)
    )
    assert len(whole) == len(set(map(tuple, drawn)))
    hashes = columns.shingles()
    places = np.arange(len(hashes))
    inside = columns.inside(places, columns.text_at(places))
    flat = [word for sequence in drawn for word in sequence]
    runs = {
        key: tuple(flat[p : p + 3])
        for key, p in zip(hashes[inside].tolist(), places[inside], strict=True)
    }
    assert len(runs) == len({tuple(s[i : i + 3]) for s in drawn for i in range(len(s) - 2)})


@pytest.mark.parametrize("kind", PLANTS)
def test_leaks_of_every_kind_are_found_and_called_what_they_are(
    kind: str, documents: list[str]
) -> None:
    chance = random.Random(kind)
    wanted, others = documents[::3], documents[1::3]
    index = TextIndex(wanted)
    planted = [PLANTS[kind](text, chance, others) for text in wanted]

    kinds: dict[int, str] = {}
    false = 0
    for match in index.matches(planted):
        if match.entry == match.text:
            kinds[match.text] = match.kind
        else:
            false += 1

    found = len(kinds) / len(wanted)
    called = set(kinds.values())
    assert found == 1 if kind in SAME_WORDS or kind in PARTS else found >= 0.95
    assert called == {"exact"} if kind in SAME_WORDS else True
    assert called <= {"exact", "contained"} if kind == "embedded" else True
    assert called <= {"exact", "contained", "near-duplicate"} if kind in NEAR else True
    assert false == 0


def test_texts_of_one_subject_do_not_match(documents: list[str]) -> None:
    assert TextIndex(documents[::2]).matches(documents[1::2]) == []


words_of_few = st.lists(st.sampled_from("abcdefghijkl"), min_size=1, max_size=40)


@settings(max_examples=60)
@given(words_of_few, words_of_few, words_of_few)
def test_exact_and_contained_say_what_the_words_say(
    own: list[str], before: list[str], after: list[str]
) -> None:
    index = TextIndex([" ".join(own)])
    around = [*before, *own, *after]
    whole, embedded = index.matches([" ".join(own)]), index.matches([" ".join(around)])

    assert [match.kind for match in whole] == ["exact"]
    for match in embedded:
        assert (match.kind == "exact") == (around == own)
        if match.kind == "contained" and not match.short:
            runs = {tuple(around[i : i + 8]) for i in range(len(around) - 7)}
            shared = [i for i in range(len(own) - 7) if tuple(own[i : i + 8]) in runs]
            covered = {place for start in shared for place in range(start, start + 8)}
            back = {tuple(own[i : i + 8]) for i in range(len(own) - 7)}
            theirs = [i for i in range(len(around) - 7) if tuple(around[i : i + 8]) in back]
            reverse = {place for start in theirs for place in range(start, start + 8)}
            assert len(covered) >= 0.9 * len(own) or len(reverse) >= 0.9 * len(around)


def test_a_short_text_counts_as_exact_or_as_contained_word_for_word() -> None:
    index = TextIndex(["what causes low blood sodium"])
    longer = "Tell me: what causes low blood sodium in marathon runners"
    changed = "Tell me: what causes low serum sodium in marathon runners"

    assert [match.kind for match in index.matches(["What causes low blood sodium?"])] == ["exact"]
    [contained] = index.matches([longer])
    assert (contained.kind, contained.short, contained.at) == ("contained", True, 2)
    assert index.matches([changed]) == []


def test_a_text_whose_every_run_is_common_is_found_inside_a_longer_one() -> None:
    shared = "which of the following is the most likely diagnosis of this patient"
    index = TextIndex([shared, *(f"{shared} seen in ward {n} on day {n}" for n in range(100))])

    matches = index.matches([f"Before it some words. {shared}. After it others."])

    assert 0 in {match.entry for match in matches}


def test_a_long_run_copied_into_a_longer_text_is_an_excerpt(documents: list[str]) -> None:
    source = " ".join(documents[:8])
    part = " ".join(source.split()[30:110])
    index = TextIndex([source])

    kinds = [match.kind for match in index.matches([f"{documents[20]} {part} {documents[21]}"])]

    assert kinds == ["excerpt"]


def test_longer_runs_can_be_asked_for(documents: list[str]) -> None:
    text = documents[0].split()
    broken = " ".join(
        word for n, word in enumerate(text, 1) for word in ([word, "x"] if n % 10 == 0 else [word])
    )

    assert [m.kind for m in TextIndex([documents[0]], ngram=8).matches([broken])] == ["contained"]
    assert [m.kind for m in TextIndex([documents[0]], ngram=13).matches([broken])] == [
        "near-duplicate"
    ]


def test_words_that_many_evaluation_texts_share_are_boilerplate(documents: list[str]) -> None:
    notice = (
        "this article is open to all readers under a licence that permits unrestricted use "
        "provided that the original work is properly cited"
    )
    index = TextIndex([f"{text} {notice}" for text in documents[:12]])

    matches = index.matches([notice])

    assert matches and all(match.boilerplate for match in matches)
    assert not any(match.boilerplate for match in index.matches([documents[3]]))
