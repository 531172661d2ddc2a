"""The arithmetic of a run that has neither data nor model, from published figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from r2med.engine.estimating import Load, Sizes, loads
from r2med.systems.build import System
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite, find_task
from tests.cli.running import run
from tests.tasks.writing import write_r2med

pytest.importorskip("aiohttp")
BIOLOGY = Sizes.of(find_task("Biology"))


def of(text: str, sizes: Sizes = BIOLOGY, width: int | None = None) -> dict[str, Load]:
    parts = loads(System.from_spec(text).stage, sizes, width)
    return {f"{load.part} {load.stage}": load for load in parts}


def test_documents_are_counted_as_published_and_cut_at_the_limit() -> None:
    found = of("dense:none[max_length=64]", width=384)["dense:none[max_length=64] documents"]
    long = of("dense:none[max_length=512]", width=384)["dense:none[max_length=512] documents"]

    assert found.texts == 49_434  # distinct ones of 57,359
    assert found.tokens == 49_434 * 64
    assert long.tokens == round(49_434 * 83.6)
    assert found.vector_bytes == 49_434 * 384 * 4
    assert of("dense:none")["dense:none documents"].vector_bytes is None


def test_the_suite_holds_the_published_number_of_words() -> None:
    sizes = [Sizes.of(entry) for entry in find_suite("full").entries]

    assert sum(each.queries for each in sizes) == 876
    assert sum(each.documents * each.document_tokens for each in sizes) == pytest.approx(82e6, 0.01)


def test_every_stage_of_a_system_is_reckoned() -> None:
    system = "(hyde:gpt4 | dense:none) + bm25 | monobert@50"
    found = of(system)

    assert set(found) == {
        "hyde:gpt4 generate",
        "dense:none documents",
        "dense:none queries",
        "monobert@50 rerank",
    }
    assert found["hyde:gpt4 generate"].texts == 103
    assert found["hyde:gpt4 generate"].bill
    assert found["dense:none queries"].tokens == pytest.approx(103 * (115.2 + 400), abs=1)
    assert found["monobert@50 rerank"].texts == 103 * 50
    assert found["monobert@50 rerank"].tokens == round(103 * 50 * (115.2 + 83.6))
    assert not of("hyde:gpt4[generations=published] | bm25")


def test_a_language_model_that_reranks_is_asked_as_often_as_it_would_be() -> None:
    (load,) = of("bm25 | listwise:gpt4@100").values()

    assert load.texts == 9 * 103  # windows of 20 in steps of 10
    assert load.tokens > load.texts * (20 * 83 + 115)


def test_data_that_is_here_is_counted_as_it_is() -> None:
    task = load_task("demo/biology")
    sizes = Sizes.of(task)

    assert sizes.documents == len(task.corpus.texts.unique())
    assert sizes.queries == len(task.queries)


def test_a_hundred_million_passages_take_hours_money_and_disk_in_proportion() -> None:
    command = ("eval", "e5", "--task", "Biology", "--dry-run", "--price", "2", "--json")
    pace = ("--tokens-per-second", "20000", "--vector-width", "4096")
    sizes = ("10000000", "100000000")

    answers: list[Any] = [
        json.loads(run(*command, *pace, "--passages", size).out)[0] for size in sizes
    ]

    small, large = answers
    assert large["tokens"] == 10 * small["tokens"] == 8_360_000_000
    assert large["hours"] == pytest.approx(8.36e9 / 20_000 / 3600)
    assert large["money"] == pytest.approx(2 * large["hours"])
    assert large["vector_bytes"] == 100_000_000 * 4096 * 4
    assert large["estimated"] is True


def test_tasks_stay_in_their_order_whether_their_sizes_are_published_or_counted(
    tmp_path: Path,
) -> None:
    own = write_r2med(tmp_path / "own")
    pace = ("--dry-run", "--tokens-per-second", "20000", "--json")

    shown = json.loads(run("eval", "e5", "--task", f"{own},Biology", *pace).out)

    assert [row["task"] for row in shown] == ["own", "own", "Biology", "Biology"]


def test_the_table_calls_itself_an_estimate_and_options_alone_are_refused() -> None:
    shown = run("eval", "e5", "--task", "full", "--dry-run", "--tokens-per-second", "20000")
    alone = run("eval", "e5", "--price", "2")
    running = run("eval", "e5", "--tokens-per-second", "2")

    served = run("eval", "bm25 | listwise:qwen-7b", "--dry-run", "--tokens-per-second", "20000")

    assert "listwise:qwen-7b: rerank" in served.out  # though no server is named
    assert "8 tasks: an estimate, nothing is run" in shown.out
    assert "348,509" in shown.out and "unknown" in shown.out
    assert "--price has no effect without --dry-run --tokens-per-second N" in alone.err
    assert "--tokens-per-second has no effect without --dry-run" in running.err
