"""The layouts: told apart by their files, and equal in what is read from them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.errors import MissingError, UsageError
from r2med.tasks.load import load_task
from r2med.tasks.registry import resolve
from r2med.tasks.task import Task
from tests.tasks.writing import (
    LAYOUTS,
    Written,
    write_beir,
    write_bytes,
    write_lines,
    write_nano,
    write_parquet,
    write_r2med,
)

_IDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)
_TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)


@st.composite
def collections(draw: st.DrawFn) -> Written:
    """Any documents, repeated ids included, with at least one judgement for every query."""
    documents = draw(st.lists(st.tuples(_IDS, _TEXTS), min_size=1, max_size=12))
    queries = draw(
        st.lists(st.tuples(_IDS, _TEXTS), min_size=1, max_size=6, unique_by=lambda q: q[0])
    )
    known = st.sampled_from([document for document, _ in documents])
    judgements = [
        (query, document, draw(st.integers(0, 3)))
        for query, _ in queries
        for document in draw(st.lists(known, min_size=1, max_size=4, unique=True))
    ]
    return Written(tuple(documents), tuple(queries), tuple(judgements))


def contents(task: Task) -> Written:
    judged = task.judgements
    return Written(
        tuple(zip(task.corpus.ids.to_pylist(), task.corpus.texts.to_pylist(), strict=True)),
        tuple(zip(task.queries.ids.to_pylist(), task.queries.texts.to_pylist(), strict=True)),
        tuple(
            zip(
                judged.query_ids.to_pylist(),
                judged.document_ids.to_pylist(),
                judged.scores.tolist(),
                strict=True,
            )
        ),
    )


@pytest.mark.parametrize("layout", LAYOUTS)
@settings(deadline=None, max_examples=60)
@given(written=collections())
def test_any_collection_reads_back_equal_from_every_layout(layout: str, written: Written) -> None:
    with tempfile.TemporaryDirectory() as root:
        reference = load_task(write_r2med(Path(root, "reference"), written))

        task = load_task(LAYOUTS[layout](Path(root, layout), written))

        assert contents(task) == written
        assert task.hash == reference.hash


@pytest.mark.parametrize("layout", LAYOUTS)
def test_judgements_may_be_negative(tmp_path: Path, layout: str) -> None:
    judged = Written(judgements=(("1", "d1", 1), ("1", "d2", -2), ("2", "d2", 0)))

    assert contents(load_task(LAYOUTS[layout](tmp_path, judged))).judgements == judged.judgements


@pytest.mark.parametrize("qrels", ["qrels.jsonl", "qrels.jsonl.gz", "qrels.txt", "qrels.tsv.gz"])
def test_the_judgement_file_has_any_of_its_names(tmp_path: Path, qrels: str) -> None:
    write_r2med(tmp_path)
    (tmp_path / "qrels.jsonl").unlink()
    write_lines(tmp_path / qrels, [{"q_id": "1", "p_id": "d2", "score": 1}])

    task = load_task(tmp_path)

    assert contents(task).judgements == (("1", "d2", 1),)


def test_gzip_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    write_r2med(tmp_path, suffix=".gz")
    (tmp_path / "corpus.jsonl.gz").rename(tmp_path / "corpus.jsonl")

    assert contents(load_task(tmp_path)) == Written()


def test_several_gzip_members_are_one_file(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    first = write_lines(tmp_path / "a.gz", [{"id": "d1", "text": "one"}]).read_bytes()
    second = write_lines(tmp_path / "b.gz", [{"id": "d2", "text": "two"}]).read_bytes()
    (tmp_path / "corpus.jsonl").write_bytes(first + second + b"\0\0")

    assert contents(load_task(tmp_path)).documents == (("d1", "one"), ("d2", "two"))


def test_byte_order_mark_blank_lines_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    for file in list(tmp_path.iterdir()):
        content = file.read_bytes().replace(b"\n", b"\r\n\r\n  \r\n")
        file.write_bytes(b"\xef\xbb\xbf" + content)

    assert contents(load_task(tmp_path)) == Written()


def test_annotations_are_null_where_absent_or_empty_and_other_fields_are_ignored(
    tmp_path: Path,
) -> None:
    write_r2med(tmp_path)
    first = {"id": "1", "text": "a", "answer": "lupus", "body_system": "", "doc_id": ["d1"]}
    write_lines(tmp_path / "query.jsonl", [first, {"id": "2", "text": "b", "answer": ["x", 1]}])

    queries = load_task(tmp_path).queries

    assert queries.answers.to_pylist() == ["lupus", '["x", 1]']
    assert queries.body_systems.to_pylist() == [None, None]
    assert queries.reasonings.to_pylist() == [None, None]


def test_integer_ids_become_decimal_strings_and_meet_string_ids(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    write_lines(tmp_path / "query.jsonl", [{"id": 1, "text": "a"}, {"id": "2", "text": "b"}])
    write_lines(tmp_path / "qrels.jsonl", [{"q_id": 1, "p_id": "d1"}, {"q_id": 2, "p_id": "d2"}])

    task = load_task(tmp_path)

    assert contents(task).queries == (("1", "a"), ("2", "b"))
    assert contents(task).judgements == (("1", "d1", 1), ("2", "d2", 1))


def test_a_beir_title_stands_before_the_text(tmp_path: Path) -> None:
    write_beir(tmp_path)
    rows = [
        {"_id": "d1", "title": "Title", "text": "text"},
        {"_id": "d2", "title": "", "text": "text"},
        {"_id": "d3", "text": "text"},
        {"_id": "d4", "title": "Title", "text": ""},
    ]
    write_lines(tmp_path / "corpus.jsonl", rows)

    assert load_task(tmp_path).corpus.texts.to_pylist() == ["Title text", "text", "text", "Title"]


def test_a_beir_split_takes_only_the_queries_it_judges(tmp_path: Path) -> None:
    write_beir(tmp_path)
    write_lines(tmp_path / "qrels" / "dev.tsv", ["query-id\tcorpus-id\tscore", "1\td2\t1"])

    dev = load_task(f"{tmp_path}#dev")

    assert dev.split == "dev"
    assert contents(dev).queries == (("1", "first"),)
    assert dev.notices == ("1 query without judgements in this split, left out of the task.",)
    assert len(load_task(tmp_path).queries) == 2


def test_parquet_shards_are_read_in_order(tmp_path: Path) -> None:
    write_nano(tmp_path)
    (tmp_path / "corpus" / "NanoTask-00000-of-00001.parquet").unlink()
    write_parquet(tmp_path / "corpus/NanoTask-00001-of-00002.parquet", _id=["d3"], text=["three"])
    write_parquet(
        tmp_path / "corpus/NanoTask-00000-of-00002.parquet", _id=["d1", "d2"], text=["one", "two"]
    )

    assert contents(load_task(tmp_path)) == Written()


def test_parquet_judgements_without_scores_are_positive(tmp_path: Path) -> None:
    write_nano(tmp_path)
    shard = tmp_path / "qrels" / "NanoTask-00000-of-00001.parquet"
    write_parquet(shard, query__id=["1", "2"], corpus__id=["d1", "d2"])

    assert load_task(tmp_path).judgements.scores.tolist() == [1, 1]


def test_of_several_splits_one_must_be_chosen(tmp_path: Path) -> None:
    write_nano(tmp_path, split="NanoOne")
    write_nano(tmp_path, Written(documents=(("x", "only"),)), split="NanoTwo")

    with pytest.raises(UsageError, match=r"2 tasks as splits.*#SPLIT(.|\n)*NanoOne, NanoTwo"):
        load_task(tmp_path)
    with pytest.raises(UsageError, match=r"no split 'NanoTow'\. Did you mean .*'NanoTwo'"):
        load_task(f"{tmp_path}#NanoTow")

    assert contents(load_task(f"{tmp_path}#NanoTwo")).documents == (("x", "only"),)
    assert load_task(f"{tmp_path}#NanoTwo").split == "NanoTwo"


def test_a_folder_with_a_number_sign_in_its_name_is_a_folder(tmp_path: Path) -> None:
    folder = write_r2med(tmp_path / "notes#2")

    assert load_task(str(folder)).name == "notes#2"


def test_a_split_of_a_layout_without_splits_is_refused(tmp_path: Path) -> None:
    write_r2med(tmp_path)

    with pytest.raises(UsageError, match="has no splits, so #test cannot be chosen"):
        load_task(f"{tmp_path}#test")


def test_an_unknown_layout_lists_what_was_looked_for(tmp_path: Path) -> None:
    write_bytes(tmp_path / "notes.txt", b"hello")

    with pytest.raises(MissingError) as caught:
        load_task(tmp_path)

    assert f"{tmp_path} does not contain a task: its files are not in a known layout" in str(
        caught.value
    )
    for name in ("corpus.jsonl", "query.jsonl", "qrels.jsonl", "qrels/test.tsv", "<split>.parquet"):
        assert name in str(caught.value)


def test_an_incomplete_layout_names_what_is_missing(tmp_path: Path) -> None:
    write_r2med(tmp_path)
    (tmp_path / "qrels.jsonl").unlink()

    with pytest.raises(MissingError, match=r"does not contain a task: there is no qrels\.jsonl"):
        load_task(tmp_path)


def test_a_file_is_not_a_task(tmp_path: Path) -> None:
    file = write_bytes(tmp_path / "task.zip", b"")

    with pytest.raises(UsageError, match=r"task\.zip is a file, expected a folder(.|\n)*--from"):
        load_task(file)


def test_a_table_is_not_a_task_but_can_become_one(tmp_path: Path) -> None:
    file = write_bytes(tmp_path / "docs.csv", b"id,text\n")

    for read in (load_task, resolve):
        with pytest.raises(UsageError, match=r"docs\.csv is a file(.|\n)*`r2med tasks import`"):
            read(str(file))
