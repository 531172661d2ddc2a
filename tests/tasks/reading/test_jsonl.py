"""The fast and the exact way of reading JSON lines give the same columns."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.tasks.reading import lines
from r2med.tasks.reading.fields import JUDGEMENT, QUERY
from r2med.tasks.reading.jsonl import read_jsonl, read_line_by_line

_WHOLE = st.characters(codec="utf-8")
_IDS = st.one_of(st.text(_WHOLE, min_size=1, max_size=5), st.integers(-(10**20), 10**20))
_ROWS = st.fixed_dictionaries(
    {"id": _IDS, "text": st.text(st.characters(), max_size=60)},
    optional={
        "answer": st.one_of(st.none(), st.text(max_size=5), st.lists(st.integers(), max_size=2)),
        "doc_id": st.lists(st.text(max_size=3), max_size=2),
    },
)


@settings(deadline=None)
@given(rows=st.lists(_ROWS, max_size=8), ascii_only=st.booleans())
def test_both_ways_agree_on_any_valid_file(rows: list[dict[str, object]], ascii_only: bool) -> None:
    with tempfile.TemporaryDirectory() as root:
        file = Path(root, "query.jsonl")
        lines = [json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows]
        file.write_bytes("".join(lines).encode("utf-8", "replace"))

        fast, exact = read_jsonl(file, QUERY), read_line_by_line(file, QUERY)

        assert {name: column.to_pylist() for name, column in fast.columns.items()} == {
            name: column.to_pylist() for name, column in exact.columns.items()
        }
        assert [str(fast.locate(row)) for row in range(len(fast))] == [
            f"{file}, line {row + 1}" for row in range(len(rows))
        ]


@pytest.mark.parametrize("score", ["1", "1.0", "1e0", "null"])
def test_a_whole_number_may_be_written_in_any_way(tmp_path: Path, score: str) -> None:
    file = tmp_path / "qrels.jsonl"
    file.write_text(f'{{"q_id": 7, "p_id": "a", "score": {score}}}\n', encoding="utf-8")

    rows = read_jsonl(file, JUDGEMENT)

    assert [column.to_pylist() for column in rows.columns.values()] == [["7"], ["a"], [1]]


def test_half_a_surrogate_pair_is_replaced_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "query.jsonl"
    file.write_text('{"id": "1", "text": "a\\ud83d b\\ud83d\\ude00"}\n', encoding="utf-8")

    rows = read_jsonl(file, QUERY)

    assert rows.columns["text"].to_pylist() == ["a\ufffd b\U0001f600"]
    assert rows.repaired == 1


def test_lines_longer_than_a_block_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    texts = ["short", "long " * 100, "", "tail"]
    file = tmp_path / "query.jsonl"
    rows = [json.dumps({"id": str(i), "text": text}) for i, text in enumerate(texts)]
    file.write_text("\n".join(rows), encoding="utf-8")

    assert read_jsonl(file, QUERY).columns["text"].to_pylist() == texts
