"""The embedded suite is hard because links must be inferred, not because of how it was made."""

from __future__ import annotations

import pytest

import r2med
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.registry import find_suite, find_task
from tests.tasks import artefacts
from tests.tasks.artefacts import Collection

TASKS = [entry.name for entry in find_suite("demo").entries]
every_task = pytest.mark.parametrize("name", TASKS)

#: Between these a rule tells positives from hard negatives no better than it should by chance.
LEAST, MOST = 0.35, 0.65


def collection(name: str) -> Collection:
    return Collection.read(data_folder(find_task(name)))


@every_task
@pytest.mark.parametrize(
    "rule",
    [
        artefacts.length,
        artefacts.word_length,
        artefacts.age_match,
        artefacts.occupation_match,
        artefacts.denial_wording,
    ],
)
def test_no_surface_rule_finds_positives(name: str, rule: object) -> None:
    assert LEAST <= rule(collection(name)) <= MOST  # type: ignore[operator]


@every_task
@pytest.mark.parametrize("measure", artefacts.LENGTHS)
@pytest.mark.parametrize(
    "rule",
    [
        artefacts.never_positive_length,
        artefacts.never_positive_spread,
        artefacts.background_length,
        artefacts.background_spread,
    ],
)
def test_no_length_tells_positives_from_other_texts(name: str, rule: object, measure: str) -> None:
    share = rule(collection(name), artefacts.LENGTHS[measure])  # type: ignore[operator]

    assert LEAST <= share <= MOST


@every_task
def test_no_opening_form_marks_positives(name: str) -> None:
    forms = artefacts.opening_forms(collection(name))

    assert {form: share for form, share in forms.items() if not LEAST <= share <= MOST} == {}


@every_task
def test_a_classifier_that_never_sees_the_query_stays_near_chance(name: str) -> None:
    assert artefacts.query_blind(collection(name)) <= 0.70


@every_task
def test_bm25_is_neither_always_fooled_nor_never(name: str) -> None:
    task = r2med.load_task(name)
    run = r2med.evaluate("bm25", task).run.to_table()
    ids = dict(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True))
    first: dict[str, str] = {}
    for query, document in zip(
        run["query_id"].to_pylist(), run["document_id"].to_pylist(), strict=True
    ):
        first.setdefault(ids[query], document)

    share = artefacts.first_hit_is_negative(collection(name), first.__getitem__)

    assert 0.25 <= share <= 0.75


@every_task
def test_a_third_of_the_hard_negatives_name_the_answer_and_answer_another_aspect(name: str) -> None:
    assert artefacts.right_subject_wrong_aspect(collection(name)) >= 1 / 3


@every_task
def test_no_two_documents_share_a_sentence(name: str) -> None:
    assert artefacts.shared_sentences(collection(name)) == []
