"""Whatever JSON a server sends, it is an answer or unreadable; nothing else happens."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from r2med.remote.completions import read_answer
from r2med.remote.registry import find_llm
from r2med.remote.requests import RequestTimes, read_token_usage
from r2med.retrieve.api import read_vectors as vectors
from tests.remote.asking import ask

_NAMES = "choices message content usage data embedding index finish_reason refusal prompt_tokens"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(_NAMES.split()), inner, max_size=4)
    ),
    max_leaves=12,
)
OBJECT = st.dictionaries(st.sampled_from([*_NAMES.split(), "error"]), JSON, max_size=5)
CHOICE = st.fixed_dictionaries({"message": JSON | st.fixed_dictionaries({"content": JSON})})


@given(OBJECT | st.fixed_dictionaries({"choices": st.lists(CHOICE, max_size=2), "usage": JSON}))
def test_any_json_is_a_chat_answer_or_unreadable(value: dict[str, Any]) -> None:
    with suppress(ValueError):
        read_answer(find_llm("qwq-32b"), ask("why?"), value, RequestTimes(0.5, 0.5))


@given(OBJECT | st.fixed_dictionaries({"data": st.lists(OBJECT, min_size=1, max_size=1)}))
def test_any_json_is_vectors_or_unreadable(value: dict[str, Any]) -> None:
    with suppress(ValueError):
        vectors(value, 1)
    sum(read_token_usage(value) or [1])
