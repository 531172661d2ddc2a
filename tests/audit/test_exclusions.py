from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.audit.evaluation import (
    GUARANTEE,
    evaluation,
    exclusions,
    fingerprints,
    text_hash,
    write_exclusions,
)
from r2med.errors import UsageError
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_suite
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

    found = {(one["kind"], one["id"]) for one in exclusions(task)}

    assert found == {
        ("query", "q"),
        ("positive", "PMC1_0"),
        ("same-source", "PMC1_1"),
        ("same-source", "X"),
    }


def test_every_text_of_an_id_that_repeats_is_named_and_looked_for() -> None:
    task = task_of(
        [("a", "first row"), ("a", "second row"), ("a", "first row"), ("b", "Second row.")],
        {"q": "question"},
        {"q": {"a": 1}},
    )

    named = [(one["kind"], one["id"], one["sha256"]) for one in exclusions(task)]

    first, second = text_hash("first row"), text_hash("second row")
    assert named[1:] == [
        ("positive", "a", first),
        ("positive", "a", second),
        ("same-source", "b", second),
    ]
    wanted = evaluation([task])
    assert {first, second} < wanted.entries.keys()
    assert wanted.audited[task.name, "positive"] == 1


def test_numbered_ids_of_a_whole_corpus_say_nothing_of_a_source() -> None:
    kinds = [one["kind"] for one in exclusions(load_task("demo/biology"))]

    assert "same-source" not in kinds


def test_the_file_names_every_text_and_holds_none(tmp_path: Path) -> None:
    task = load_task("demo/biology")

    counts = write_exclusions([task], tmp_path / "out.jsonl")
    write_exclusions([task], tmp_path / "out.jsonl.gz")

    content = (tmp_path / "out.jsonl").read_text()
    header, *rows = map(json.loads, content.splitlines())
    assert header["tasks"] == {"demo/biology": task.hash}
    assert [row["id"] for row in rows] == [excluded["id"] for excluded in exclusions(task)]
    assert counts["query"] == len(task.queries)
    assert task.query("1")[:30] not in content
    assert gzip.decompress((tmp_path / "out.jsonl.gz").read_bytes()).decode() == content


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write_exclusions([load_task("demo/biology")], tmp_path / name)

    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_file_there_is_stays_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep")

    with pytest.raises(UsageError, match="is not empty; nothing was changed"):
        write_exclusions([load_task("demo/biology")], tmp_path / "mine")

    assert (tmp_path / "mine").read_text() == "keep"


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    queries = sum(len(load_task(entry.name).queries) for entry in find_suite("demo").entries)

    outcome = run("tasks", "exclusions", "demo", "--out", str(tmp_path / "out.jsonl"))

    assert outcome.code == 0
    assert f"{queries} queries" in outcome.out
