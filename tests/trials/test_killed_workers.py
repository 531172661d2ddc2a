"""Drivers and workers killed at any moment: nothing finished is lost, nothing is left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from r2med.results.store import Store, read_result
from tests.cli.running import ended
from tests.evaluation.test_workers import descendants, gone, logged
from tests.llm_server import running_llm_server
from tests.trials.counting import counted

KILLS = 2
PIECE = 16
WORKERS = 2
SECONDS = 6.0
TASK = "demo/biology"
#: Encoding, generation, reranking and writing results, in pieces of a few texts.
PROGRAM = f"""
from r2med.cli import main
from r2med.models import encoding
encoding._CHUNK_TEXTS = {PIECE}
print("begun", flush=True)
main()
"""
COMMAND = (
    *("eval", "bm25", "model:tests.evaluation.faulty:Sound", "hyde:qwen-7b | bm25"),
    "bm25 | own:tests.evaluation.faulty:SoundPairs@20",
    *("--task", TASK, "--engine", f"processes={WORKERS}", "--results"),
)


def begun(*arguments: str) -> subprocess.Popen[str]:
    """The command as a process whose program has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *COMMAND, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    return process


def outcome(results: str) -> dict[str, object]:
    """Every stored score, by system."""
    stored = map(read_result, Store(Path(results)).folders())
    return {one.system: (one.run.to_table().to_pydict(), dict(one.metrics)) for one in stored}


def test_kills_of_drivers_and_workers_lose_no_finished_piece(
    trials: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, repository: Path
) -> None:
    chance = random.Random(21)
    monkeypatch.setenv("PYTHONPATH", str(repository))
    monkeypatch.setenv("R2MED_PAUSE", "0.2")
    with running_llm_server() as server:
        server.reply = lambda body: f"Passage {len(body['messages'][-1]['content'])}."
        monkeypatch.setenv("R2MED_LLM_URL", server.url)
        assert ended(begun("expected")).code == 0
        for kill in range(KILLS * trials):
            if kill % 5 == 0:
                home, faults = tmp_path / f"home{kill}", tmp_path / f"faults{kill}"
                faults.mkdir()
                monkeypatch.setenv("R2MED_HOME", str(home))
                monkeypatch.setenv("R2MED_FAULTS", str(faults))
                results, asked, kills = f"results{kill}", len(server.bodies), 0
            victim = chance.choice(("driver", "worker"))
            kills += disturbed(results, victim, chance)

            assert gone(str(home)), "a worker outlived its driver"
            counted(f"SIGKILL, {victim} of many workers")
            if kill % 5 == 4 or kill == KILLS * trials - 1:
                done = ended(begun(results))
                assert done.code == 0, done.err
                assert outcome(results) == outcome("expected")
                for kind in ("texts", "pairs"):
                    repeated = sum(times - 1 for times in Counter(logged(faults, kind)).values())
                    assert repeated <= kills * WORKERS * PIECE, kind
                assert len(server.bodies) - asked <= queries() + kills * 16


def disturbed(results: str, victim: str, chance: random.Random) -> int:
    """Run the command, killing its driver or a worker of it at a random moment; 1 if one was."""
    process = begun(results)
    try:
        process.wait(chance.uniform(0, SECONDS))
    except subprocess.TimeoutExpired:
        workers = sorted(descendants(os.environ["R2MED_HOME"]) - {process.pid})
        chosen = chance.choice(workers) if victim == "worker" and workers else process.pid
        os.kill(chosen, signal.SIGKILL)
        done = ended(process)
        assert done.code == (137 if chosen == process.pid else 0), done.err
        return 1
    ended(process)
    return 0


def queries() -> int:
    from r2med import load_task

    return len(load_task(TASK).queries)
