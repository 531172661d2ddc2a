from __future__ import annotations

from pathlib import Path

import numpy as np

from r2med.results.diagnosis.lexicon import Lexicon
from tests.building import texts
from tests.results.diagnosis.collections import task_of

CORPUS = {
    "porphyria": "Porphobilinogen in the urine proves acute porphyria.",
    "appendix": "Belly pain and vomiting point to the appendix.",
    "empty": "",
}


def lexicon(folder: Path) -> Lexicon:
    return Lexicon(task_of(folder, CORPUS, {"q": "pain"}, {"q": {"appendix": 1}}).corpus)


def test_coverage_is_the_weighted_share_of_the_querys_terms(tmp_path: Path) -> None:
    words = lexicon(tmp_path)
    (query,) = words.queries(texts("Vomiting, belly pains and dark urine"))

    coverage = words.coverage(query)

    weights = words.rarity[query]
    assert len(query) == 4
    assert coverage[1] == np.float64(weights.sum() * 3 / 4 / weights.sum())
    assert coverage[0] == np.float64(1 / 4)
    assert coverage[2] == 0


def test_a_query_without_known_terms_covers_nothing(tmp_path: Path) -> None:
    words = lexicon(tmp_path)
    (query,) = words.queries(texts("zzz"))

    assert words.coverage(query).tolist() == [0, 0, 0]


def test_key_terms_are_those_that_the_query_lacks(tmp_path: Path) -> None:
    words = lexicon(tmp_path)
    (query,) = words.queries(texts("acute porphyria"))

    keys = words.key_terms(0, query)

    assert not set(keys.tolist()) & set(query.tolist())
    assert words.share(keys, 0) == 1
    assert words.share(keys, 1) == 0


def test_shared_terms_are_spelled_as_the_query_spells_them(tmp_path: Path) -> None:
    words = lexicon(tmp_path)
    text = "Repeated vomiting with PAINS in the belly"
    (query,) = words.queries(texts(text))

    shared = words.spell_terms(words.shared_terms(query, 1), text)

    assert sorted(shared) == ["PAINS", "belly", "vomiting"]


def test_of_a_hyphenated_word_only_the_shared_parts_are_shown_each_once(tmp_path: Path) -> None:
    words = lexicon(tmp_path)
    text = "64-belly-vomiting and PAIN-free, pain-free"
    (query,) = words.queries(texts(text))

    shared = words.spell_terms(words.shared_terms(query, 1), text)

    assert sorted(shared) == ["PAIN", "belly", "vomiting"]


def test_words_are_marked_by_their_stem_and_nothing_is_lost(tmp_path: Path) -> None:
    words = Lexicon(task_of(tmp_path, {"a": "other"}, {"q": "x"}, {"q": {"a": 1}}).corpus)
    text = "Attacks of pain, attacking nobody; Pains."

    [pieces] = words.mark([text], "an attack of pains")

    assert "".join(piece.text for piece in pieces) == text
    marked = [piece.text for piece in pieces if piece.weight]
    assert marked == ["Attacks", "pain", "attacking", "Pains"]


def test_a_term_that_many_documents_hold_is_not_marked(tmp_path: Path) -> None:
    [pieces] = lexicon(tmp_path).mark(["pain in the night"], "pain at night")

    assert [piece.text for piece in pieces if piece.weight] == ["night"]


def test_function_words_numbers_and_letters_are_not_marked(tmp_path: Path) -> None:
    query = "He had 3 fevers; his colic, C"
    [pieces] = lexicon(tmp_path).mark(["He had 3 colics, his fever, C"], query)

    assert [piece.text for piece in pieces if piece.weight] == ["colics", "fever"]


def test_words_of_a_generated_text_alone_are_told_from_those_of_the_query(tmp_path: Path) -> None:
    [pieces] = lexicon(tmp_path).mark(["neuropathy and colic"], "colic", "acute neuropathy")

    assert [(p.text, p.is_generated) for p in pieces if p.weight] == [
        ("neuropathy", True),
        ("colic", False),
    ]


def test_equal_texts_are_wholly_alike_and_strangers_not_at_all(tmp_path: Path) -> None:
    words = lexicon(tmp_path)

    assert words.likeness(0, 0) == 1
    assert words.likeness(0, 1) == 0
