from __future__ import annotations

import pytest

from r2med import settings
from r2med.errors import UsageError
from r2med.expand.expander import Method
from r2med.systems.registry import entries


def read(name: str, **options: str) -> Method:
    entry = entries()[name].override({"llm": "qwen-7b", **options})
    method = settings.parse_settings(Method, entry.fields, name=name)
    method.check()
    return method


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("hyde", "search", "bm25"),
        ("hyde", "passages", "3"),
        ("hyde", "words", "100"),
        ("hyde", "turns", "3"),
        ("query2doc", "tokens", "100"),
        ("lamer", "turns", "2"),
        ("lamer", "tokens", "100"),
    ],
)
def test_an_option_that_a_method_has_no_use_for_is_an_error(
    name: str, option: str, value: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(name, **{option: value})

    assert f"{name}[{option}={value}] has no effect: {name} " in str(caught.value)


@pytest.mark.parametrize("option", ["passages", "words", "turns", "tokens"])
def test_an_option_may_repeat_what_the_entry_says(option: str) -> None:
    assert read("hyde", **{option: "0"}) == read("hyde")


def test_methods_that_read_take_the_options_of_reading() -> None:
    assert read("lamer", search="bm25-lucene", passages="5", words="50").passages == 5
    assert read("search-o1", turns="2", tokens="0").turns == 2


@pytest.mark.parametrize("name", ["lamer", "search-o1", "search-r1"])
def test_a_method_that_reads_needs_a_retriever(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: .* needs a retriever"):
        read(name, search="")


def test_a_method_without_a_model_says_how_to_name_one() -> None:
    with pytest.raises(UsageError, match=r"hyde:qwen-7b \| bm25'; docs/llms\.md lists the names"):
        settings.parse_settings(Method, entries()["hyde"].fields).check()


def test_prompts_that_no_method_has_are_an_error() -> None:
    with pytest.raises(UsageError, match="Did you mean 'lamer'"):
        read("hyde", prompts="lammer")
