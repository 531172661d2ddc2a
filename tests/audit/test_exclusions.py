from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.audit.exclusions import exclusions, read_exclusions, source_of, write_exclusions
from r2med.audit.fingerprints import GUARANTEE, fingerprints, text_hash
from r2med.errors import DataError, UsageError
from r2med.tasks.load import load_task
from tests.cli.running import run
from tests.nano.making import task_of

words = st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=5), max_size=20)


@given(words, words, words, words, st.lists(st.sampled_from("pqrstuvwxyz"), min_size=GUARANTEE))
def test_a_shared_run_of_words_always_shares_a_fingerprint(
    a: list[str], b: list[str], c: list[str], d: list[str], shared: list[str]
) -> None:
    first, second = " ".join([*a, *shared, *b]), " ".join([*c, *shared, *d])

    assert set(fingerprints(first)) & set(fingerprints(second))


@given(st.text())
def test_form_alone_does_not_change_hash_or_fingerprints(text: str) -> None:
    spaced = f"  {text}  \n"

    assert text_hash(spaced) == text_hash(text)
    assert fingerprints(spaced) == fingerprints(text)


def test_case_punctuation_and_width_do_not_matter_but_words_do() -> None:
    assert text_hash("Acute, LEFT-sided pain!") == text_hash("acute left sided  pain")
    assert text_hash("ﬁne") == text_hash("fine")
    assert text_hash("acute pain") != text_hash("chronic pain")


def test_queries_positives_and_passages_of_the_same_source_are_named() -> None:
    task = task_of(
        [
            ("PMC1_0", "one"),
            ("PMC1_1", "two"),
            ("PMC2_0", "three"),
            ("X", "One!"),
            ("PMC12_0", "four"),
        ],
        {"q": "question"},
        {"q": {"PMC1_0": 1, "PMC2_0": 0}},
    )

    found = {(one.kind, one.id) for one in exclusions(task)}

    assert found == {
        ("query", "q"),
        ("positive", "PMC1_0"),
        ("same-source", "PMC1_1"),
        ("same-source", "X"),
    }


@pytest.mark.parametrize(
    ("document", "source"),
    [("PMC12_3", "PMC12"), ("Enzyme-2.txt", "Enzyme"), ("a/b#7", "a/b"), ("plain", None)],
)
def test_the_source_of_an_id_is_what_stands_before_the_passage(
    document: str, source: str | None
) -> None:
    assert source_of(document) == source


def test_numbered_ids_of_a_whole_corpus_say_nothing_of_a_source() -> None:
    kinds = [one.kind for one in exclusions(load_task("demo/biology"))]

    assert "same-source" not in kinds


def test_the_file_holds_no_text_and_reads_back(tmp_path: Path) -> None:
    task = load_task("demo/biology")

    for name in ("out.jsonl", "out.jsonl.gz"):
        counts = write_exclusions([task], tmp_path / name)
        assert read_exclusions(tmp_path / name) == list(exclusions(task))
        assert counts["query"] == 13
    content = (tmp_path / "out.jsonl").read_text()
    assert task.query("1")[:30] not in content
    assert json.loads(content.splitlines()[0])["tasks"] == {"demo/biology": task.hash}


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_exclusions([load_task("demo/biology")], tmp_path / name)

    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_file_there_is_stays_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")

    with pytest.raises(UsageError, match="exists, and it was not touched"):
        write_exclusions([load_task("demo/biology")], tmp_path / "mine")

    assert (tmp_path / "mine").read_text() == "keep"


def test_another_file_is_not_read_as_exclusions(tmp_path: Path) -> None:
    (tmp_path / "other").write_text('{"id": 1}\n')

    with pytest.raises(DataError, match="line 1: not a list of exclusions"):
        read_exclusions(tmp_path / "other")


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    outcome = run("tasks", "exclusions", "demo", "--out", str(tmp_path / "out.jsonl"))

    assert outcome.code == 0
    assert "104 queries" in outcome.out
