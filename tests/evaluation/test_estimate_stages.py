"""Estimates of cost, hours, disk and memory, from data or from published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from r2med.evaluation.estimate import StageEstimate, TaskSize, estimate_daily_use, estimate_stages
from r2med.paths import cache_folder
from r2med.systems.build import System
from r2med.systems.stages import Retrieval
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite, find_task
from r2med.tasks.task import Corpus
from tests.cli.running import run
from tests.tasks.writing import write_r2med

pytest.importorskip("aiohttp")
BIOLOGY = TaskSize.measure(find_task("Biology"))


def of(spec: str, size: TaskSize = BIOLOGY, width: int | None = None) -> dict[str, StageEstimate]:
    stages = estimate_stages(System.from_spec(spec).stage, size, width)
    return {f"{row.stage} {row.work}": row for row in stages}


def test_documents_are_counted_as_published_and_cut_at_the_limit() -> None:
    short = of("dense:none[max_length=64]", width=384)["dense:none[max_length=64] documents"]
    long = of("dense:none[max_length=512]", width=384)["dense:none[max_length=512] documents"]

    assert short.texts == 49_434  # distinct ones of 57,359
    assert short.tokens == 49_434 * 64
    assert long.tokens == round(49_434 * 83.6)
    assert short.disk_bytes == 49_434 * 384 * 4
    assert of("dense:none")["dense:none documents"].disk_bytes is None


def test_the_suite_holds_the_published_number_of_words() -> None:
    sizes = [TaskSize.measure(entry) for entry in find_suite("full").entries]

    assert sum(size.queries for size in sizes) == 876
    assert sum(size.documents * size.document_tokens for size in sizes) == pytest.approx(82e6, 0.01)


def test_every_stage_of_a_system_is_estimated() -> None:
    system = "(hyde:gpt4 | dense:none) + bm25 | monobert@50"
    found = of(system)

    assert set(found) == {
        "hyde:gpt4 generate",
        "dense:none documents",
        "hyde:gpt4 | dense:none queries",
        "bm25 index",
        f"{system} rerank",
    }
    assert found["hyde:gpt4 generate"].texts == 103
    assert found["hyde:gpt4 generate"].money
    assert found["hyde:gpt4 | dense:none queries"].tokens == pytest.approx(
        103 * (115.2 + 400), abs=1
    )
    assert found[f"{system} rerank"].texts == 103 * 50
    assert found[f"{system} rerank"].tokens == round(103 * 50 * (115.2 + 83.6))
    assert set(of("hyde:gpt4[generations=published] | bm25")) == {"bm25 index"}


def test_a_language_model_that_reranks_is_asked_as_often_as_it_would_be() -> None:
    found = of("bm25 | listwise:gpt4@100")["bm25 | listwise:gpt4@100 rerank"]

    assert found.texts == 9 * 103  # windows of 20 in steps of 10
    assert found.tokens > found.texts * (20 * 83 + 115)


def test_data_that_is_here_is_counted_exactly() -> None:
    task = load_task("demo/biology")
    size = TaskSize.measure(task)

    assert size.documents == len(task.corpus.texts.unique())
    assert size.queries == len(task.queries)
    assert of("hyde:gpt4 | bm25", size)["hyde:gpt4 generate"].texts == len(task.queries)


def test_the_estimated_size_of_an_index_is_near_the_real_one(tmp_path: Path) -> None:
    words = [f"term{number}" for number in range(4000)]
    texts = [
        " ".join(words[(row * 7 + step * step) % 4000] for step in range(60)) for row in range(3000)
    ]
    corpus = Corpus(
        pa.array([str(row) for row in range(3000)], pa.large_string()),
        pa.array(texts, pa.large_string()),
    )
    task = replace(load_task("demo/biology"), name="synthetic", corpus=corpus)
    estimated = of("bm25", TaskSize.measure(task))["bm25 index"].disk_bytes

    retrieval = System.from_spec("bm25").stage
    assert isinstance(retrieval, Retrieval)
    retrieval.retriever.prepare(task)

    [index] = cache_folder("indexes").rglob(f"{task.corpus.hash}*.arrow")
    assert estimated is not None
    assert 0.5 < estimated / index.stat().st_size < 2


def test_daily_use_counts_new_queries_and_no_documents() -> None:
    stage = System.from_spec("hyde:gpt4 | openai").stage
    task = load_task("demo/biology")
    size = TaskSize.measure(task)

    daily = {row.work: row for row in estimate_daily_use(stage, size, 1600)}

    once = {row.work: row for row in estimate_stages(stage, replace(size, data=None))}
    assert set(daily) == {"generate", "queries"}
    assert daily["generate"].texts == 1600
    money_per_query = (once["generate"].money or 0) / len(task.queries)
    assert money_per_query > 0
    assert daily["generate"].money == pytest.approx(money_per_query * 1600)


def test_a_local_language_model_takes_hours_and_a_priced_one_money() -> None:
    command = ("estimate", "hyde:smollm2 | bm25", "hyde:gpt4 | bm25", "--task", "Biology")

    rows = json.loads(run(*command, "--tokens-per-second", "50", "--price", "2", "--json").out)

    local, index, priced = rows
    assert (local["stage"], index["stage"], priced["stage"]) == (
        "hyde:smollm2",
        "bm25",
        "hyde:gpt4",
    )
    assert local["hours"] == pytest.approx(local["tokens"] / 50 / 3600)
    assert local["money"] == pytest.approx(2 * local["hours"])
    assert priced["hours"] is None and priced["money"] > 0
    assert index["memory_bytes"] > index["disk_bytes"] > 0


def test_a_hundred_million_passages_take_hours_money_and_disk_in_proportion() -> None:
    command = ("estimate", "e5", "--task", "Biology", "--price", "2", "--json")
    pace = ("--tokens-per-second", "20000", "--vector-width", "4096")
    sizes = ("10000000", "100000000")

    answers: list[Any] = [
        json.loads(run(*command, *pace, "--passages", size).out)[0] for size in sizes
    ]

    small, large = answers
    assert large["tokens"] == 10 * small["tokens"] == 8_360_000_000
    assert large["hours"] == pytest.approx(8.36e9 / 20_000 / 3600)
    assert large["money"] == pytest.approx(2 * large["hours"])
    assert large["disk_bytes"] == 100_000_000 * 4096 * 4


def test_tasks_stay_in_their_order_whether_their_sizes_are_published_or_counted(
    tmp_path: Path,
) -> None:
    own = write_r2med(tmp_path / "own")

    shown = json.loads(run("estimate", "e5", "--task", f"{own},Biology", "--json").out)

    assert [row["task"] for row in shown] == ["own", "own", "Biology", "Biology"]


def test_neither_data_nor_a_server_is_needed() -> None:
    shown = run("estimate", "e5", "bm25 | listwise:qwen-7b", "--task", "full")

    assert shown.code == 0
    assert "listwise:qwen-7b: rerank" in shown.out and "348,509" in shown.out
    assert "published counts and mean lengths" in shown.out


def test_two_first_stages_of_one_reranker_are_estimated_separately() -> None:
    systems = ("bm25 | monobert@9", "bm25-nano | monobert@9")

    shown = run("estimate", *systems, "--task", "Biology", "--json")

    reranked = [row["stage"] for row in json.loads(shown.out) if row["work"] == "rerank"]
    assert reranked == list(systems)


def test_nothing_is_stored_and_cached_answers_are_free() -> None:
    done = run("estimate", "openai", "hyde:gpt4 | bm25", "--task", "demo/biology", "--json")

    rows = json.loads(done.out)
    assert [row["stage"] for row in rows] == ["openai", "hyde:gpt4", "bm25"]
    assert all(row["money"] > 0 for row in rows[:2])
    assert not Path("r2med-results").exists()


def test_a_price_without_a_speed_is_refused() -> None:
    refused = run("estimate", "e5", "--price", "2")

    assert refused.code == 2 and "--tokens-per-second" in refused.err
