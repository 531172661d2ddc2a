from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.expand.answers import ANSWER_ALONE, ExpandedQuery, Expansion, Rule, Sample
from r2med.retrieve.interface import Part

DECLARED = tomllib.loads((files("r2med.expand") / "methods.toml").read_text(encoding="utf-8"))
METHODS = {
    name: Rule(entry["lexical"], tuple(entry["dense"]))
    for name, entry in DECLARED.items()
    if name != "defaults"
}


@pytest.mark.parametrize(
    ("method", "lexical", "dense"),
    [
        ("hyde", "G", (Part("Q"), Part("G", generated=True))),
        ("query2doc", "QQ G", (Part("Q[SEP]G"),)),
        ("lamer", "Q G", (Part("Q"), Part("G", generated=True))),
        ("search-o1", "G", (Part("Q"), Part("G", generated=True))),
        ("search-r1", "G", (Part("Q"), Part("G", generated=True))),
    ],
)
def test_each_method_combines_as_published(
    method: str, lexical: str, dense: tuple[Part, ...]
) -> None:
    made = METHODS[method].form("1", "Q", ["G"])

    assert made.lexical == lexical
    assert made.dense == dense


@pytest.mark.parametrize("rule", [*METHODS.values(), ANSWER_ALONE])
@given(query=st.text())
def test_a_query_without_an_answer_stands_for_itself(rule: Rule, query: str) -> None:
    made = rule.form("1", query, [])

    assert made.lexical == query
    assert made.dense == (Part(query),)


@given(query=st.text(max_size=20), answer=st.text(max_size=20))
def test_braces_in_texts_are_left_alone(query: str, answer: str) -> None:
    tricky_query, tricky_answer = query + "{generated}", answer + "{query}"

    made = METHODS["query2doc"].form("1", tricky_query, [tricky_answer])

    assert made.lexical == tricky_query * 2 + " " + tricky_answer


def test_several_answers_are_joined_for_words_and_averaged_with_the_query_once() -> None:
    made = METHODS["hyde"].form("1", "Q", ["A", "B"])

    assert made.lexical == "A B"
    assert made.dense == (Part("Q"), Part("A", generated=True), Part("B", generated=True))


def test_a_rule_that_uses_neither_text_is_refused() -> None:
    with pytest.raises(UsageError, match=r"contains neither \{query\} nor \{generated\}"):
        Rule("words", ("{query}",))


def expansion(*, fuse: bool) -> Expansion:
    useful, refused = Sample("A", "A"), Sample("no", "no", "refused")
    queries = (
        ExpandedQuery("1", "Q", (useful, refused)),
        ExpandedQuery("2", "P", (refused, refused)),
    )
    return Expansion(queries, METHODS["hyde"], fuse)


def test_averaged_samples_make_one_variant_without_the_useless_ones() -> None:
    [forms] = expansion(fuse=False).variants

    assert [form.lexical for form in forms] == ["A", "P"]


def test_fused_samples_make_a_variant_each_in_which_a_useless_one_falls_back() -> None:
    first, second = expansion(fuse=True).variants

    assert [form.lexical for form in first] == ["A", "P"]
    assert [form.lexical for form in second] == ["Q", "P"]


def test_only_queries_without_any_useful_sample_count_as_fallen_back() -> None:
    made = expansion(fuse=False)

    assert made.fallen_back == 1
    assert made.facts()["fallen_back"] == 1
    assert made.facts()["refused"] == 3
