"""Lines of files: streamed, and bounded however well a file was packed."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError, UsageError
from r2med.tasks.reading import lines as reading
from r2med.tasks.reading.lines import MAX_FILE, MAX_LINE, MAX_RATIO, blocks, lines


def bomb(path: Path, line_end: bytes = b"", members: int = 500) -> Path:
    """A gzip file of members that unpack to 4 MB each, one after the other."""
    path.write_bytes(gzip.compress(bytes((1 << 22) - len(line_end)) + line_end) * members)
    return path


@given(st.binary(max_size=300), st.integers(1, 50), st.booleans())
def test_blocks_are_whole_lines_of_the_content(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int, packed: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "file"
    text = b"x" + content
    path.write_bytes(gzip.compress(text) if packed else text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK_BYTES", size * 4)
        found = list(blocks(path))

    assert b"".join(found) == text
    assert all(block.endswith(b"\n") for block in found[:-1])


def test_a_file_that_unpacks_beyond_measure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"unpacks to more than 100 times.*\n.*{MAX_RATIO}") as told:
        list(blocks(bomb(tmp_path / "corpus.jsonl.gz", b"\n")))

    assert str(tmp_path / "corpus.jsonl.gz") in str(told.value)


@pytest.mark.parametrize(
    "limit, value, message",
    [
        (MAX_LINE, "9000000", "the line that begins at byte 0 is longer than 9,000,000 bytes"),
        (MAX_FILE, "9000000", "its content is larger than 9,000,000 bytes"),
    ],
)
def test_limits_can_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: str, message: str
) -> None:
    monkeypatch.setenv(MAX_RATIO, "100000")
    monkeypatch.setenv(limit, value)

    with pytest.raises(DataError, match=rf"{message}.*\n.*{limit}"):
        list(lines(bomb(tmp_path / "run.gz")))


def test_a_limit_that_is_no_number_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MAX_FILE, "8GB")

    with pytest.raises(UsageError, match="R2MED_MAX_FILE_BYTES is '8GB'"):
        list(lines(bomb(tmp_path / "run.gz", members=1)))


def test_small_files_may_be_packed_as_well_as_they_can(tmp_path: Path) -> None:
    assert sum(len(block) for block in blocks(bomb(tmp_path / "a.gz", members=2))) == 2 << 22
