"""The embedded suite is hard because links must be inferred, not because of how it was made."""

from __future__ import annotations

from functools import cache

import pytest

import r2med
from r2med.build.judged_texts import JudgedTexts
from r2med.build.probes import LEAST, MOST, ProbeTable, find_shared_sentences, probe_task
from r2med.build.text_features import LENGTHS
from r2med.tasks.registry import find_suite

TASKS = [entry.name for entry in find_suite("demo").entries]
every_task = pytest.mark.parametrize("name", TASKS)
DISTANCE = "distance from median"

#: Rules that must not find positives, and the documents that positives are compared with.
RULES = [
    *(("length", f"{length}, {DISTANCE}", "background") for length in LENGTHS),
    *(
        ("length", length, against)
        for length in LENGTHS
        for against in ("never positive", "background")
    ),
    *(
        (probe, feature, "hard negatives")
        for probe, feature in (
            ("length", "words"),
            ("wording", "word length"),
            ("wording", "denials"),
            ("person", "age"),
            ("person", "occupation"),
        )
    ),
    *(
        ("answers", feature, against)
        for feature in ("position of the answer", "number of answers named")
        for against in ("hard negatives", "never positive")
    ),
    *(
        ("typography", feature, against)
        for feature in (
            "digits",
            "spelled numbers",
            "percent signs",
            "units with a slash",
            "colons",
        )
        for against in ("hard negatives", "never positive")
    ),
]
#: Largest gain of BM25 if its best score for another query is subtracted.
MOST_OWNED = 0.10


@cache
def probes(name: str) -> ProbeTable:
    return probe_task(r2med.load_task(name))


@every_task
@pytest.mark.parametrize(("probe", "feature", "against"), RULES)
def test_no_surface_rule_finds_positives(name: str, probe: str, feature: str, against: str) -> None:
    value = probes(name).find(probe, feature, against).value

    assert value is not None
    assert LEAST <= value <= MOST


@every_task
def test_no_opening_form_marks_positives(name: str) -> None:
    farthest = probes(name).farthest("opening", "hard negatives")

    assert farthest is None or not farthest.is_outside


@every_task
def test_a_classifier_that_never_sees_the_query_stays_near_chance(name: str) -> None:
    value = probes(name).find("words", "words and word pairs", "hard negatives").value

    assert value is not None
    assert value <= 0.70


@every_task
def test_positives_do_not_belong_to_one_query(name: str) -> None:
    value = probes(name).find("owners", "BM25 less its best score for another query", "").value

    assert value is not None
    assert value <= MOST_OWNED


@every_task
def test_bm25_is_neither_always_fooled_nor_never(name: str) -> None:
    value = probes(name).find("words", "first BM25 hit is a hard negative").value

    assert value is not None
    assert 0.25 <= value <= 0.75


@every_task
def test_a_third_of_the_hard_negatives_name_the_answer_and_answer_another_aspect(name: str) -> None:
    value = probes(name).find("answers", "hard negatives that name the answer").value

    assert value is not None
    assert value >= 1 / 3


@every_task
def test_no_two_documents_share_a_sentence(name: str) -> None:
    assert find_shared_sentences(JudgedTexts.of(r2med.load_task(name))) == []
