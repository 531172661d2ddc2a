"""Loading: names, folders and roots, and the notices a reader of the scores needs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import DataError, MissingError, UsageError
from r2med.tasks.fetch.provenance import data_folder
from r2med.tasks.load import load_task, load_tasks, task_names
from r2med.tasks.reading.collection import count_repeated
from r2med.tasks.registry import find_task
from tests.tasks.writing import Written, write_beir, write_lines, write_nano, write_r2med


def test_a_folder_is_a_task_of_its_own_name(tmp_path: Path) -> None:
    folder = write_r2med(tmp_path / "mine")

    task = load_task(str(folder))

    assert (task.name, task.suite, task.entry, task.source) == ("mine", None, None, folder)
    assert task.notices == ()


def test_a_split_is_part_of_a_tasks_name(tmp_path: Path) -> None:
    folder = write_beir(tmp_path / "beir")

    assert load_task(folder).name == "beir"
    assert load_task(f"{folder}#test").name == "beir#test"
    assert load_task(folder, name="mine").name == "mine"


@pytest.mark.parametrize("name", ["", "..", "../x", "/x", "a/../b", "a//b", "a\\\\b", "a\0"])
def test_a_name_that_leads_out_of_a_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="a task's name is"):
        load_task(write_r2med(tmp_path), name=name)


def test_tasks_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    folders = [write_r2med(tmp_path / place) for place in ("a/x/data", "b/x/data", "b/y/data")]
    own = [*folders, write_beir(tmp_path / "beir"), write_beir(tmp_path / "other/beir")]
    chosen = [*own[:3], *(f"{folder}#test" for folder in own[3:]), "demo/biology"]

    names = [task.name for task in load_tasks(",".join(map(str, chosen)))]

    assert names[:3] == ["data", "x/data", "y/data"]
    assert names[3:] == ["beir#test", "other/beir#test", "demo/biology"]


def test_two_different_tasks_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    task = load_task(write_r2med(tmp_path))
    part = replace(task, queries=replace(task.queries, ids=pa.array(["8", "9"], pa.large_string())))

    assert task_names([task, task]) == [task.name, task.name]
    with pytest.raises(UsageError, match="name=") as caught:
        task_names([task, part])
    assert task.name in str(caught.value)


def test_a_relative_folder_is_found_without_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_r2med(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)

    assert load_task("mine").name == "mine"


def test_a_registered_name_wins_over_a_folder_and_a_path_is_always_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_r2med(tmp_path / "Biology")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(MissingError, match="data of Biology has not been downloaded"):
        load_task("Biology")

    assert load_task("./Biology").entry is None
    assert load_task(Path("Biology")).entry is None


def test_fetched_data_is_loaded_by_name(tmp_path: Path) -> None:
    write_r2med(data_folder(find_task("MedQA-Diag")))

    task = load_task("medqa-diag")

    assert (task.name, task.suite) == ("MedQA-Diag", "full")
    assert task.entry == find_task("MedQA-Diag")


def test_a_nano_task_is_its_split_of_the_shared_folder() -> None:
    entry = find_task("NanoR2MEDBiology")
    write_nano(data_folder(entry), split="NanoR2MEDBiology")
    write_nano(data_folder(entry), split="NanoR2MEDBioinformatics")

    task = load_task("NanoR2MEDBiology")

    assert (task.name, task.suite) == ("NanoR2MEDBiology", "nano")


@pytest.mark.parametrize("name", ["Biology", "NanoR2MEDBiology"])
def test_data_that_is_not_here_says_how_to_get_it(name: str) -> None:
    with pytest.raises(MissingError) as caught:
        load_task(name)

    assert f"r2med fetch {name}" in str(caught.value)
    assert "--data-root DIR" in str(caught.value)


def test_a_mistyped_name_gets_the_nearest_ones() -> None:
    with pytest.raises(UsageError, match="Did you mean 'Biology'"):
        load_task("Biolgy")


def test_an_empty_name_is_no_folder() -> None:
    with pytest.raises(UsageError, match="Unknown task ''"):
        load_task("")


def test_a_folder_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="data/none does not exist, expected a folder"):
        load_task("data/none")


def test_a_root_gives_data_to_a_registered_task(tmp_path: Path) -> None:
    write_r2med(tmp_path / "MedQA-Diag")

    task = load_task("MedQA-Diag", root=tmp_path)

    assert task.entry == find_task("MedQA-Diag")
    assert task.source == tmp_path / "MedQA-Diag"
    assert "differs from the manifest of MedQA-Diag: queries 2 instead of 118;" in task.notices[0]
    assert "documents 3 instead of 56,250" in task.notices[0]


@pytest.mark.parametrize("place", ["NanoR2MEDBiology", "NanoR2MED", "."])
def test_a_root_may_hold_the_nano_tasks_apart_or_together(tmp_path: Path, place: str) -> None:
    write_nano(tmp_path / place, split="NanoR2MEDBiology")

    assert load_task("NanoR2MEDBiology", root=tmp_path).suite == "nano"


def test_a_root_without_the_task_lists_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "Biology").mkdir()

    with pytest.raises(MissingError, match=r"has no folder MedQA-Diag(.|\n)*there: Biology\."):
        load_task("MedQA-Diag", root=tmp_path)
    with pytest.raises(MissingError, match=r"--data-root .*nowhere: the folder does not exist"):
        load_task("MedQA-Diag", root=tmp_path / "nowhere")


def test_a_root_does_not_concern_a_folder(tmp_path: Path) -> None:
    folder = write_r2med(tmp_path / "mine")

    assert load_task(folder, root=tmp_path / "nowhere").name == "mine"


def test_duplicate_documents_are_kept_and_told(tmp_path: Path) -> None:
    documents = (("d1", "one"), ("d2", "two"), ("d1", "two"), ("d3", ""))
    write_r2med(tmp_path, Written(documents=documents))

    task = load_task(tmp_path)

    assert task.corpus.ids.to_pylist() == ["d1", "d2", "d1", "d3"]
    assert task.notices == (
        "2 document rows share 1 id: BM25 indexes every row, dense retrieval keeps the last one "
        "of an id.",
        "1 of 4 documents repeat the text of an earlier one.",
        "1 document without text.",
    )


@settings(deadline=None)
@given(st.lists(st.text("aé", max_size=3) | st.text("ab", min_size=40, max_size=40), min_size=1))
def test_texts_repeat_when_they_are_equal_letter_by_letter(many: list[str]) -> None:
    column = pa.array(["before", *many], pa.large_string())[1:]

    assert count_repeated(column) == len(many) - len(set(many))


def test_queries_without_judgements_are_kept_and_counted(tmp_path: Path) -> None:
    write_r2med(tmp_path, Written(judgements=(("1", "d1", 1),)))

    task = load_task(tmp_path)

    assert len(task.queries) == 2
    assert task.notices == ("1 query without judgements, left out of all means.",)


def test_unknown_documents_stay_judged_and_unknown_queries_are_dropped(tmp_path: Path) -> None:
    judgements = (("1", "d1", 1), ("1", "gone", 1), ("9", "d1", 1), ("2", "d2", 1))
    write_r2med(tmp_path, Written(judgements=judgements))
    qrels = tmp_path / "qrels.jsonl"

    task = load_task(tmp_path)

    assert task.judgements.query_ids.to_pylist() == ["1", "1", "2"]
    assert task.judgements.document_ids.to_pylist() == ["d1", "gone", "d2"]
    assert task.notices == (
        f'1 judgement with an unknown query id, dropped; the first is {qrels}, line 3: query "9".',
        "1 judgement with an unknown document id, kept: trec_eval counts such documents too, "
        f'though none can be found; the first is {qrels}, line 2: document "gone".',
    )


@pytest.mark.parametrize(
    ("stray", "expected"),
    [(("9", "d1", 1), 'line 2: query "9"'), (("1", "gone", 1), 'line 2: document "gone"')],
)
def test_strict_fails_on_unknown_ids(
    tmp_path: Path, stray: tuple[str, str, int], expected: str
) -> None:
    write_r2med(tmp_path, Written(judgements=(("1", "d1", 1), stray, ("2", "d1", 1))))

    with pytest.raises(DataError, match=f"1 judgement with an unknown .*{expected}"):
        load_task(tmp_path, strict=True)


def test_a_judgement_given_twice_counts_once(tmp_path: Path) -> None:
    rows = (("1", "d1", 1), ("2", "d2", 1), ("1", "d1", 1))
    write_r2med(tmp_path, Written(judgements=rows))

    task = load_task(tmp_path)

    assert task.judgements.query_ids.to_pylist() == ["1", "2"]
    assert task.notices == ("1 judgement given more than once with the same score, counted once.",)


def test_repeated_texts_are_told(tmp_path: Path) -> None:
    folder = write_r2med(tmp_path / "mine")
    write_lines(folder / "corpus.jsonl", [{"id": f"d{i}", "text": "same"} for i in (1, 2, 3)])

    notice = "2 of 3 documents repeat the text of an earlier one."
    assert load_task(folder).notices == (notice,)
