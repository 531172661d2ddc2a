"""Counts and statistics, in the shape and by the rules of the manifests."""

from __future__ import annotations

from pathlib import Path

from r2med.tasks.load import load_task, make_check
from r2med.tasks.registry import find_task
from r2med.tasks.task import counts, statistics
from tests.tasks.writing import Written, write_r2med


def test_lengths_are_in_characters_and_relevant_documents_have_a_positive_score(
    tmp_path: Path,
) -> None:
    written = Written(
        documents=(("d1", "caf\u00e9"), ("d2", "caf\u00e9"), ("d3", "")),
        queries=(("1", "ab"), ("2", "abcd"), ("3", "abc")),
        judgements=(("1", "d1", 2), ("1", "d2", 1), ("2", "d1", 1), ("2", "d3", 0)),
    )
    task = load_task(write_r2med(tmp_path, written))

    assert counts(task) == {"queries": 3, "documents": 3, "judgements": 4}
    assert statistics(task) == {
        "documents": 3,
        "documents_text": {
            "total_text_length": 8,
            "min_text_length": 0,
            "average_text_length": 8 / 3,
            "max_text_length": 4,
            "unique_texts": 2,
        },
        "queries_text": {
            "total_text_length": 9,
            "min_text_length": 2,
            "average_text_length": 3.0,
            "max_text_length": 4,
            "unique_texts": 3,
        },
        "relevant_docs": {
            "num_relevant_docs": 3,
            "min_relevant_docs_per_query": 1,
            "average_relevant_docs_per_query": 1.5,
            "max_relevant_docs_per_query": 2,
            "unique_relevant_docs": 2,
        },
    }


def test_only_figures_known_to_both_are_compared_and_rounding_is_forgiven() -> None:
    entry = find_task("Biology")

    def passed(expected: object, found: object) -> bool | None:
        return make_check(entry, "counts", "documents", expected, found).passed

    assert passed(4, 3) is False and passed(3, 3) is True
    assert passed(2.0, 2.0000004) is True and passed(2.0, 2.00001) is False
    assert passed(None, 3) is None and passed(3, None) is None
