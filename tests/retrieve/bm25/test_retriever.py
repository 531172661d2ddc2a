from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from r2med.errors import UsageError
from r2med.retrieve.bm25.index import index_path
from r2med.systems.registry import entries
from tests.retrieve.bm25.small import fixture, queries_of, task_of, terms, variant

DOCUMENTS = [
    ("d1", "insulin lowers glucose"),
    ("d2", "insulin"),
    ("d3", "renal failure"),
    ("d1", "glucose glucose"),
    ("d4", ""),
]


def index_file() -> Path:
    corpus = task_of(DOCUMENTS, {"q": "x"}).corpus
    return index_path(corpus.hash, "lucene-english-1")


def test_the_published_run_equals_gensims() -> None:
    reference = fixture("reference_runs")
    task = task_of(reference["documents"], dict(reference["queries"]))

    run = variant("bm25").prepare(task).search(task.queries, depth=12)

    for query, wanted in reference["weighted_runs"].items():
        found = run.ranking(query)
        assert [document for document, _ in found] == [document for document, _ in wanted]
        assert [s for _, s in found] == pytest.approx([s for _, s in wanted], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "scores"), [("bm25-lucene", "bag_scores"), ("bm25-nano", "nano_scores")]
)
def test_bags_of_words_score_as_in_bm25s(name: str, scores: str) -> None:
    reference = fixture("reference_runs")
    documents = [(f"{row}", text) for row, (_, text) in enumerate(reference["documents"])]
    task = task_of(documents, dict(reference["queries"]))
    retriever = variant(name, unmatched="fill")

    run = retriever.prepare(task).search(task.queries, depth=len(documents))

    for query, wanted in reference[scores].items():
        found = dict(run.ranking(query))
        by_row = [found[str(row)] for row in range(len(documents))]
        assert by_row == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def test_a_repeated_id_is_ranked_once_with_its_last_score_at_its_first_place() -> None:
    task = task_of(
        [("twice", "fever"), ("once", "cough cough"), ("twice", "cough cough"), ("last", "fever")],
        {"cough": "cough", "fever": "fever", "nothing": "zebra"},
    )

    run = variant("bm25").prepare(task).search(task.queries, depth=10)

    (first, score), (second, equal), (third, zero) = run.ranking("cough")
    assert (first, second, third) == ("twice", "once", "last")
    assert score == equal > 0 == zero
    assert [document for document, _ in run.ranking("fever")] == ["last", "twice", "once"]
    assert [document for document, _ in run.ranking("nothing")] == ["twice", "once", "last"]


def test_rows_without_a_query_term_fill_the_published_run_and_are_dropped_from_lucenes() -> None:
    task = task_of(DOCUMENTS, {"q": "renal"})

    filled = variant("bm25").prepare(task).search(task.queries, depth=3)
    dropped = variant("bm25-lucene").prepare(task).search(task.queries, depth=3)

    assert [document for document, _ in filled.ranking("q")] == ["d3", "d1", "d2"]
    assert [document for document, _ in dropped.ranking("q")] == ["d3"]


def test_a_run_is_as_deep_as_asked_or_as_the_corpus_is() -> None:
    task = task_of(DOCUMENTS, {"q1": "insulin", "q2": ""})
    searcher = variant("bm25").prepare(task)

    assert searcher.search(task.queries, depth=2).lengths.tolist() == [2, 2]
    assert searcher.search(task.queries, depth=99).lengths.tolist() == [4, 4]
    assert len(searcher.search(queries_of({}), depth=5)) == 0


def test_a_corpus_without_any_term_can_be_searched() -> None:
    task = task_of([("d1", ""), ("d2", "the of")], {"q": "anything"})

    run = variant("bm25").prepare(task).search(task.queries, depth=5)

    assert run.ranking("q") == [("d1", 0.0), ("d2", 0.0)]


def test_the_index_is_kept_and_shared_by_variants_of_one_analysis() -> None:
    task = task_of(DOCUMENTS, {"q": "insulin"})

    assert variant("bm25").prepare(task).facts()["index"] == "built"
    assert variant("bm25-lucene").prepare(task).facts()["index"] == "cached"
    assert variant("bm25", k1="1.2", b="0.75").prepare(task).facts()["index"] == "cached"
    assert variant("bm25-nano").prepare(task).facts()["index"] == "built"


def test_a_kept_index_ranks_like_a_built_one() -> None:
    task = task_of(DOCUMENTS, {"q": "insulin glucose"})

    built = variant("bm25").prepare(task).search(task.queries, depth=4)
    cached = variant("bm25").prepare(task).search(task.queries, depth=4)

    assert built.ranking("q") == cached.ranking("q")


@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign"])
def test_a_damaged_index_is_named_and_rebuilt(damage: str) -> None:
    task = task_of(DOCUMENTS, {"q": "insulin"})
    sound = variant("bm25").prepare(task).search(task.queries, depth=4)
    file = index_file()
    content = bytearray(file.read_bytes())
    place = content.rindex(np.array([3, 1, 2, 2, 0], dtype=np.int32).tobytes())
    content[place] ^= 1
    changed = {
        "cut": bytes(content[: len(content) // 2]),
        "flipped": bytes(content),
        "emptied": b"",
        "foreign": b"not an index",
    }
    file.write_bytes(changed[damage])

    searcher = variant("bm25").prepare(task)

    assert str(file) in str(searcher.facts()["index"])
    assert searcher.search(task.queries, depth=4).ranking("q") == sound.ranking("q")
    assert variant("bm25").prepare(task).facts()["index"] == "cached"


def test_an_index_that_cannot_be_kept_is_used_all_the_same(tmp_path: Path) -> None:
    task = task_of(DOCUMENTS, {"q": "insulin"})
    blocking = index_file().parent.parent
    blocking.parent.mkdir(parents=True)
    blocking.write_text("a file where the folder would be")

    searcher = variant("bm25").prepare(task)

    assert str(searcher.facts()["index"]).startswith("built, not kept")
    assert searcher.search(task.queries, depth=1).ranking("q")[0][0] == "d2"


def test_facts_show_the_first_document_as_analysed() -> None:
    facts = variant("bm25").prepare(task_of(DOCUMENTS, {"q": "insulin"})).facts()

    assert facts["first_document_terms"] == terms("insulin lowers glucose")
    assert facts["documents"] == 5


def test_the_contributions_of_terms_add_up_to_the_score() -> None:
    task = task_of(DOCUMENTS, {"q": "insulin glucose glucose zebra"})
    searcher = variant("bm25").prepare(task)

    parts = searcher.contributions("insulin glucose glucose zebra", "d1")

    assert set(parts) == set(terms("glucose"))
    score = dict(searcher.search(task.queries, depth=9).ranking("q"))["d1"]
    assert sum(parts.values()) == pytest.approx(score)


def test_options_change_the_scores() -> None:
    task = task_of(DOCUMENTS, {"q": "insulin glucose"})
    plain, changed = variant("bm25"), variant("bm25", k1="1.2", b="0.75", query="bag")

    first, second = (one.prepare(task).search(task.queries, depth=4) for one in (plain, changed))

    assert first.scores.tolist() != second.scores.tolist()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("query", "bags", "one of weighted, bag"),
        ("analyzer", "lucen", "one of lucene, nano"),
        ("idf", "tfidf", "lucene, robertson"),
        ("unmatched", "keep", "fill, drop"),
        ("b", "1.5", "from 0 to 1"),
        ("k1", "-1", "from 0"),
        ("k1", "inf", "from 0"),
        ("k1", "nan", "from 0"),
    ],
)
def test_a_wrong_option_is_refused_with_what_is_allowed(option: str, value: str, said: str) -> None:
    with pytest.raises(UsageError, match=f"{option}={value}.*{said}"):
        variant("bm25", **{option: value})


def test_the_published_entries_say_what_they_are() -> None:
    published = entries()["bm25"]

    assert published.published_as == "bm25"
    assert published.depth == 100
    assert entries()["bm25-nano"].depth == 500
    assert dict(published.fields) == {
        "analyzer": "lucene",
        "k1": 0.9,
        "b": 0.4,
        "idf": "lucene",
        "query": "weighted",
        "unmatched": "fill",
    }
