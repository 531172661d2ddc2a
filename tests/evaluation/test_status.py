"""An evaluation can be followed from outside, also after it was killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

import r2med
from r2med.errors import R2MedError
from r2med.evaluation.status import FOLDER, read_statuses
from tests.cli.running import start

FOLDERS = Path("r2med-results")


def test_a_finished_evaluation_says_what_was_run_and_what_was_there() -> None:
    r2med.evaluate("bm25", "demo/biology")
    r2med.evaluate_all(["bm25", "bm25-lucene"], "demo/biology")

    second, first = read_statuses(FOLDERS)

    assert [cell.state for cell in first.cells] == ["done"]
    assert [(cell.system, cell.state) for cell in second.cells] == [
        ("bm25", "reused"),
        ("bm25-lucene", "done"),
    ]
    assert first.end == second.end == "finished" and second.seconds_left is None


def test_the_cell_under_way_is_the_first_that_is_not_done() -> None:
    from r2med.evaluation.evaluate import each_result

    results = each_result(["bm25", "bm25-lucene", "bm25-nano"], ["demo/biology"])
    next(results)
    [status] = read_statuses(FOLDERS)
    results.close()  # type: ignore[attr-defined]
    [closed] = read_statuses(FOLDERS)

    assert [cell.state for cell in status.cells] == ["done", "running", "waiting"]
    assert status.end is None and (status.seconds_left or 0) > 0
    assert closed.end == "stopped"


def test_a_failed_cell_is_named_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    with pytest.raises(R2MedError):
        r2med.evaluate("bm25", tmp_path / "empty")

    [status] = read_statuses(FOLDERS)
    assert (status.end, [cell.state for cell in status.cells]) == ("failed", ["failed"])
    assert "empty" in status.problem


def test_a_killed_evaluation_shows_as_stopped() -> None:
    process = start("eval", *(f"bm25[k1=0.{n}]" for n in range(1, 90)), "--task", "demo")
    while not any(status.count("done") for status in read_statuses(FOLDERS)):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    [running] = read_statuses(FOLDERS)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)

    [status] = read_statuses(FOLDERS)

    assert running.end is None and running.count("running") == 1
    assert status.end == "stopped" and status.count("running") == 0
    assert 0 < status.count("done") < len(status.cells)


def test_another_process_with_the_same_number_is_not_taken_for_the_evaluation() -> None:
    r2med.evaluate("bm25", "demo/biology")
    [path] = (FOLDERS / FOLDER).glob("*.json")
    status = json.loads(path.read_text())
    living = {**status, "end": None, "pid": os.getpid()}

    path.write_text(json.dumps(living))
    [same] = read_statuses(FOLDERS)
    path.write_text(json.dumps({**living, "born": "1"}))
    [other] = read_statuses(FOLDERS)

    assert (same.end, other.end) == (None, "stopped")


def test_what_cannot_be_read_is_left_out_and_few_files_are_kept() -> None:
    (FOLDERS / FOLDER).mkdir(parents=True)
    (FOLDERS / FOLDER / "0.json").write_text("{")
    assert read_statuses(FOLDERS) == []

    for _ in range(10):
        r2med.evaluate("bm25", "demo/biology")

    assert len(list((FOLDERS / FOLDER).glob("*.json"))) == 8


def test_a_sampled_task_shows_as_done() -> None:
    queries = len(r2med.load_task("demo/biology").queries)
    r2med.evaluate("bm25", "demo/biology", sample=4)

    [status] = read_statuses(FOLDERS)
    assert [(cell.task, cell.state) for cell in status.cells] == [
        (f"demo/biology (4 of {queries} queries)", "done")
    ]


def test_an_evaluation_on_another_machine_counts_as_running() -> None:
    from r2med.evaluation.evaluate import each_result

    results = each_result(["bm25", "bm25-lucene"], ["demo/biology"])
    next(results)
    [path] = (FOLDERS / FOLDER).glob("*.json")
    written = json.loads(path.read_text())
    path.write_text(json.dumps({**written, "host": "node-17", "pid": 2**22 - 1, "born": "1"}))

    [status] = read_statuses(FOLDERS)

    assert (status.end, status.host) == (None, "node-17")
    assert [cell.state for cell in status.cells] == ["done", "running"]
    results.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        '{"pid": "one"}',
        '{"pid": 1, "born": 3, "started": -1, "updated": "", "cells": []}',
        '{"pid": 1, "born": null, "started": "", "updated": "", "cells": [{"task": 1}]}',
        "[" * 100_000,
    ],
)
def test_a_status_file_with_a_wrong_type_is_left_out(text: str, tmp_path: Path) -> None:
    path = tmp_path / ".running" / "2026-1.json"
    path.parent.mkdir()
    path.write_text(text)

    assert read_statuses(tmp_path) == []


def test_a_status_file_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / ".running" / "2026-1.json"
    path.parent.mkdir()
    os.mkfifo(path)

    assert read_statuses(tmp_path) == []
