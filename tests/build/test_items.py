"""Items: reading every format, bad rows, and each reason for a drop."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.build.answers import names_answer
from r2med.build.folder import BuildFolder, read_rows, write_rows
from r2med.build.items import ItemsOutcome, build_items, classify_by_rules, load_items
from r2med.build.prompting import read_object
from r2med.build.sources import InvalidRow, SourceItem, item_sources, read_items
from r2med.errors import DataError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from tests.build.making import CASES, make_folder, reply, resources_of
from tests.llm_server import LLMServer, running_llm_server


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with running_llm_server() as running:
        running.reply = reply
        yield running


def make_source(path: Path, name: str, form: str, columns: str = "") -> BuildFolder:
    """A folder whose only source is a file that exists already."""
    settings = (
        '[benchmark]\nname = "tiny"\n[items]\nmodel = "rules"\n'
        f'[[items.sources]]\npath = "{name}"\nformat = "{form}"\n{columns}'
    )
    (path / "build.toml").write_text(settings, encoding="utf-8")
    return BuildFolder(path)


def read_all(folder: BuildFolder) -> list[SourceItem | InvalidRow]:
    return [row for source in item_sources(folder) for row in read_items(source)]


def build_with(folder: BuildFolder, server: LLMServer, **options: bool) -> ItemsOutcome:
    with resources_of(server) as resources:
        return build_items(folder, resources, **options)


def test_a_list_of_options_is_removed_and_a_letter_becomes_its_option(tmp_path: Path) -> None:
    row = {
        "id": "Text-1",
        "question": "Which test is next?\nAnswer Choices: (A) MRI (B) Blood count",
        "label": "B",
        "options": {"A": "MRI", "B": "Blood count"},
    }
    write_rows(tmp_path / "exam.jsonl", [row])
    [item] = read_all(make_source(tmp_path, "exam.jsonl", "medxpertqa"))

    assert isinstance(item, SourceItem)
    assert (item.question, item.answer) == ("Which test is next?", "Blood count")


def test_a_post_loses_its_markup_and_keeps_its_links(tmp_path: Path) -> None:
    row = {
        "Id": 7,
        "Title": "Why do cells swell?",
        "Body": "<p>In &lt;water&gt; cells swell.</p>",
        "accepted_answer": 'Osmosis, see <a href="https://example.org/osmosis">here</a>.',
    }
    write_rows(tmp_path / "posts.jsonl", [row])
    [item] = read_all(make_source(tmp_path, "posts.jsonl", "stackexchange"))

    assert isinstance(item, SourceItem)
    assert item.id == "7"
    assert item.question == "Why do cells swell?\nIn <water> cells swell."
    assert item.references == ("https://example.org/osmosis",)


POSTS = """<?xml version="1.0" encoding="utf-8"?>
<posts>
  <row Id="1" PostTypeId="1" AcceptedAnswerId="3" Title="Why do cells swell?" Body="&lt;p&gt;In \
&lt;b&gt;water&lt;/b&gt;&#xA;they do.&lt;/p&gt;" />
  <row Id="2" PostTypeId="2" ParentId="1" Body="&lt;p&gt;No idea.&lt;/p&gt;" />
  <row Id="3" PostTypeId="2" ParentId="1" Body="&lt;p&gt;Osmosis, see &lt;a href=&quot;\
https://example.org/osmosis&quot;&gt;here&lt;/a&gt;.&lt;/p&gt;" />
  <row Id="4" PostTypeId="1" Title="Open" Body="&lt;p&gt;Nobody knows.&lt;/p&gt;" />
  <row Id="5" PostTypeId="1" AcceptedAnswerId="99" Title="Lost" Body="Deleted answer" />
</posts>
"""


def test_a_dump_of_posts_gives_questions_with_their_accepted_answers(tmp_path: Path) -> None:
    (tmp_path / "Posts.xml").write_text(POSTS, encoding="utf-8")
    item, *invalid = read_all(make_source(tmp_path, "Posts.xml", "stackexchange"))

    assert isinstance(item, SourceItem)
    assert (item.id, item.line) == ("1", 3)
    assert item.question.split() == ["Why", "do", "cells", "swell?", "In", "water", "they", "do."]
    assert item.answer.split() == ["Osmosis,", "see", "here", "."]
    assert item.references == ("https://example.org/osmosis",)
    assert [str(row) for row in invalid] == [
        "Posts.xml, line 6: the answer is missing or empty.",
        "Posts.xml, line 7: the answer is missing or empty.",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<posts>\n<row Id="1" Body="cut', "line 2: not a <row /> of XML"),
        ('<posts>\n<row Id="1" Body="&undefined;" />', "line 2: not a <row /> of XML"),
        ("<posts></posts>", "has no <row />"),
    ],
)
def test_a_broken_dump_of_posts_is_named(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "Posts.xml").write_text(text, encoding="utf-8")

    with pytest.raises(DataError, match=problem):
        read_all(make_source(tmp_path, "Posts.xml", "stackexchange"))


def test_many_unusable_rows_are_counted_and_listed_in_the_file(tmp_path: Path) -> None:
    good = {"id": "good", "question": "Which disease causes red urine?", "answer": "Haematuria"}
    bad = [{"id": str(number), "question": "What?", "answer": ""} for number in range(14)]
    write_rows(tmp_path / "rows.jsonl", [good, *bad])
    folder = make_source(tmp_path, "rows.jsonl", "table")
    warnings: list[str] = []
    with Resources(RunOptions(), warn=warnings.append) as resources:
        build_items(folder, resources)

    assert len(warnings) == 11
    assert "4 more rows cannot be used" in warnings[-1]
    assert len(list(read_rows(folder.dropped_items_path))) == 14


def test_a_case_report_asks_for_its_diagnosis(tmp_path: Path) -> None:
    write_rows(tmp_path / "cases.jsonl", [{"case": "A man limps.", "diagnosis": "Coxarthrosis"}])
    [item] = read_all(make_source(tmp_path, "cases.jsonl", "cases"))

    assert isinstance(item, SourceItem)
    assert item.question == "A man limps.\nWhat is the most likely diagnosis?"
    assert item.id == "cases-1"


def test_a_table_is_read_by_named_columns(tmp_path: Path) -> None:
    with (tmp_path / "table.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [["nr", "frage", "antwort"], ["1", "What, in\ntwo lines?", "X"], ["2", "Y?", ""]]
        )
    columns = 'columns = { id = "nr", question = "frage", answer = "antwort" }'
    item, invalid = read_all(make_source(tmp_path, "table.csv", "table", columns))

    assert isinstance(item, SourceItem)
    assert item.question == "What, in\ntwo lines?"
    assert str(invalid) == "table.csv, line 4: the answer is missing or empty."


def test_a_column_that_is_missing_is_named(tmp_path: Path) -> None:
    write_rows(tmp_path / "table.jsonl", [{"question": "Q?", "answer": "A"}])
    folder = make_source(tmp_path, "table.jsonl", "table", 'columns = { answer = "anser" }')

    with pytest.raises(UsageError, match=r"no column 'anser' for answer\. Did you mean 'answer'"):
        read_all(folder)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"question": "Q?", "answer": "A"}\n{broken\n', "line 2: not JSON"),
        ("[1, 2]\n", "line 1: a JSON list, expected an object"),
    ],
)
def test_a_line_that_is_not_an_object_is_an_error(
    tmp_path: Path, content: str, problem: str
) -> None:
    (tmp_path / "exam.jsonl").write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match=problem):
        read_all(make_source(tmp_path, "exam.jsonl", "table"))


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ('path = "no.jsonl"', r"no\.jsonl does not exist"),
        ('path = "a.jsonl"\nformat = "medq"', "Did you mean 'medqa'"),
        ('path = "a.jsonl"\nlicense = "MIT"', "Did you mean 'licence'"),
    ],
)
def test_a_wrong_source_is_named(tmp_path: Path, settings: str, problem: str) -> None:
    (tmp_path / "a.jsonl").write_text("", encoding="utf-8")
    text = f'[benchmark]\nname = "t"\n[[items.sources]]\n{settings}\n'
    (tmp_path / "build.toml").write_text(text, encoding="utf-8")

    with pytest.raises((DataError, MissingError), match=problem):
        item_sources(BuildFolder(tmp_path))


def test_an_item_without_an_answer_is_reported_with_its_line_or_stops_a_strict_build(
    tmp_path: Path,
) -> None:
    rows = [
        {"id": "1", "question": "What is the diagnosis of a limp?", "answer": "Coxarthrosis"},
        {"id": "2", "question": "What is the diagnosis of a cough?", "answer": " "},
    ]
    write_rows(tmp_path / "exam.jsonl", rows)
    folder = make_source(tmp_path, "exam.jsonl", "table")
    warnings: list[str] = []
    outcome = build_items(folder, Resources(warn=warnings.append))

    assert warnings == ["exam.jsonl, line 2: the answer is missing or empty. It is left out."]
    assert outcome.record.drops == {"unusable row": 1}
    with pytest.raises(DataError, match=r"exam\.jsonl, line 2: the answer is missing"):
        build_items(folder, Resources(), strict=True)


def test_a_source_that_the_stage_would_overwrite_is_refused(tmp_path: Path) -> None:
    write_rows(tmp_path / "items.jsonl", [{"question": "Q?", "answer": "A"}])

    with pytest.raises(UsageError, match="rename the source"):
        read_all(make_source(tmp_path, "items.jsonl", "table"))


def test_the_same_id_twice_in_one_file_is_an_error(tmp_path: Path) -> None:
    row = {"id": "1", "question": "What is the diagnosis?", "answer": "A"}
    write_rows(tmp_path / "exam.jsonl", [row, row])

    with pytest.raises(DataError, match="lines 1 and 2: both have the id '1'"):
        build_items(make_source(tmp_path, "exam.jsonl", "table"), Resources())


def test_every_item_is_written_or_dropped_with_a_reason(tmp_path: Path, server: LLMServer) -> None:
    def mixed(body: Mapping[str, Any]) -> str:
        text = str(body["messages"][-1]["content"])
        if '"usable"' in text and "big toe" in text:
            return '{"type": "other", "usable": true}'
        if '"usable"' in text and "Legg" in text:
            return '{"type": "diagnosis", "usable": false, "reason": "needs a figure"}'
        if text.startswith("Text:") and "Prednisone" in text:
            return '{"query": "When is prednisone given?"}'
        return reply(body)

    server.reply = mixed
    outcome = build_with(make_folder(tmp_path), server)

    assert outcome.record.drops == {
        "cannot become a retrieval question": 1,
        "asks for another type (other)": 1,
        "query names its answer": 1,
    }
    assert len(outcome.items) + len(outcome.dropped) == len(CASES)
    dropped = [row for _, row in read_rows(tmp_path / "items-dropped.jsonl")]
    assert {row["detail"] for row in dropped} == {"needs a figure", "", "Prednisone"}


def test_items_that_small_models_answer_k_of_n_times_are_dropped(
    tmp_path: Path, server: LLMServer
) -> None:
    def solve(body: Mapping[str, Any]) -> str:
        text = str(body["messages"][-1]["content"])
        if "Answer with the name of the disease" not in text:
            return reply(body)
        if "basement membrane" in text:
            return '{"answer": "anti-GBM disease, that is Goodpasture syndrome"}'
        is_lucky = "drooping" in text and body["model"] == "small-a"
        return json.dumps({"answer": "myasthenia gravis" if is_lucky else "unknown"})

    server.reply = solve
    solvers = {"solvers": ["small-a", "small-b"], "drop_if_correct": 2}
    outcome = build_with(make_folder(tmp_path, items=solvers), server)

    assert [(item.id, item.detail) for item in outcome.dropped] == [("0", "2 of 2 correct")]


def test_a_filter_that_can_drop_nothing_is_refused(tmp_path: Path, server: LLMServer) -> None:
    folder = make_folder(tmp_path, items={"solvers": ["small"], "drop_if_correct": 3})

    with pytest.raises(UsageError, match="each item has 1"):
        build_with(folder, server)


def test_an_unreadable_answer_is_asked_for_once_more(tmp_path: Path, server: LLMServer) -> None:
    def stammer(body: Mapping[str, Any]) -> str:
        messages = body["messages"]
        if len(messages) == 2 and '"usable"' in str(messages[-1]["content"]):
            return "A diagnosis, I believe."
        if "I could not read that" in str(messages[-1]["content"]):
            return '{"type": "diagnosis", "usable": true}'
        return reply(body)

    server.reply = stammer
    outcome = build_with(make_folder(tmp_path), server)

    assert outcome.record.figures["types"] == {"diagnosis": len(CASES)}


def test_a_model_that_writes_nonsense_stops_the_stage_and_nothing_is_written(
    tmp_path: Path, server: LLMServer
) -> None:
    server.reply = lambda body: "no idea"
    folder = make_folder(tmp_path)

    with pytest.raises(DataError, match="prompt classify: 12 answers of 12 cannot be read"):
        build_with(folder, server)
    assert not folder.items_path.exists()
    assert folder.record("items") is None


def test_reasoning_of_the_source_is_kept(tmp_path: Path, server: LLMServer) -> None:
    folder = make_folder(tmp_path)
    rows = [row for _, row in read_rows(tmp_path / "medqa.jsonl")]
    rows[0]["explanation"] = "Antibodies bind collagen."
    write_rows(tmp_path / "medqa.jsonl", rows)
    outcome = build_with(folder, server)

    assert (outcome.items[0].reasoning, outcome.items[0].reasoning_by) == (
        "Antibodies bind collagen.",
        "source",
    )
    assert outcome.items[1].reasoning_by == "model writer"


def test_an_edited_file_is_not_overwritten_without_force(tmp_path: Path, server: LLMServer) -> None:
    folder = make_folder(tmp_path)
    build_with(folder, server)
    edited = folder.items_path.read_text("utf-8").replace("coughs", "spits")
    folder.items_path.write_text(edited, "utf-8")

    with pytest.raises(UsageError, match="was edited"):
        build_with(folder, server)
    assert "spits" in load_items(folder)[0].query
    build_with(folder, server, force=True)
    assert "coughs" in load_items(folder)[0].query


def test_a_row_that_an_editor_emptied_is_named(tmp_path: Path, server: LLMServer) -> None:
    folder = make_folder(tmp_path)
    build_with(folder, server)
    rows = [row for _, row in read_rows(folder.items_path)]
    rows[3]["answer"] = ""
    write_rows(folder.items_path, rows)

    with pytest.raises(DataError, match="line 4: 'answer' is missing or empty"):
        load_items(folder)


def test_a_prompt_in_the_folder_replaces_the_packaged_one(
    tmp_path: Path, server: LLMServer
) -> None:
    folder = make_folder(tmp_path)
    hashes = build_with(folder, server).record.prompts
    folder.prompts_folder.mkdir()
    custom = (
        'system = "S"\n'
        'user = "Neu: {question} {answer} {\\"type\\": 1, \\"usable\\": true}"\nretry = "Again"\n'
    )
    (folder.prompts_folder / "classify.toml").write_text(custom, encoding="utf-8")
    replaced = build_with(folder, server).record.prompts

    assert replaced["classify"] != hashes["classify"]
    assert replaced["rewrite"] == hashes["rewrite"]
    assert any(str(body["messages"][-1]["content"]).startswith("Neu: ") for body in server.bodies)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("A man coughs. Which is the most likely diagnosis?", ("diagnosis", True)),
        ("A man coughs. What is the best initial treatment?", ("treatment", True)),
        ("A man coughs. Which diagnostic test is most appropriate?", ("test", True)),
        ("Which mechanism explains the swelling?", ("mechanism", True)),
        ("The figure shows a rash. What is the diagnosis?", ("other", False)),
        ("How many angels dance?", ("mechanism", True)),
        ("Who is called first?", ("other", True)),
    ],
)
def test_rules_classify_by_the_last_sentence(question: str, expected: tuple[str, bool]) -> None:
    assert classify_by_rules(question) == expected


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("An ECG was normal", "Electrocardiogram (ECG)", True),
        ("as before", "AS", False),
        ("He has AS and gout", "AS", True),
        ("gallstones were seen", "Gallstone", True),
        ("sarcoma of bone", "Osteosarcoma", False),
        ("resistance to vasopressin", "Resistance of the kidney to vasopressin", False),
        ("Syndrome, Goodpasture's", "Goodpasture syndrome", False),
    ],
)
def test_an_answer_is_named_by_any_of_its_forms(text: str, answer: str, expected: bool) -> None:
    assert names_answer(text, answer) is expected


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=3), st.text(max_size=20))
def test_the_last_object_of_an_answer_is_read(values: dict[str, str], before: str) -> None:
    prose = before.replace("{", "(").replace("<", "(")

    assert read_object(f'{prose} {{"draft": 1}} then {json.dumps(values)}') == values


@given(st.text(max_size=80))
def test_no_answer_makes_the_reader_fail(text: str) -> None:
    assert read_object(text) is None or isinstance(read_object(text), dict)
