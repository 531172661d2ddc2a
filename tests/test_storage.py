"""Writes are whole or absent, drafts of the dead are swept, and checksums tell damage."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DamagedError
from r2med.storage import (
    atomic_file,
    atomic_folder,
    lock,
    read_folder,
    read_sealed,
    seal,
    sweep,
    temporary_folder,
    unseal,
    write_sealed,
)
from tests.trials.flipping import flipped

WRITER = """
import sys
from pathlib import Path
from r2med.storage import atomic_folder
target, word = Path(sys.argv[1]), sys.argv[2]
for number in range(int(sys.argv[3])):
    with atomic_folder(target) as draft:
        for name in "abc":
            (draft / name).write_text(f"{word}{number}")
"""
HOLDER = """
import sys
from pathlib import Path
from r2med.storage import atomic_file, atomic_folder, lock, temporary_folder
with {what}(Path(sys.argv[1]), *sys.argv[2:]) as draft:
    print("holding", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(what: str, path: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A process inside a block of `what`; it is killed when this block ends."""
    command = [sys.executable, "-c", HOLDER.format(what=what), str(path), *arguments]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "holding\n"
        yield process
        process.send_signal(signal.SIGKILL)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.write_text("old")
    folder.mkdir()
    (folder / "part").write_text("old")

    with pytest.raises(KeyError), atomic_file(file) as draft:
        draft.write_text("new")
        raise KeyError
    with pytest.raises(KeyError), atomic_folder(folder) as draft:
        (draft / "part").write_text("new")
        raise KeyError

    assert (file.read_text(), (folder / "part").read_text()) == ("old", "old")
    assert names(tmp_path) == ["file", "folder"]


def test_a_file_gives_way_to_a_folder_of_its_name(tmp_path: Path) -> None:
    target = tmp_path / "entry"
    target.write_text("a file")

    with atomic_folder(target) as draft:
        (draft / "part").write_text("new")

    assert (target / "part").read_text() == "new"
    assert names(tmp_path) == ["entry"]


def test_files_to_keep_stay_beside_the_new_ones(tmp_path: Path) -> None:
    target = tmp_path / "entry"
    (target / "inner").mkdir(parents=True)
    for name in ("kept", "inner/kept", "stale", "changed"):
        (target / name).write_text("old")

    with atomic_folder(target, keep=lambda path: path != "stale") as draft:
        (draft / "changed").write_text("new")

    files = {path.relative_to(target).as_posix(): path for path in target.rglob("*")}
    texts = {name: path.read_text() for name, path in files.items() if path.is_file()}
    assert texts == {"kept": "old", "inner/kept": "old", "changed": "new"}
    assert names(tmp_path) == ["entry"]


def test_readers_of_a_folder_that_two_processes_replace_see_one_version_whole(
    tmp_path: Path,
) -> None:
    target = tmp_path / "entry"
    with atomic_folder(target) as draft:
        for name in "abc":
            (draft / name).write_text("first")
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(target), word, "60"])
        for word in ("one", "two")
    ]

    seen = []
    while any(writer.poll() is None for writer in writers):
        seen.append(
            read_folder(target, lambda folder: {(folder / name).read_text() for name in "abc"})
        )

    assert [writer.returncode for writer in writers] == [0, 0]
    assert all(len(version) == 1 for version in seen)
    assert len({version.pop() for version in seen}) > 1
    assert names(tmp_path) == ["entry"]


@pytest.mark.parametrize("what", ["atomic_file", "atomic_folder"])
def test_drafts_of_killed_writers_are_swept_and_those_of_living_ones_are_not(
    tmp_path: Path, what: str
) -> None:
    with held(what, tmp_path / "entry"):
        sweep(tmp_path)
        during = names(tmp_path)
    after = names(tmp_path)
    with atomic_file(tmp_path / "another") as draft:
        draft.write_text("next start")

    assert len(during) == len(after) == 1
    assert names(tmp_path) == ["another"]


def test_a_temporary_folder_is_private_and_removed_also_after_a_kill(tmp_path: Path) -> None:
    (tmp_path / "unrelated").mkdir()
    (tmp_path / "cluster-link").symlink_to(tmp_path / "unrelated")
    others = names(tmp_path)

    with held("temporary_folder", tmp_path, "cluster-"):
        with temporary_folder(tmp_path, "cluster-") as folder:
            (folder / "file").touch()
            mode = folder.stat().st_mode
            during = names(tmp_path)
        after = names(tmp_path)
    left = names(tmp_path)
    with temporary_folder(tmp_path, "cluster-"):
        pass

    assert (len(during), len(after), left) == (len(others) + 2, len(others) + 1, after)
    assert mode & 0o777 == 0o700
    assert names(tmp_path) == others


def test_a_replacement_killed_between_two_renames_is_undone(tmp_path: Path) -> None:
    """File systems without an exchange take two steps; this is what a kill between leaves."""
    retired = tmp_path / ".entry.old"
    retired.mkdir()
    (retired / "part").write_text("kept")

    text = read_folder(tmp_path / "entry", lambda folder: (folder / "part").read_text())

    assert text == "kept"
    assert names(tmp_path) == ["entry"]


def test_a_lock_dies_with_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "entry.lock"
    with held("lock", path) as holder:
        waiter = subprocess.Popen(
            [sys.executable, "-c", HOLDER.format(what="lock"), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert holder.poll() is None
        holder.send_signal(signal.SIGKILL)

    with waiter:
        assert waiter.communicate("")[0] == "holding\n"
    with lock(path):
        assert path.exists()
    assert not path.exists()


RECORDS = st.dictionaries(
    st.text(max_size=4), st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
)


@given(RECORDS, st.data())
def test_a_sealed_record_reads_back_equal_or_is_called_damaged(
    record: dict[str, object], data: st.DataObject
) -> None:
    text = seal(record).encode()
    place = data.draw(st.integers(0, len(text) * 8 - 1))

    assert unseal(text, "record.json") == record
    try:
        read = unseal(flipped(text, place), "record.json")
    except DamagedError as error:
        assert "record.json" in str(error)
    else:
        assert read == record


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", "[" * 100_000, '{"checksum": null}', "\xff"])
def test_what_no_seal_wrote_is_called_damaged(text: str) -> None:
    with pytest.raises(DamagedError, match="record"):
        unseal(text, "record.json")


def test_batches_come_back_as_they_were_written_those_without_rows_too(tmp_path: Path) -> None:
    batches = [pa.record_batch({"a": pa.array(values, pa.int32())}) for values in ([], [1, 2], [])]

    write_sealed(tmp_path / "sealed", batches)

    assert read_sealed(tmp_path / "sealed") == batches
