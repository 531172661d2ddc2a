from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError, UsageError
from r2med.expand.prompts import (
    PROMPT_TYPES,
    PromptType,
    choose_prompt_type,
    methods,
    read_prompt,
    truncate_words,
    write_prompts,
)
from r2med.tasks.registry import all_entries, find_task

METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", PROMPT_TYPES)
def test_every_method_has_a_prompt_for_every_kind_of_task(method: str, kind: PromptType) -> None:
    prompt = read_prompt(method, kind)

    asked = prompt.opening_request(
        query_type="Biology post", query="WHY {kind}?", passages="P", turns="3"
    )

    assert "WHY {kind}?" in asked
    assert "Biology post" in asked
    assert "{query}" not in asked and "{examples}" not in asked


@pytest.mark.parametrize("kind", PROMPT_TYPES)
def test_query2doc_shows_three_examples_in_the_shape_of_its_request(kind: PromptType) -> None:
    prompt = read_prompt("query2doc", kind)

    asked = prompt.opening_request(query_type="Clinical Case", query="Q")

    assert len(prompt.examples) == 3
    assert asked.count("Clinical Case:\n") == 4
    assert all(passage in asked for _, passage in prompt.examples)


@pytest.mark.parametrize("kind", PROMPT_TYPES)
def test_lamer_says_that_what_was_found_is_mostly_wrong(kind: PromptType) -> None:
    prompt = read_prompt("lamer", kind)
    passages = prompt.list_passages(["one two three", "four"], words=2)

    asked = prompt.opening_request(query_type="case", query="Q", passages=passages)

    assert "1. one two ...\n\n2. four" in asked
    assert "mostly wrong" in asked


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Biology", "post"),
        ("demo/bioinformatics", "post"),
        ("NanoR2MEDMedicalSciences", "post"),
        ("MedXpertQA-Exam", "exam"),
        ("MedQA-Diag", "exam"),
        ("PMC-Treatment", "treatment"),
        ("PMC-Clinical", "diagnosis"),
        ("demo/iiyi-clinical", "diagnosis"),
    ],
)
def test_a_task_gets_the_prompts_of_its_kind(name: str, kind: PromptType) -> None:
    assert choose_prompt_type(find_task(name)) == kind


def test_every_registered_task_has_a_kind_and_others_are_questions() -> None:
    assert {choose_prompt_type(entry) for entry in all_entries()} == set(PROMPT_TYPES) - {
        "question"
    }
    assert choose_prompt_type(None) == "question"


def test_prompts_written_out_read_back_equal_and_can_be_replaced_one_by_one(tmp_path: Path) -> None:
    write_prompts("hyde", tmp_path)
    before = read_prompt("hyde", "exam", tmp_path)
    (tmp_path / "hyde" / "exam.toml").write_text('user = "Think: {query}"')

    after = read_prompt("hyde", "exam", tmp_path)

    assert before.hash == read_prompt("hyde", "exam").hash
    assert after.opening_request(query_type="k", query="Q") == "Think: Q"
    assert after.hash != before.hash


def test_writing_out_leaves_what_is_there(tmp_path: Path) -> None:
    write_prompts("hyde", tmp_path)
    (tmp_path / "hyde" / "exam.toml").write_text('user = "mine {query}"')

    assert write_prompts("hyde", tmp_path) == []
    assert (
        read_prompt("hyde", "exam", tmp_path).opening_request(query_type="", query="Q") == "mine Q"
    )


def own_prompt(folder: Path, text: str, *, method: str = "hyde") -> Path:
    file = folder / method / "exam.toml"
    file.parent.mkdir()
    file.write_text(text)
    return file


ASKS = "user = '{query} {examples}'\nexample = '{query} {passage}'\n"


@pytest.mark.parametrize(
    ("method", "text", "complaint"),
    [
        (
            "hyde",
            "user = 'none'",
            "'user' has the placeholders none; hyde allows {kind}, {query} and requires {q",
        ),
        ("hyde", "user = '{query} {foo}'", "; hyde allows {kind}, {query} and"),
        ("hyde", "user = '{query} {Kind}'", "; hyde allows {kind}, {query} and"),
        ("hyde", "user = '{query} {turns}'", "; hyde allows {kind}, {query} and"),
        ("hyde", "user = '{query} {passages}'", "; hyde allows {kind}, {query} and"),
        ("hyde", "user = '{query}'\nsystm = 'x'", "expected the texts of hyde: user."),
        ("hyde", "user = '{query}'\n[[examples]]\n", "expected the texts of hyde: user."),
        ("hyde", "user = 3", "'user' is the number 3, expected a string"),
        ("hyde", "user = '{query}", "this is not TOML"),
        (
            "lamer",
            "user = '{query}'\npassage = '{passage}'",
            "'user' has the placeholders {query}; lamer allows {kind}, {passages}, {query} and",
        ),
        ("lamer", "user = '{query} {passages}'", "expected the texts of lamer: user, passage."),
        (
            "lamer",
            "user = '{query} {passages}'\npassage = 'x'",
            "placeholders none; lamer allows {number}, {passage} and requires {passage}.",
        ),
        (
            "query2doc",
            "user = '{query}'\nexample = 'x'\nexamples = []",
            "and requires {examples}, {query}",
        ),
        ("query2doc", ASKS, "expected the texts of query2doc: user, example, examples."),
        ("query2doc", ASKS + "examples = []", "expected tables [[examples]]"),
        ("query2doc", ASKS + "examples = 3", "expected tables [[examples]]"),
        ("query2doc", ASKS + "examples = ['a']", "expected tables [[examples]]"),
        ("query2doc", ASKS + "[[examples]]\nquery = 'a'", "each with a query and a passage"),
        ("search-o1", "user = '{query}'", "expected the texts of search-o1: user, results"),
    ],
)
def test_a_broken_prompt_file_is_named_with_what_is_wrong_for_its_method(
    tmp_path: Path, method: str, text: str, complaint: str
) -> None:
    file = own_prompt(tmp_path, text, method=method)

    with pytest.raises(DataError) as caught:
        read_prompt(method, "exam", tmp_path)

    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_what_only_helps_the_wording_may_be_left_out(tmp_path: Path, method: str) -> None:
    write_prompts(method, tmp_path)
    file = tmp_path / method / "exam.toml"
    text = file.read_text()
    for place in ("{kind}", "{number}", "{turns}"):
        text = text.replace(place, "")
    file.write_text(text)

    assert "Q" in read_prompt(method, "exam", tmp_path).opening_request(query_type="", query="Q")


def test_all_prompts_of_a_method_have_the_same_texts_and_places() -> None:
    for method in methods():
        for kind in PROMPT_TYPES:
            read = read_prompt(method, kind)
            assert read.texts.keys() == read_prompt(method, "question").texts.keys()


def test_the_methods_that_prompts_ship_for_are_the_registered_ones() -> None:
    assert set(methods()) == set(METHODS)


@pytest.mark.parametrize("wrong", ["qestion.toml", "Question.toml", "question.TOML"])
@pytest.mark.parametrize("kind", ["exam", "question"])
def test_a_misnamed_prompt_file_is_an_error(tmp_path: Path, kind: PromptType, wrong: str) -> None:
    own_prompt(tmp_path, "user = '{query}'")
    (tmp_path / "hyde" / wrong).write_text("user = '{query}'")

    with pytest.raises(DataError, match=rf"hyde/{wrong}: .*question"):
        read_prompt("hyde", kind, tmp_path)


def test_a_prompt_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = own_prompt(tmp_path, "")
    file.write_bytes(b"# ours\nuser = 'caf\xe9 {query}'\n")

    with pytest.raises(DataError, match=r"exam\.toml: this is not TOML in UTF-8: .* position 18"):
        read_prompt("hyde", "exam", tmp_path)


def test_a_prompt_file_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    own_prompt(tmp_path, "").write_text("user = 'é {query}'", encoding="utf-8-sig")

    assert read_prompt("hyde", "exam", tmp_path).opening_request(query_type="", query="Q") == "é Q"


def test_what_is_no_prompt_of_an_expander_may_lie_beside_them(tmp_path: Path) -> None:
    own_prompt(tmp_path, "user = 'mine {query}'")
    (tmp_path / "listwise.txt").write_text("{query} {passages}")
    (tmp_path / "hyde" / ".exam.toml").write_text("")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "why.md").write_text("")

    assert (
        read_prompt("hyde", "exam", tmp_path).opening_request(query_type="", query="Q") == "mine Q"
    )


def test_a_folder_without_prompts_of_the_method_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"has no prompt for hyde.*hyde/exam\.toml"):
        read_prompt("hyde", "exam", tmp_path)


def test_prompts_of_an_unknown_method_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"method 'hyd' is not known\. Did you mean 'hyde'"):
        write_prompts("hyd", tmp_path)

    assert not any(tmp_path.iterdir())


@given(st.lists(st.text("ab", min_size=1), max_size=12), st.integers(1, 10))
def test_trimming_keeps_the_first_words(words: list[str], limit: int) -> None:
    kept = truncate_words("  ".join(words), limit)

    assert kept.removesuffix(" ...").split() == words[:limit]
    assert kept.endswith(" ...") == (len(words) > limit)
