"""Stored results under flipped bits, racing writers and kills: always the old or the new, whole."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from r2med.errors import DamagedError
from r2med.results.record import RECORD_FILE, RUN_FILE, SCORES_FILE
from r2med.results.store import Store, read_result
from r2med.retrieve.run_files import locate_run
from tests.results.storing import ranks, store
from tests.trials.flipping import flipped_files

FLIPS = 8
WRITES = 10
READS = 40
#: Writes one result again and again: in each, every query has its positive at one rank.
WRITER = """
import sys
from pathlib import Path
from r2med.retrieve.run_files import locate_run
from tests.results.storing import ranks, store
rank = int(sys.argv[2])
for _ in range(int(sys.argv[3])):
    store(Path(sys.argv[1]), "bm25", "demo/biology", ranks(rank, rank, rank))
    print("written", flush=True)
"""


def writer(root: Path, rank: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(root), str(rank), str(count)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )


@pytest.mark.parametrize("name", [RECORD_FILE, RUN_FILE, SCORES_FILE])
def test_no_bit_of_a_stored_result_changes_what_it_says(
    name: str, tmp_path: Path, trials: int
) -> None:
    result = store(tmp_path, "bm25", "demo/biology", ranks(1, 2, 0))
    sound = read_result(result.folder)

    for place in flipped_files(result.folder / name, FLIPS * trials):
        try:
            read = read_result(result.folder)
        except DamagedError as problem:
            assert str(result.folder / name) in str(problem), place
        else:
            assert name == RECORD_FILE, place
            assert read.record == sound.record, place


@pytest.mark.parametrize("name", [RECORD_FILE, RUN_FILE])
def test_no_bit_of_a_stored_result_changes_a_system_that_reads_its_run(
    name: str, tmp_path: Path, trials: int
) -> None:
    result = store(tmp_path, "bm25", "demo/biology", ranks(1, 2, 0))
    sound = result.run.to_table()

    for place in flipped_files(result.folder / name, FLIPS * trials):
        try:
            run, _ = locate_run(str(result.folder)).read()
        except DamagedError as problem:
            assert str(result.folder / name) in str(problem), place
        else:
            assert name == RECORD_FILE, place
            assert run.to_table().equals(sound), place


def test_readers_see_the_old_or_the_new_result_while_two_processes_write_it(
    tmp_path: Path, trials: int
) -> None:
    first = store(tmp_path, "bm25", "demo/biology", ranks(1, 1, 1))
    writers = [writer(tmp_path, rank, WRITES * trials) for rank in (1, 2)]
    seen = set()
    for _ in range(READS * trials):
        result = read_result(first.folder)
        mean = result.metrics["mrr"]
        assert result.scores["mrr"].tolist() == [mean] * 3
        seen.add(mean)
    codes = [process.wait(timeout=120) for process in writers]
    for process in writers:
        assert process.stdout is not None
        process.stdout.close()

    assert codes == [0, 0]
    assert seen <= {1.0, 0.5}
    assert read_result(first.folder).metrics["mrr"] in {1.0, 0.5}


def test_a_killed_writer_loses_nothing_and_its_draft_is_swept(tmp_path: Path, trials: int) -> None:
    first = store(tmp_path, "bm25", "demo/biology", ranks(1, 1, 1))
    for kill in range(2 * trials):
        with writer(tmp_path, 2, 10_000) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.007 * (kill % 10))
            process.send_signal(signal.SIGKILL)

        assert read_result(first.folder).metrics["mrr"] == 0.5

    Store(tmp_path).sweep("demo/biology", "demo")
    left = [path.name for path in first.folder.parent.iterdir()]
    assert left == [first.folder.name]
