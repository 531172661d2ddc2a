from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from r2med.errors import DamagedError, DataError, MissingError
from r2med.expand.agents import Step, Trace
from r2med.expand.answers import ExpandedQuery, Sample
from r2med.expand.expander import Method
from r2med.expand.generations import (
    StoredGenerations,
    check_fit,
    find_generations,
    generations_path,
    read_generations,
    read_traces,
    write_generations,
)
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.registry import find_task
from r2med.tasks.task import Task
from tests.expand.conftest import QUERIES, write


def raws(file: Path, query_id: str) -> tuple[str, ...]:
    return tuple(sample.raw for sample in read_generations(file)[query_id].samples)


def look(task: Task, generations: str, llm: str = "gpt4") -> StoredGenerations | None:
    """The file of `hyde:gpt4[generations=...]`."""
    entry = entries()["hyde"].override({"llm": llm, "generations": generations})
    return find_generations(task, parse_settings(Method, entry.fields))


outcomes = st.sampled_from(["ok", "truncated", "empty", "refused"])
texts = st.text(st.characters(codec="utf-8"))
samples = st.lists(st.builds(Sample, texts, st.just(""), outcomes), min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(samples)
def test_what_is_written_is_read_back(tmp_path: Path, made: list[Sample]) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"

    write_generations([ExpandedQuery("7", "a query\nin two lines", tuple(made))], file)

    assert read_generations(file)["7"].samples == tuple(made)


def test_a_plain_row_is_the_reference_layout_and_a_checksum(tmp_path: Path) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"

    write_generations([ExpandedQuery("7", "Q", (Sample("G", "G"),))], file)

    row = json.loads(file.read_text())
    assert row.pop("checksum")
    assert row == {"id": "7", "text": "Q", "hy_doc": "G"}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_is_named_and_never_read_as_another_text(
    tmp_path: Path, data: st.DataObject
) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"
    made = [
        ExpandedQuery(str(n), "a query", (Sample("gout é", "", "truncated"),)) for n in range(3)
    ]
    write_generations(made, file)
    before, content = read_generations(file), bytearray(file.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(content)

    try:
        after = read_generations(file)
    except (DamagedError, DataError) as problem:
        assert f"{file}, line " in str(problem)
    else:
        assert after == before


def test_a_line_without_its_checksum_is_taken_as_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"
    write_generations([ExpandedQuery("7", "Q", (Sample("G", "G"),))], file)
    row = json.loads(file.read_text()) | {"hy_doc": "mine"}

    write(file, [row])
    with pytest.raises(DamagedError, match=r'(?s)line 1: the checksum.* delete "checksum"'):
        read_generations(file)
    del row["checksum"]
    write(file, [row])

    assert raws(file, "7") == ("mine",)


def test_half_a_character_in_a_text_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text('{"id": "1", "hy_doc": "gout \\ud83d"}\n')

    assert raws(file, "1") == ("gout ?",)


@pytest.mark.parametrize(
    "llm", ["../../x", "..", ".", "/etc/x", "a/../../b", "C:\\x", "org/model", "gpt4", "llama3:8b"]
)
def test_no_model_s_name_leads_out_of_the_folder(tmp_path: Path, llm: str) -> None:
    file = generations_path(tmp_path, "hyde", llm)

    assert file.parent.parent == tmp_path / "hyde"
    assert file.resolve().is_relative_to(tmp_path)


def test_two_models_never_share_a_file(tmp_path: Path) -> None:
    names = ["a/b", "a--b", "a%2Fb", "a", "A", "..", "%2E%2E", "."]

    assert len({generations_path(tmp_path, "hyde", name) for name in names}) == len(names)


def test_traces_lie_beside_the_generations(tmp_path: Path) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"
    trace = Trace((Step("search", "é"), Step("passages", "p", ("d1",))), "turns", 1, 12)

    write_generations([ExpandedQuery("7", "Q", (Sample("G", "G"),), (trace,))], file)

    assert read_traces(file) == {"7": (trace,)}


@pytest.mark.parametrize(("old", "new"), [('"p"', '"q"'), ('"checksum"', '"sum"'), ("12", "{}")])
def test_a_damaged_trace_is_named(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "query_with_hydoc.jsonl"
    trace = Trace((Step("passages", "p", ("d1",)),), "turns", 1, 12)
    write_generations([ExpandedQuery("7", "Q", (Sample("G", "G"),), (trace,))], file)
    beside = tmp_path / "traces.jsonl"
    beside.write_text(beside.read_text().replace(old, new))

    with pytest.raises(DamagedError, match=r"traces\.jsonl, line 1: the checksum is wrong"):
        read_traces(file)


FIELDS = 'expected an "id", a string "hy_doc" or a list of strings "hy_docs", and optionally'


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "1"}', FIELDS),
        ('{"id": "1", "hy_doc": null}', FIELDS),
        ('{"id": "1", "hy_doc": 3}', FIELDS),
        ('{"id": "1", "hy_doc": ["a"]}', FIELDS),
        ('{"hy_doc": "a"}', FIELDS),
        ('{"id": "", "hy_doc": "a"}', FIELDS),
        ('{"id": true, "hy_doc": "a"}', FIELDS),
        ('{"id": "1", "hy_docs": "a"}', FIELDS),
        ('{"id": "1", "hy_docs": ["a", null]}', FIELDS),
        ('{"id": "1", "hy_docs": []}', FIELDS),
        (
            '{"id": "1", "hy_doc": "b", "hy_docs": ["a"]}',
            '"hy_doc" differs from the first of "hy_docs"',
        ),
        ('{"id": "1", "hy_doc": "a", "finish": ["odd"]}', FIELDS),
        ('{"id": "1", "hy_doc": "a", "finish": [[]]}', FIELDS),
        ("[" * 100_000, "recursion depth"),
        ("[1]", "the line is a list, expected an object"),
        ('{"id": "1", ', "not valid JSON (Expecting property name"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text('{"id": "0", "hy_doc": "fine"}\n\n' + line + "\n")

    with pytest.raises(DataError) as caught:
        read_generations(file)

    assert f"{file}, line 3: " in str(caught.value)
    assert complaint in str(caught.value)
    assert "line 1" not in str(caught.value)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    file.write_bytes(b'{"id": "1", "hy_doc": "a"}\n{"id": "2", "hy_doc": "caf\xe9"}\n')

    with pytest.raises(DataError, match=r"g\.jsonl, line 2: byte \d+ .* is not UTF-8"):
        read_generations(file)


def test_a_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    file.write_text('{"id": "1", "hy_doc": "a"}\r\n', encoding="utf-8-sig", newline="")

    assert raws(file, "1") == ("a",)


@pytest.mark.parametrize("first", [{"hy_doc": "a"}, {"hy_doc": None}, {}])
def test_hy_docs_are_the_samples_and_hy_doc_repeats_the_first(
    tmp_path: Path, first: dict[str, object]
) -> None:
    file = tmp_path / "g.jsonl"
    write(file, [{"id": "1", **first, "hy_docs": ["a", "b"]}])

    assert raws(file, "1") == ("a", "b")


def test_a_file_that_is_not_there_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"g\.jsonl cannot be read: (?i:no such file)"):
        read_generations(tmp_path / "g.jsonl")


def test_a_query_may_not_occur_twice(tmp_path: Path) -> None:
    file = tmp_path / "g.jsonl"
    write(file, [{"id": 1, "hy_doc": "a"}, {"id": "1", "hy_doc": "b"}])

    with pytest.raises(DataError, match="line 2: query '1' already has a generation"):
        read_generations(file)


def rows_for(file: Path, *ids: str, **more: object) -> Path:
    write(file, [{"id": query_id, "hy_doc": "G", **more} for query_id in ids])
    return file


def test_lacking_queries_are_counted_in_an_error(task: Task, tmp_path: Path) -> None:
    file = rows_for(tmp_path / "g.jsonl", "2", "9")

    with pytest.raises(DataError) as caught:
        check_fit(read_generations(file), task, file)

    assert "2 of 3 queries of" in str(caught.value)
    assert "('1', '3')" in str(caught.value)


def test_a_file_whose_query_texts_differ_belongs_to_another_task(
    task: Task, tmp_path: Path
) -> None:
    file = rows_for(tmp_path / "g.jsonl", *QUERIES, text="something else")

    with pytest.raises(DataError, match="3 of 3 queries have another text than in"):
        check_fit(read_generations(file), task, file)


def test_the_file_in_the_task_s_folder_is_the_default_when_there_is_one(
    task: Task, folder: Path
) -> None:
    assert look(task, "auto") is None

    rows_for(generations_path(folder, "hyde", "gpt4"), *QUERIES)

    found = look(task, "auto")
    assert found is not None and found.by_default
    assert look(task, "live") is None
    published = look(task, "published")
    assert published is not None and not published.by_default


def test_published_generations_that_are_not_here_are_named(task: Task) -> None:
    with pytest.raises(MissingError, match=r"no generations of hyde by gpt4 for .* Tried:"):
        look(task, "published")


@pytest.mark.parametrize("start", ["", "hyde/gpt4", "hyde/gpt4/query_with_hydoc.jsonl"])
def test_a_path_may_be_a_file_or_any_folder_above_it(
    task: Task, tmp_path: Path, start: str
) -> None:
    file = rows_for(generations_path(tmp_path / "given", "hyde", "gpt4"), *QUERIES)

    found = look(task, str(tmp_path / "given" / start))

    assert found is not None and found.path == file


def test_a_path_that_is_not_there_or_holds_nothing_is_an_error(task: Task, tmp_path: Path) -> None:
    for path in (tmp_path / "nope", tmp_path):
        with pytest.raises(MissingError, match=rf"no generations of hyde .* Tried:\n  {path}"):
            look(task, str(path))


def test_more_samples_than_a_file_holds_are_refused(task: Task, tmp_path: Path) -> None:
    file = rows_for(tmp_path / "g.jsonl", *QUERIES)
    options = {"llm": "gpt4", "generations": str(file), "n": "2"}
    found = find_generations(
        task, parse_settings(Method, entries()["hyde"].override(options).fields)
    )

    assert found is not None
    with pytest.raises(DataError, match=r"query '1' has 1 generations, fewer than \[n=2\]"):
        found.expand()


def test_a_nano_task_reads_the_generations_of_its_full_task(task: Task) -> None:
    nano = replace(task, entry=find_task("NanoR2MEDBiology"))
    full = data_folder(find_task("Biology"))
    file = rows_for(generations_path(full, "hyde", "gpt4"), *QUERIES)

    found = look(nano, "published")

    assert found is not None and found.path == file


@pytest.mark.parametrize("name", ["..", ".", "a/..", "\0", "../outside"])
def test_the_name_of_a_task_leads_to_no_folder_outside(
    name: str, task: Task, tmp_path: Path
) -> None:
    inside = tmp_path / "root" / "generations"
    inside.mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "root", tmp_path / "outside"):
        path = generations_path(folder, "hyde", "m")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}\n")

    with pytest.raises(MissingError, match="no generations of hyde by m"):
        look(replace(task, name=name), str(inside), llm="m")
