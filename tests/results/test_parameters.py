"""Active parameters of systems come from the registries of systems and language models."""

from __future__ import annotations

import pytest

from r2med.remote.registry import find_llm, llms
from r2med.results.parameters import count_active_parameters
from r2med.systems.registry import find_entry


def size(name: str) -> float:
    entry = find_entry(name)
    assert entry is not None and entry.parameters is not None
    return entry.parameters


def llm_size(name: str) -> float:
    parameters = find_llm(name).active_parameters
    assert parameters is not None
    return parameters


def test_word_matching_has_none() -> None:
    assert count_active_parameters("bm25 + bm25-lucene") == 0


def test_all_stages_count() -> None:
    expected = llm_size("qwen-7b") + size("nv") + size("rankllama")

    assert count_active_parameters("hyde:qwen-7b | nv | rankllama@100") == pytest.approx(expected)
    assert count_active_parameters("bm25 + bge") == size("bge")


def test_a_printed_reranker_is_the_language_model_of_that_name() -> None:
    expected = size("diver") + llm_size("qwen3-32b")

    assert count_active_parameters("diver | qwen3-32b@100") == pytest.approx(expected)


@pytest.mark.parametrize(
    "system",
    [
        "hyde:gpt4 | bm25",
        "no-such-system",
        "bge[checkpoint=./mine]",
        "dense:./mine",
        "run:./run.trec",
        "openai",
    ],
)
def test_an_unknown_size_is_not_guessed(system: str) -> None:
    assert count_active_parameters(system) is None


def test_sizes_are_in_billions() -> None:
    sizes = [llm.active_parameters for llm in llms().values() if llm.active_parameters is not None]

    assert sizes and all(0.01 < parameters < 1000 for parameters in sizes)
