"""Costs: indexing and queries apart, and what a cache answered at its recorded cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import r2med
from r2med import Result
from r2med.results.cost import Cost, cost_of
from r2med.systems.output import StageCost


def result_with(*costs: Mapping[str, Any]) -> Result:
    stored = r2med.evaluate("bm25", "demo/biology")
    stage_costs = tuple(StageCost(**cost) for cost in costs)
    return Result.from_record(stored.folder, replace(stored.record, costs=stage_costs))


def cost(*costs: Mapping[str, Any]) -> Cost:
    return cost_of([result_with(*costs)])


def test_the_time_per_query_holds_no_indexing() -> None:
    result = r2med.evaluate("bm25", "demo/biology")

    spent = cost_of([result])

    seconds = result.record.seconds
    assert spent.index_seconds == seconds["index"]
    assert spent.seconds_per_query == seconds["search"] / result.record.task.queries


def test_tokens_of_documents_are_not_those_of_queries() -> None:
    spent = cost(
        {"part": "e5", "stage": "index", "seconds": 9.0, "tokens": 5000, "money": 0.5},
        {"part": "e5", "stage": "search", "seconds": 1.0, "tokens": 130, "money": 0.25},
    )

    assert (spent.index_tokens, spent.query_tokens, spent.money) == (5000, 130, 0.75)


def test_a_warm_cache_costs_what_it_did_and_is_marked() -> None:
    llm = {"part": "hyde:gpt4", "stage": "expand"}
    cold = cost({**llm, "seconds": 4.0, "tokens": 3400, "money": 0.1, "answer_seconds": 30.0})

    warm = cost(
        {
            **llm,
            "seconds": 0.01,
            "tokens": 0,
            "money": 0.0,
            "cached": 13,
            "cached_tokens": 3400,
            "cached_money": 0.1,
            "answer_seconds": 30.0,
        }
    )

    assert replace(warm, query_cached=False) == cold
    assert warm.query_cached and not cold.query_cached


def test_a_member_s_stored_result_is_marked() -> None:
    assert cost({"part": "bm25", "stage": "search", "seconds": 1.0, "reused": True}).query_cached


def test_an_index_from_the_cache_marks_the_indexing_alone() -> None:
    spent = cost(
        {"part": "bm25", "stage": "index", "seconds": 0.0, "cached": 40},
        {"part": "bm25", "stage": "search", "seconds": 1.0},
    )

    assert (spent.index_cached, spent.query_cached) == (True, False)


def test_what_nobody_recorded_is_unknown() -> None:
    spent = cost({"part": "bm25", "stage": "search", "seconds": 1.0, "tokens": None})

    assert (spent.query_tokens, spent.tokens_per_query, spent.money) == (None, None, None)
