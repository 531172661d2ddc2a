"""Answers that were paid for survive flipped bits, kills and signals at random moments."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from r2med.remote.answers import SUFFIX, Answers
from r2med.remote.completions import ChatAnswer
from tests.llm_server import LLMServer, running_llm_server, slow
from tests.remote.asking import ask, chat_at
from tests.trials.flipping import flipped_files

KEYS = [f"key-{number}" for number in range(6)]
AT_ONCE = 4
PROMPTS = [str(number) for number in range(40)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    pytest.importorskip("aiohttp")
    with running_llm_server() as running:
        yield running


def answer(key: str) -> ChatAnswer:
    return ChatAnswer(f"an answer to {key}", "stop", 3, 5, 0.5, cached=True, money=0.01)


def opened(folder: Path, warnings: list[str]) -> Answers:
    answers = Answers(folder, {"model": "m"}, warn=warnings.append)
    answers.refresh()
    return answers


def test_a_bit_flipped_among_the_answers_is_named_and_changes_none(
    tmp_path: Path, trials: int
) -> None:
    writing = opened(tmp_path, [])
    for key in KEYS:
        writing.put(key, answer(key))
    writing.close()
    (file,) = writing.folder.glob(f"*{SUFFIX}")
    unfinished = file.stat().st_size * 8 - 8

    for place in flipped_files(file, 40 * trials):
        warnings: list[str] = []
        reading = opened(tmp_path, warnings)
        kept = [key for key in KEYS if reading.get(key) is not None]

        assert all(reading.get(key) == answer(key) for key in kept)
        assert len(KEYS) - 2 <= len(kept) < len(KEYS)
        assert place >= unfinished or any(str(file) in line for line in warnings)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_ended_at_any_moment_loses_no_answer(
    server: LLMServer, how: signal.Signals, trials: int
) -> None:
    code = (
        "import sys; from tests.trials.test_stored_answers import *\n"
        "with chat_at(sys.argv[1]) as chat: chat.complete([ask(text) for text in PROMPTS])"
    )
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    chance = random.Random(how)
    kills = 2 * trials
    for _ in range(kills):
        begun = len(server.seen)
        server.script = [slow(0.02)] * 100
        process = subprocess.Popen(
            [sys.executable, "-c", code, server.url],
            env=os.environ | paths,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None and len(server.seen) == begun:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.1)
        process.send_signal(how)
        process.wait()

    server.script = []
    with chat_at(server.url) as chat:
        answers = chat.complete([ask(text) for text in PROMPTS])

    assert [answer.text for answer in answers] == [f"about {text}" for text in PROMPTS]
    assert len(server.seen) <= len(PROMPTS) + kills * AT_ONCE
    assert chat.usage()["calls"] + chat.usage()["cached"] == len(PROMPTS)
