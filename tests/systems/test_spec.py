"""The grammar of systems: parsing and printing are inverse, and errors point at their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import UsageError
from r2med.systems.spec import Spec, Unit, parse

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,8}", fullmatch=True)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
values = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
units = st.builds(
    Unit,
    names,
    st.none() | values,
    st.dictionaries(keys, values, max_size=3).map(lambda found: tuple(sorted(found.items()))),
    st.none() | st.integers(1, 1000),
)


def wrapped(members: st.SearchStrategy[Unit | Spec]) -> st.SearchStrategy[Spec]:
    several = st.lists(members, min_size=1, max_size=3).map(tuple)
    stages = st.lists(members, max_size=2).map(tuple)
    return st.builds(Spec, several, stages).filter(lambda s: len(s.fused) > 1 or bool(s.stages))


specs = st.recursive(units, wrapped, max_leaves=6).map(
    lambda part: part if isinstance(part, Spec) else Spec((part,))
)


labels = st.none() | names | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(specs, labels)
def test_parsing_undoes_printing(spec: Spec, label: str | None) -> None:
    labelled = Spec(spec.fused, spec.stages, label)

    assert parse(str(labelled)) == labelled
    assert parse(str(labelled)).unlabelled == spec


@given(specs)
def test_parentheses_around_a_whole_system_change_nothing_but_its_print(spec: Spec) -> None:
    wrapped_once = parse(f"({spec})")

    assert parse(f"(({spec}))") == wrapped_once


@pytest.mark.parametrize(
    "text, canonical",
    [
        ("bm25", "bm25"),
        ("bm25+minilm", "bm25 + minilm"),
        ("hyde:gpt4|bm25", "hyde:gpt4 | bm25"),
        ("query2doc:qwen-72b | nv | rankllama@100", "query2doc:qwen-72b | nv | rankllama@100"),
        ("(hyde:gpt4 | nv) + bm25 | rankllama@100", "(hyde:gpt4 | nv) + bm25 | rankllama@100"),
        ("bm25[ k1 = 1.2 , b=0.75]", "bm25[b=0.75,k1=1.2]"),
        ("bge[checkpoint=/models/bge-large]", "bge[checkpoint=/models/bge-large]"),
        ('dense:x[query_instruction="find: "]', 'dense:x[query_instruction="find: "]'),
        ("((bm25))", "bm25"),
        ("mine = dense:./my-model", "mine=dense:./my-model"),
        ('"My model, v2"=bm25 | ce:./m@20', '"My model, v2"=bm25 | ce:./m@20'),
        ("dense:./a=b", "dense:./a=b"),
        ('mine=dense:"./a=b"', "mine=dense:./a=b"),
    ],
)
def test_a_system_prints_in_canonical_form(text: str, canonical: str) -> None:
    assert str(parse(text)) == canonical


@pytest.mark.parametrize(
    "text, why, place",
    [
        ("", "expected the name of a system", 0),
        ("bm25 +", "expected the name of a system", 6),
        ("./my-model", "'dense:./my-model' for an encoder, 'run:./my-model'", 0),
        ("bm25 | /models/ce", "after '|', 'ce:/models/ce'", 7),
        ("a + b=c", "expected '|', '+' or the end", 5),
        ("(a=b) + c", "expected ')'", 2),
        ("bm25 minilm", "expected '|', '+' or the end", 5),
        ("bm25[k1]", "expected '='", 7),
        ("bm25[k1=1.2", "expected ']'", 11),
        ("bm25[k1=1,k1=2]", "'k1' is given twice", 10),
        ("bm25@0", "a whole number from 1", 5),
        ("bm25@ten", "a whole number from 1", 5),
        ("(bm25", "expected ')'", 5),
        ("a | b + c", "a fusion needs parentheses", 6),
        ('a:"open', "a quoted value must end with", 2),
        ("bm25[]", "expected an option", 5),
    ],
)
def test_an_error_says_what_was_expected_and_where(text: str, why: str, place: int) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)

    message = str(caught.value)
    assert why in message
    assert f"\n  {text}\n  {' ' * place}^" in message


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("bm25@" + "9" * 5000, "a depth, a whole number from 1 to 999999999"),
        ("(" * 20_000 + "bm25" + ")" * 20_000, "at most 100 nested parentheses"),
        ("bm25[k1=" + "9" * 5000 + "] +", "expected the name of a system"),
        ("x" * 10_000 + "?", "expected '|', '+' or the end"),
    ],
)
def test_a_text_of_any_size_gets_a_short_answer(text: str, why: str) -> None:
    with pytest.raises(UsageError) as problem:
        parse(text)

    assert why in str(problem.value)
    assert len(str(problem.value)) < 500
