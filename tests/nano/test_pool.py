from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, UsageError
from r2med.nano.pool import Fill, NanoPool, Recipe, make_pool
from r2med.runs import Run
from r2med.tasks.task import Task
from tests.nano.making import task_of

DOCUMENTS = [(f"d{i}", f"text {i}") for i in range(12)]


def ids(pool: NanoPool) -> list[str]:
    found: list[str] = pool.corpus.ids.to_pylist()
    return found


def test_positives_come_in_judgement_order_then_rounds_of_negatives_then_the_head() -> None:
    task = task_of(
        DOCUMENTS,
        {"b": "second", "a": "first"},
        {"b": {"d9": 1, "d8": 0, "d7": 0}, "a": {"d5": 2, "d6": 0}},
    )

    pool = make_pool(task, Recipe(documents=8))

    assert ids(pool) == ["d9", "d5", "d6", "d8", "d7", "d0", "d1", "d2"]
    assert pool.report["positive_documents"] == 2
    assert pool.report["judged_negative_documents"] == 3
    assert pool.report["fill_documents"] == 3


def test_queries_keep_file_order_and_only_those_with_a_positive_and_a_new_text() -> None:
    task = task_of(
        DOCUMENTS,
        {"q1": "same", "q2": "none", "q3": "same", "q4": "other", "q5": "last"},
        {"q1": {"d1": 1}, "q2": {"d2": 0}, "q3": {"d3": 1}, "q4": {"d4": 1}, "q5": {"d5": 1}},
    )

    pool = make_pool(task, Recipe(queries=2))

    assert pool.queries.ids.to_pylist() == ["q1", "q4"]
    assert pool.report["queries_without_positive"] == 1
    assert pool.report["repeated_query_texts"] == 1
    assert pool.report["queries_over_limit"] == 1


def test_an_equal_text_is_skipped_and_its_judgement_is_lost_not_moved() -> None:
    task = task_of(
        [("d0", "twin"), ("d1", "twin"), ("d2", "other")],
        {"q1": "one", "q2": "two"},
        {"q1": {"d0": 1}, "q2": {"d1": 1}},
    )

    pool = make_pool(task)

    assert ids(pool) == ["d0", "d2"]
    assert pool.queries.ids.to_pylist() == ["q1"]
    assert pool.report["positives_repeated_text"] == 1
    assert pool.report["repeated_texts_skipped"] == 1
    assert pool.report["queries_left_without_positive"] == 1


def test_fewer_documents_than_positives_drops_the_rest_and_counts_it() -> None:
    task = task_of(DOCUMENTS, {"q": "one"}, {"q": {f"d{i}": 1 for i in range(6)}})

    pool = make_pool(task, Recipe(documents=4))

    assert ids(pool) == ["d0", "d1", "d2", "d3"]
    assert len(pool.judgements) == 4
    assert pool.report["positives_over_limit"] == 2
    assert any("2 positives dropped" in told for told in pool.notices(4))


def test_the_fill_looks_no_further_than_the_published_number_of_rows() -> None:
    twins = [(f"t{i}", "twin") for i in range(9)]
    task = task_of([*twins, *DOCUMENTS], {"q": "one"}, {"q": {"d11": 1}})

    pool = make_pool(task, Recipe(documents=3))

    assert ids(pool) == ["d11", "t0"]
    assert any("2 documents instead of 3" in told for told in pool.notices(3))


def test_graded_judgements_become_binary() -> None:
    task = task_of(DOCUMENTS, {"q": "one"}, {"q": {"d1": 2, "d2": 1}})

    assert make_pool(task).judgements.scores.tolist() == [1, 1]


def texts(pool: NanoPool) -> dict[str, str]:
    return dict(zip(ids(pool), pool.corpus.texts.to_pylist(), strict=True))


def test_a_repeated_id_is_one_document_with_its_first_text() -> None:
    task = task_of([("d0", "first"), ("d1", "x"), ("d0", "last")], {"q": "one"}, {"q": {"d0": 1}})

    assert texts(make_pool(task)) == {"d0": "first", "d1": "x"}


def test_a_later_row_of_an_id_fills_the_pool_where_its_first_is_a_repeated_text() -> None:
    task = task_of([("d1", "x"), ("d0", "x"), ("d0", "y")], {"q": "one"}, {"q": {"d1": 1}})

    assert texts(make_pool(task)) == {"d1": "x", "d0": "y"}


def test_texts_are_stripped_before_they_are_compared_and_kept() -> None:
    task = task_of(
        [("d0", " twin\n"), ("d1", "twin"), ("d2", "\u00a0other\t")],
        {"q1": "same ", "q2": " same"},
        {"q1": {"d0": 1}, "q2": {"d1": 1}},
    )

    pool = make_pool(task)

    assert texts(pool) == {"d0": "twin", "d2": "other"}
    assert pool.queries.texts.to_pylist() == ["same"]


def test_rows_without_text_are_no_documents_and_do_not_count_in_the_fill() -> None:
    empty = [(f"e{i}", " \n" if i % 2 else "") for i in range(9)]
    task = task_of(
        [*empty, ("d0", ""), ("d0", "late"), *DOCUMENTS[1:]], {"q": "one"}, {"q": {"d0": 1}}
    )

    pool = make_pool(task, Recipe(documents=3))

    assert texts(pool) == {"d0": "late", "d1": "text 1", "d2": "text 2"}
    assert pool.report["empty_documents"] == 10
    assert "10 rows of the corpus without text left out." in pool.notices(3)


def test_a_positive_without_text_is_lost_and_counted() -> None:
    task = task_of([("d0", " "), ("d1", "x")], {"q": "one"}, {"q": {"d0": 1, "d1": 1}})

    pool = make_pool(task)

    assert pool.judgements.document_ids.to_pylist() == ["d1"]
    assert pool.report["positives_not_in_corpus"] == 1


def test_no_positive_judgement_is_an_error_that_names_the_task() -> None:
    task = task_of(DOCUMENTS, {"q": "one"}, {"q": {"d1": 0}})

    with pytest.raises(DataError, match="small: 1 judgements, none with a score above 0"):
        make_pool(task)


def test_the_random_fill_is_seeded_and_does_not_depend_on_the_corpus_order() -> None:
    judged = {"q": {"d1": 1}}
    task = task_of(DOCUMENTS, {"q": "one"}, judged)
    turned = task_of(DOCUMENTS[::-1], {"q": "one"}, judged)

    first = make_pool(task, Recipe(documents=6, fill="random", seed=1))

    assert ids(make_pool(turned, Recipe(documents=6, fill="random", seed=1))) == ids(first)
    assert ids(make_pool(task, Recipe(documents=6, fill="random", seed=2))) != ids(first)
    assert ids(make_pool(task, Recipe(documents=4, fill="random", seed=1))) == ids(first)[:4]


def test_the_hard_fill_takes_the_ranking_rank_by_rank() -> None:
    task = task_of(DOCUMENTS, {"a": "one", "b": "two"}, {"a": {"d0": 1}, "b": {"d1": 1}})
    hard = Run.from_lists({"a": [("d9", 2.0), ("d8", 1.0)], "b": [("d7", 2.0), ("d6", 1.0)]})

    pool = make_pool(task, Recipe(documents=7, fill="hard"), hard=hard)

    assert ids(pool) == ["d0", "d1", "d9", "d7", "d8", "d6", "d2"]


@pytest.mark.parametrize(
    ("options", "named"),
    [({"queries": 0}, "--max-queries 0"), ({"documents": -1}, "--documents -1")],
)
def test_impossible_settings_are_refused(options: dict[str, int], named: str) -> None:
    with pytest.raises(UsageError, match=named):
        Recipe(**options)  # type: ignore[arg-type]


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    size = draw(st.integers(2, 15))
    documents = [(f"d{i}", f"t{draw(st.integers(0, 12))}") for i in range(size)]
    queries = {f"q{i}": f"text {draw(st.integers(0, 3))}" for i in range(draw(st.integers(1, 4)))}
    judged = {
        query: {
            f"d{draw(st.integers(0, size - 1))}": draw(st.integers(0, 2))
            for _ in range(draw(st.integers(1, 4)))
        }
        for query in queries
    }
    judged["q0"] = {**judged["q0"], "d0": 1}
    return task_of(documents, queries, judged)


@given(tasks(), st.integers(1, 15), st.sampled_from(["source", "random"]))
def test_every_pool_is_sound(task: Task, size: int, fill: Fill) -> None:
    pool = make_pool(task, Recipe(documents=size, fill=fill))

    kept = pool.corpus.texts.to_pylist()
    assert len(kept) <= size
    assert len(set(kept)) == len(kept)
    assert set(pool.judgements.document_ids.to_pylist()) <= set(ids(pool))
    assert set(pool.judgements.query_ids.to_pylist()) == set(pool.queries.ids.to_pylist())
    report = pool.report
    assert (
        sum(report[f"{kind}_documents"] for kind in ("positive", "judged_negative", "fill"))
        == report["documents"]
        == len(kept)
    )
