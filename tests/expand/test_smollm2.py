"""The real small model: every method end to end, and a kill in the middle of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import r2med
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.expand.generations import read_traces
from r2med.paths import cache_folder
from r2med.systems.build import System
from r2med.tasks.task import Task

METHODS = ("hyde", "query2doc", "lamer", "search-o1", "search-r1")


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_end_to_end(task: Task, smollm2_url: str, method: str) -> None:
    name = f"{method}:smollm2[max_tokens=24]"
    system = System.from_spec(f"{name} | bm25", Resources(RunOptions(llm_url=smollm2_url)))

    result = r2med.evaluate(system, task)

    facts = result.record.facts[name]
    assert facts["generations"] == 3
    assert int(str(facts["calls"])) >= 3
    assert len(result.run) == 3
    if method.startswith("search"):
        assert set(read_traces(Path(str(facts["generations_kept"])))) == {"1", "2", "3"}


def test_after_a_kill_no_generation_is_lost_and_none_is_made_twice(
    folder: Path, smollm2_url: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "r2med", "generate", "hyde[max_tokens=24,n=4]"]
    command += [
        "--llm",
        "smollm2",
        "--task",
        str(folder),
        "--llm-url",
        smollm2_url,
        "--concurrency",
        "1",
    ]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = os.environ | {"PYTHONPATH": paths}

    running = subprocess.Popen(command, env=environment, start_new_session=True)
    while len(answers()) < 2 and running.poll() is None:
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    before = answers()
    finished = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True)

    after = answers()
    assert finished.returncode == 0, finished.stderr
    assert 2 <= len(before) < 12
    assert after[: len(before)] == before
    assert len(after) == len({answer.split(b'"written"')[0] for answer in after}) == 12


def answers() -> list[bytes]:
    """Whole lines on disk, the first process's first."""
    files = sorted(cache_folder("answers").rglob("*.calls"))
    return [line[9:] for file in files for line in file.read_bytes().splitlines(keepends=True)]
