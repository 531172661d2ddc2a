from __future__ import annotations

import pytest

from r2med.tasks.task import sources_of


@pytest.mark.parametrize(
    ("one", "other", "source"),
    [
        ("PMC12_3", "PMC12_4", "PMC12"),
        ("Enzyme-2.txt", "Enzyme-11.txt", "Enzyme"),
        ("a/b#7", "a/b#8", "a/b"),
        ("book-7#2", "book-7#3", "book-7"),
        ("moths/Light_chunk_1.txt", "moths/Light_chunk_2.txt", "moths/Light"),
    ],
)
def test_passages_of_one_source_differ_in_their_number_only(
    one: str, other: str, source: str
) -> None:
    assert sources_of([one, other, "PMC99_1", "plain"]) == {one: source, other: source}


def test_a_stem_that_covers_the_corpus_is_no_source() -> None:
    assert sources_of([f"medqa-diag-{number:03}" for number in range(100)]) == {}


def test_one_stem_that_covers_much_does_not_hide_the_sources_of_others() -> None:
    ids = [f"doc-{number}" for number in range(80)] + ["PMC1_0", "PMC1_1"]

    assert sources_of(ids) == {"PMC1_0": "PMC1", "PMC1_1": "PMC1"}


def test_plain_ids_name_no_source() -> None:
    assert sources_of(["alpha", "beta", "17"]) == {}
