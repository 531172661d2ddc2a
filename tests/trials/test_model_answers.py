"""Whatever a model or its server writes is read within a time limit, or named in one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.errors import MissingError
from r2med.expand.agents import TAGS
from r2med.expand.answers import classify_answer, extract_answer, is_refusal
from r2med.remote.completions import (
    ChatAnswer,
    ChatRequest,
    Message,
    read_answer,
    restore_reasoning,
)
from r2med.remote.registry import find_llm
from r2med.remote.requests import RequestTimes, parse_retry_after, read_token_usage
from r2med.rerank.llm_answers import read_grade, read_order, read_scores, split_thought
from r2med.retrieve.api import read_vectors
from tests.trials.counting import counted
from tests.trials.limits import time_limit

CASES = 200

FRAGMENTS = st.sampled_from(
    [
        *("of ", "from ", "between ", "on ", "scale ", "the ", "10", "9", "1", "0.5", "1,5", "-"),
        *("[", "]", "[1]", '"[1]": 3', "'2':", ":", " ", "\n", "\t", "(", ")", "/", ".", ",", "%"),
        *(
            "score ",
            "final ",
            "grade: ",
            "out of ",
            "to ",
            "and ",
            "is ",
            "a ",
            "ten ",
            "yes ",
            "no",
        ),
        *("<think>", "</think>", "<answer>", "</answer>", "<reason>", "<", ">", "|", "< |", "</"),
        *("<search>", "</search>", "<|begin_search_query|>", "begin_search_", "information"),
        *("I ", "can't ", "help ", "but ", "although ", "sorry ", "as an ai ", "see ", "doctor "),
        *(
            "consult ",
            "however ",
            "only ",
            "I can ",
            "I am ",
            "'m ",
            "slowly ",
            "é",
            "\ud800",
            "\0",
        ),
    ]
)
#: Fragments repeated thousands of times: what makes a pattern with nested repetitions explode.
TEXTS = st.one_of(
    st.text(max_size=200),
    st.lists(st.tuples(FRAGMENTS, st.integers(1, 4_000)), min_size=1, max_size=4).map(
        lambda parts: "".join(text * count for text, count in parts)[:60_000]
    ),
    st.lists(FRAGMENTS, max_size=60).map("".join),
)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.just(10**4000),
    st.just(-(10**400)),
    st.booleans(),
    st.none(),
    st.text(max_size=5),
)
JSON = st.recursive(
    NUMBERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)

READERS: dict[str, Callable[[str], object]] = {
    "split_thought": split_thought,
    "order": lambda text: read_order(text, 20),
    "scores": lambda text: read_scores(text, 20),
    "grade": read_grade,
    "refusal": is_refusal,
    "strip": lambda text: [
        extract_answer(text, how) for how in ("think", "final-response", "answer")
    ],
    "classify_answer": lambda text: classify_answer(text, text, "stop"),
    "search-o1": lambda text: TAGS["search-o1"].clean_answer(text, TAGS["search-o1"].read(text)),
    "search-r1": lambda text: TAGS["search-r1"].clean_answer(text, TAGS["search-r1"].read(text)),
}


def fuzz(test: Callable[..., None], strategy: st.SearchStrategy[Any], cases: int) -> None:
    """Run a test on so many generated cases."""
    healthy = [HealthCheck.too_slow, HealthCheck.data_too_large]
    fuzzed = given(strategy)(test)
    settings(max_examples=cases, deadline=None, suppress_health_check=healthy, database=None)(
        fuzzed
    )()


@pytest.mark.parametrize("reader", READERS)
def test_any_text_of_a_model_is_read_within_the_time_limit(reader: str, trials: int) -> None:
    def read(text: str) -> None:
        with time_limit():
            READERS[reader](text)

    fuzz(read, TEXTS, CASES * trials)
    counted("texts of a model", CASES * trials)


@pytest.mark.parametrize(
    "text",
    [
        "of " * 2_000,
        "9" * 50_000,
        "\n" * 50_000,
        "see " * 20_000,
        "as an ai " * 20_000,
        "<answer>" * 20_000,
        "<" + " " * 50_000,
        "a" + " " * 50_000 + "b",
        '"' + "9" * 5_000 + '": 3',
    ],
    ids=lambda text: f"{text[:10]!r}",
)
@pytest.mark.parametrize("reader", READERS)
def test_texts_that_make_patterns_explode_are_read_within_the_time_limit(
    reader: str, text: str
) -> None:
    with time_limit():
        READERS[reader](text)


def answers_of_servers() -> st.SearchStrategy[dict[str, Any]]:
    """Answers of a server with the right shape and odd values in some of its places."""
    rows = st.lists(JSON | st.fixed_dictionaries({"token": JSON, "logprob": NUMBERS}), max_size=3)
    logprobs = st.one_of(
        JSON,
        st.fixed_dictionaries({"top_logprobs": st.lists(rows | JSON, max_size=2)}),
        st.fixed_dictionaries(
            {"content": st.lists(st.fixed_dictionaries({"top_logprobs": rows}), max_size=2)}
        ),
        st.fixed_dictionaries(
            {"top_logprobs": st.lists(st.dictionaries(st.text(max_size=4), NUMBERS), max_size=2)}
        ),
    )
    message = st.fixed_dictionaries(
        {}, optional={"content": TEXTS | JSON, "reasoning_content": JSON, "refusal": JSON}
    )
    choice = st.fixed_dictionaries(
        {},
        optional={
            "message": message | JSON,
            "text": TEXTS | JSON,
            "finish_reason": JSON,
            "logprobs": logprobs,
        },
    )
    usage = st.fixed_dictionaries(
        {},
        optional={
            "prompt_tokens": NUMBERS,
            "completion_tokens": NUMBERS,
            "total_tokens": NUMBERS,
        },
    )
    return st.fixed_dictionaries(
        {},
        optional={
            "choices": st.lists(choice, max_size=2) | JSON,
            "usage": usage | JSON,
            "error": JSON,
            "data": st.lists(
                st.fixed_dictionaries({}, optional={"embedding": JSON, "index": JSON}), max_size=2
            ),
        },
    )


@pytest.mark.parametrize("bare", [False, True], ids=["chat", "text"])
def test_any_answer_of_a_server_is_read_or_refused(bare: bool, trials: int) -> None:
    llm = find_llm("gpt4")
    role = "bare" if bare else "user"
    request = ChatRequest((Message(role, "why?"),), alternatives=5 if bare else 0)

    def read(value: dict[str, Any]) -> None:
        with time_limit():
            try:
                answer = restore_reasoning(
                    llm, read_answer(llm, request, value, RequestTimes(0.5, 0.5))
                )
            except (ValueError, MissingError):
                return
            finally:
                read_token_usage(value)
        assert isinstance(answer, ChatAnswer)
        assert answer.prompt_tokens >= 0
        json.dumps(answer.alternatives, allow_nan=False)

    fuzz(read, answers_of_servers(), CASES * trials)
    counted("answers of a server", CASES * trials)


def test_any_embeddings_of_a_server_are_read_or_refused(trials: int) -> None:
    def read(value: dict[str, Any]) -> None:
        with time_limit():
            try:
                read_vectors(value, 2)
            except ValueError:
                return

    fuzz(read, answers_of_servers(), CASES * trials)
    counted("answers of a server", CASES * trials)


def test_any_header_of_a_server_is_read(trials: int) -> None:
    def read(text: str) -> None:
        with time_limit():
            waited = parse_retry_after({"Retry-After": text, "Retry-After-Ms": text[::-1]})
        assert waited is None or waited >= 0

    fuzz(read, TEXTS, CASES * trials)
