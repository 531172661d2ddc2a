from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError
from r2med.expand.prompting import KINDS, TaskKind, kind_of, read_prompt, trimmed, write_prompts
from r2med.tasks.registry import all_entries, find_task

METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_method_has_a_prompt_for_every_kind_of_task(method: str, kind: TaskKind) -> None:
    prompt = read_prompt(method, kind)

    asked = prompt.first(kind="Biology post", query="WHY {kind}?", passages="P", turns="3")

    assert "WHY {kind}?" in asked
    assert "Biology post" in asked
    assert "{query}" not in asked and "{examples}" not in asked


@pytest.mark.parametrize("kind", KINDS)
def test_query2doc_shows_three_examples_in_the_shape_of_its_request(kind: TaskKind) -> None:
    prompt = read_prompt("query2doc", kind)

    asked = prompt.first(kind="Clinical Case", query="Q")

    assert len(prompt.examples) == 3
    assert asked.count("Clinical Case:\n") == 4
    assert all(passage in asked for _, passage in prompt.examples)


@pytest.mark.parametrize("kind", KINDS)
def test_lamer_says_that_what_was_found_is_mostly_wrong(kind: TaskKind) -> None:
    prompt = read_prompt("lamer", kind)
    passages = prompt.passages(["one two three", "four"], words=2)

    asked = prompt.first(kind="case", query="Q", passages=passages)

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
def test_a_task_gets_the_prompts_of_its_kind(name: str, kind: TaskKind) -> None:
    assert kind_of(find_task(name)) == kind


def test_every_registered_task_has_a_kind_and_others_are_questions() -> None:
    assert {kind_of(entry) for entry in all_entries()} == set(KINDS) - {"question"}
    assert kind_of(None) == "question"


def test_prompts_written_out_read_back_equal_and_can_be_replaced_one_by_one(tmp_path: Path) -> None:
    write_prompts("hyde", tmp_path)
    before = read_prompt("hyde", "exam", tmp_path)
    (tmp_path / "hyde" / "exam.toml").write_text('user = "Think: {query}"')

    after = read_prompt("hyde", "exam", tmp_path)

    assert before.hash == read_prompt("hyde", "exam").hash
    assert after.first(kind="k", query="Q") == "Think: Q"
    assert after.hash != before.hash


def test_writing_out_leaves_what_is_there(tmp_path: Path) -> None:
    write_prompts("hyde", tmp_path)
    (tmp_path / "hyde" / "exam.toml").write_text('user = "mine {query}"')

    assert write_prompts("hyde", tmp_path) == []
    assert read_prompt("hyde", "exam", tmp_path).first(kind="", query="Q") == "mine Q"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("user = 'no place'", "has no place for {query}"),
        ("user = '{query} {passage}'", "has a place {passage} that is never filled"),
        ("user = '{query}'\nsystm = 'x'", "'systm' is not known"),
        ("user = 3", "'user' is a int, expected a string"),
        ("user = '{query}", "this is not TOML"),
        ("user = '{query} {examples}'", "one is missing"),
        ("user = '{query} {examples}'\n[[examples]]\nquery = 'a'", "example 1 needs"),
    ],
)
def test_a_broken_prompt_file_is_named_with_what_is_wrong(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "hyde" / "exam.toml"
    file.parent.mkdir()
    file.write_text(text)

    with pytest.raises(DataError) as caught:
        read_prompt("hyde", "exam", tmp_path)

    assert str(file) in str(caught.value)
    assert complaint in str(caught.value)


def test_a_folder_without_prompts_of_the_method_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"holds no prompt for hyde.*hyde/exam\.toml"):
        read_prompt("hyde", "exam", tmp_path)


@given(st.lists(st.text("ab", min_size=1), max_size=12), st.integers(1, 10))
def test_trimming_keeps_the_first_words(words: list[str], limit: int) -> None:
    kept = trimmed("  ".join(words), limit)

    assert kept.removesuffix(" ...").split() == words[:limit]
    assert kept.endswith(" ...") == (len(words) > limit)
