"""The embedded suite is held to its own rules, so that no edit can quietly break them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

import r2med
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.registry import find_suite, find_task

TASKS = [entry.name for entry in find_suite("demo").entries]
#: Tasks whose queries must not name their answer.
WITHHELD = [
    "demo/medxpertqa-exam",
    "demo/medqa-diag",
    "demo/pmc-treatment",
    "demo/pmc-clinical",
    "demo/iiyi-clinical",
]
BODY_SYSTEMS = {
    *("Cardiovascular", "Respiratory", "Digestive", "Endocrine", "Nervous", "Musculoskeletal"),
    *("Urinary", "Reproductive", "Hematologic", "Immune", "Integumentary", "Sensory"),
    *("Infectious", "Multisystem", "General"),
}
every_task = pytest.mark.parametrize("name", TASKS)


def rows(name: str, file: str) -> list[dict[str, object]]:
    path = data_folder(find_task(name)) / file
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def judged(name: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Query text, ids of its positives, ids of its hard negatives."""
    judgements = rows(name, "qrels.jsonl")
    for query in rows(name, "query.jsonl"):
        own = [row for row in judgements if row["q_id"] == query["id"]]
        positives = [str(row["p_id"]) for row in own if row["score"]]
        negatives = [str(row["p_id"]) for row in own if not row["score"]]
        yield str(query["text"]), positives, negatives


def words(text: object) -> list[str]:
    return re.findall(r"[a-z0-9]+", str(text).lower())


def shingles(text: object, size: int = 5) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[at : at + size]) for at in range(len(found) - size + 1)}


def test_the_suite_mirrors_the_eight_tasks() -> None:
    full = [entry.name.lower() for entry in find_suite("full").entries]

    assert [name.removeprefix("demo/") for name in TASKS] == full


def test_the_suite_stays_small() -> None:
    files = [file for name in TASKS for file in data_folder(find_task(name)).glob("*.jsonl")]

    assert len(files) == 24
    assert sum(file.stat().st_size for file in files) < 2_000_000


@every_task
def test_a_task_is_large_enough(name: str) -> None:
    assert 18 <= len(rows(name, "query.jsonl")) <= 20
    assert len(rows(name, "corpus.jsonl")) >= 100


@every_task
def test_a_task_loads_without_a_notice(name: str) -> None:
    assert r2med.load_task(name, strict=True).notices == ()


@every_task
def test_ids_are_unique_and_neutral(name: str) -> None:
    slug = name.removeprefix("demo/")
    queries = [row["id"] for row in rows(name, "query.jsonl")]
    documents = [row["id"] for row in rows(name, "corpus.jsonl")]

    assert queries == [str(number) for number in range(1, len(queries) + 1)]
    assert documents == [f"{slug}-{number:03d}" for number in range(1, len(documents) + 1)]


@every_task
def test_every_judgement_resolves_and_none_repeats(name: str) -> None:
    queries = {row["id"] for row in rows(name, "query.jsonl")}
    documents = {row["id"] for row in rows(name, "corpus.jsonl")}
    pairs = [(row["q_id"], row["p_id"]) for row in rows(name, "qrels.jsonl")]

    assert {query for query, _ in pairs} == queries
    assert {document for _, document in pairs} <= documents
    assert max(Counter(pairs).values()) == 1


@every_task
def test_a_query_has_one_to_eight_positives_and_two_hard_negatives_at_least(name: str) -> None:
    for _, positives, negatives in judged(name):
        assert 1 <= len(positives) <= 8
        assert len(negatives) >= 2


@every_task
def test_numbers_of_positives_vary_and_queries_share_positives(name: str) -> None:
    lists = [positives for _, positives, _ in judged(name)]
    owners = Counter(document for positives in lists for document in positives)

    assert len({len(positives) for positives in lists}) >= 4
    assert sum(count > 1 for count in owners.values()) >= 0.1 * len(owners)


def test_cases_have_two_grades_of_relevance() -> None:
    grades = {row["score"] for row in rows("demo/pmc-clinical", "qrels.jsonl")}

    assert grades == {0, 1, 2}


@every_task
def test_a_query_lists_its_positives_as_r2med_does(name: str) -> None:
    listed = [query["doc_id"] for query in rows(name, "query.jsonl")]

    assert listed == [positives for _, positives, _ in judged(name)]


@every_task
def test_hard_negatives_share_words_with_their_query_or_name_its_answer(name: str) -> None:
    texts = {row["id"]: row["text"] for row in rows(name, "corpus.jsonl")}
    terms = [query.get("answer_terms") or [] for query in rows(name, "query.jsonl")]
    hard = []
    for (query, _, negatives), answer in zip(judged(name), terms, strict=True):
        content = {word for word in words(query) if len(word) > 3}
        for negative in negatives:
            shared = len(content & set(words(texts[negative]))) >= 2
            named = any(
                re.search(rf"\b{re.escape(str(term))}", str(texts[negative]), re.I)
                for term in answer  # type: ignore[attr-defined]
            )
            hard.append(shared or named)

    assert sum(hard) >= 0.9 * len(hard)


@every_task
def test_every_query_carries_answer_body_system_and_reasoning(name: str) -> None:
    for query in rows(name, "query.jsonl"):
        assert str(query["answer"]).strip()
        assert query["body_system"] in BODY_SYSTEMS
        assert 40 <= len(words(query["reasoning"])) <= 200


@every_task
def test_texts_are_neither_stubs_nor_books(name: str) -> None:
    assert all(45 <= len(words(row["text"])) <= 600 for row in rows(name, "corpus.jsonl"))
    assert all(40 <= len(words(row["text"])) <= 480 for row in rows(name, "query.jsonl"))


@every_task
def test_no_two_documents_are_near_duplicates(name: str) -> None:
    found = {row["id"]: shingles(row["text"]) for row in rows(name, "corpus.jsonl")}

    alike = [
        (one, other)
        for one, other in combinations(found, 2)
        if len(found[one] & found[other]) > 0.25 * min(len(found[one]), len(found[other]))
    ]

    assert alike == []


@every_task
def test_no_query_shares_a_run_of_five_words_with_a_positive(name: str) -> None:
    texts = {row["id"]: shingles(row["text"]) for row in rows(name, "corpus.jsonl")}

    shared = [
        positive
        for query, positives, _ in judged(name)
        for positive in positives
        if shingles(query) & texts[positive]
    ]

    assert shared == []


@pytest.mark.parametrize("name", WITHHELD)
def test_no_query_names_its_answer(name: str) -> None:
    for query in rows(name, "query.jsonl"):
        terms = query["answer_terms"]

        assert isinstance(terms, list) and terms
        named = [t for t in terms if re.search(rf"\b{re.escape(t)}", str(query["text"]), re.I)]
        assert named == []


def test_the_card_says_what_the_suite_is_not(repository: Path) -> None:
    card = (repository / "docs" / "demo-suite.md").read_text(encoding="utf-8")

    assert "not R2MED" in card
    assert "not comparable" in card
