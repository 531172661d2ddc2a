"""Killed or interrupted at any moment, a command loses nothing that was finished."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from r2med.paths import home_folder
from tests.cli.running import Outcome, ended, start
from tests.trials.counting import counted
from tests.trials.works import WORKS, chosen, one_message, outcomes, undisturbed

KILLS = 3
SIGNALS = 2
WORDS = {signal.SIGKILL: "", signal.SIGINT: "interrupted: ", signal.SIGTERM: "terminated: "}
#: About as long as the longest work takes; later moments find the command done.
SECONDS = 2.0


def stopped(work: str, number: signal.Signals, chance: random.Random) -> Outcome:
    """A work that gets a signal at a random moment after its program has begun."""
    process = start(*WORKS[work].words, announced=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    try:
        process.wait(chance.uniform(0, SECONDS))
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    return ended(process)


def test_neither_kills_nor_signals_change_a_number(
    trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(20)
    numbers = [signal.SIGKILL] * (KILLS * trials)
    numbers += [signal.SIGINT, signal.SIGTERM] * (SIGNALS * trials // 2)
    chance.shuffle(numbers)
    with undisturbed(monkeypatch, trials) as expected:
        for number in numbers:
            work = chosen(expected, chance)
            done = stopped(work, number, chance)

            assert done.code in (0, 128 + number), (work, done)
            assert number == signal.SIGKILL or one_message(done), (work, done.err)
            said = done.out or done.code == 0  # its answer: the signal came when all was done
            assert WORDS[number] in done.err or said, (work, done)
            counted(f"{number.name}, {work}")
            if chance.random() < 0.3:  # so that building caches is disturbed too
                shutil.rmtree(home_folder(), ignore_errors=True)

        assert outcomes(expected) == expected
        assert list(Path().rglob(".*.draft")) == []
