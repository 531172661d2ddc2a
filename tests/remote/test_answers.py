"""Answers on disk survive a kill, damage and company."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med.remote.answers import SUFFIX, Answers
from r2med.remote.completions import ChatAnswer, ChatRequest, Message
from tests.llm_server import LLMServer, says, slow
from tests.remote.asking import QUICK, ask, chat_at, open_chat

IDENTITY = {"model": "Some/Model", "server": {"kind": "x"}, "parameters": {"seed": 1}}
ANSWER = ChatAnswer("words", "stop", 3, 1, 0.5, cached=False)


def opened(folder: Path) -> Answers:
    answers = Answers(folder, IDENTITY)
    answers.refresh()
    return answers


def test_an_answer_is_found_by_another_process_at_once(tmp_path: Path) -> None:
    writing, reading = opened(tmp_path), opened(tmp_path)

    writing.put("k", ANSWER)
    reading.refresh()

    found = reading.get("k")
    assert found is not None
    assert (found.text, found.cached) == ("words", True)


@settings(max_examples=50, deadline=None)
@given(text=st.text(st.characters(codec="utf-8")), finish=st.sampled_from(["stop", "length"]))
def test_any_text_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, text: str, finish: str
) -> None:
    folder = tmp_path_factory.mktemp("calls")
    calls = opened(folder)

    calls.put("k", ChatAnswer(text, finish, 1, 2, 0.1, cached=False))
    calls.close()

    assert opened(folder).get("k") == ChatAnswer(text, finish, 1, 2, 0.1, cached=True)


def test_the_newest_answer_wins(tmp_path: Path) -> None:
    first, second = opened(tmp_path), opened(tmp_path)
    first.put("k", ANSWER)
    second.put("k", ChatAnswer("newer", "stop", 3, 1, 0.5, cached=False))

    found = opened(tmp_path).get("k")

    assert found is not None
    assert found.text == "newer"


@pytest.mark.parametrize("length", range(1, 40, 3))
def test_a_line_that_was_never_finished_is_no_answer(tmp_path: Path, length: int) -> None:
    calls = opened(tmp_path)
    calls.put("a", ANSWER)
    calls.put("b", ANSWER)
    calls.close()
    file = next(calls.folder.glob(f"*{SUFFIX}"))
    file.write_bytes(file.read_bytes()[:-length])

    again = opened(tmp_path)

    assert again.get("a") is not None
    assert again.get("b") is None


def test_a_damaged_line_is_noticed_and_the_rest_is_kept(tmp_path: Path) -> None:
    calls = opened(tmp_path)
    for key in "abc":
        calls.put(key, ANSWER)
    calls.close()
    file = next(calls.folder.glob(f"*{SUFFIX}"))
    lines = file.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b"words", b"swords"[:5])
    file.write_bytes(b"".join(lines))

    again = opened(tmp_path)

    assert [again.get(key) is not None for key in "abc"] == [True, False, True]


def test_every_part_of_a_request_is_in_its_key() -> None:
    base = ChatRequest((Message("user", "x"),))
    others = [
        ChatRequest((Message("system", "x"),)),
        ChatRequest((Message("user", "y"),)),
        ChatRequest((Message("user", "x"), Message("user", ""))),
        ChatRequest((Message("user", "x"),), sample=1),
        ChatRequest((Message("user", "x"),), stop=("z",)),
        ChatRequest((Message("user", "x"),), max_tokens=1),
    ]

    keys = {request.key for request in [base, *others]}

    assert len(keys) == 1 + len(others)


def test_a_killed_run_loses_no_answer_and_makes_none_twice(server: LLMServer) -> None:
    code = (
        "import sys; from tests.remote.asking import ask, chat_at\n"
        "with chat_at(sys.argv[1]) as chat: chat.complete([ask(str(i)) for i in range(60)])"
    )
    server.script = [slow(0.03)] * 300
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([sys.executable, "-c", code, server.url], env=os.environ | paths)
    while len(server.seen) < 20:
        time.sleep(0.005)
    process.kill()
    process.wait()
    answered = len(server.seen) - 4
    server.script.clear()

    with chat_at(server.url) as chat:
        answers = chat.complete([ask(str(i)) for i in range(60)])

    assert [answer.text for answer in answers] == [f"about {i}" for i in range(60)]
    assert chat.usage()["cached"] >= answered
    assert len(server.seen) - 60 <= 4


def asking(server: LLMServer, count: int) -> subprocess.Popen[str]:
    """Another process that asks for the same answers, and prints them."""
    code = (
        "import sys; from tests.remote.asking import ask, chat_at\n"
        "with chat_at(sys.argv[1]) as chat:\n"
        "    answers = chat.complete([ask(str(i)) for i in range(int(sys.argv[2]))])\n"
        "print(*(answer.text for answer in answers), sep=',')"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, server.url, str(count)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_that_ask_the_same_ask_each_once(server: LLMServer) -> None:
    server.script = [slow(0.05)] * 60

    others = [asking(server, 60) for _ in range(2)]
    while not server.seen:
        time.sleep(0.005)
    with chat_at(server.url) as chat:
        answers = chat.complete([ask(str(i)) for i in range(60)])
    printed = [other.communicate()[0].strip().split(",") for other in others]

    assert len(server.seen) == 60
    assert printed == [[answer.text for answer in answers]] * 2
    assert 0 < chat.usage()["calls"] < 60
    assert chat.usage()["calls"] + chat.usage()["cached"] == 60


def test_threads_with_chats_of_their_own_ask_each_once(server: LLMServer) -> None:
    server.script = [slow(0.02)] * 40

    def work(_: int) -> list[str]:
        with chat_at(server.url) as chat:
            return [answer.text for answer in chat.complete([ask(str(i)) for i in range(40)])]

    with ThreadPoolExecutor(3) as threads:
        texts = list(threads.map(work, range(3)))

    assert len(server.seen) == 40
    assert texts[0] == texts[1] == texts[2]


def test_threads_that_begin_at_once_know_of_each_other(tmp_path: Path) -> None:
    begin = threading.Barrier(8)

    def reserve(number: int) -> bool:
        answers = Answers(tmp_path / str(number // 8), IDENTITY)
        begin.wait()
        return answers.reserve("k")

    with ThreadPoolExecutor(8) as threads:
        asking = list(threads.map(reserve, range(8 * 50)))

    assert [sum(asking[start : start + 8]) for start in range(0, 8 * 50, 8)] == [1] * 50


def test_what_a_killed_process_was_asking_for_is_asked_again(server: LLMServer) -> None:
    server.script = [slow(30)] * 2
    other = asking(server, 2)
    while len(server.seen) < 2:
        time.sleep(0.005)

    other.kill()
    other.communicate()
    with chat_at(server.url) as chat:
        answers = chat.complete([ask("0"), ask("1")])

    assert [answer.text for answer in answers] == ["about 0", "about 1"]


def test_a_damaged_answer_is_named_and_asked_for_again(server: LLMServer) -> None:
    with chat_at(server.url) as chat:
        chat.complete([ask("a"), ask("b")])
    file = next(chat._answers.folder.glob(f"*{SUFFIX}"))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1].replace(b"about", b"ab0ut"))

    warnings: list[str] = []
    with open_chat("qwen-7b", url=server.url, limits=QUICK, warn=warnings.append) as chat:
        answers = chat.complete([ask("a"), ask("b")])

    assert [answer.text for answer in answers] == ["about a", "about b"]
    assert warnings == [
        f"{file}, byte {len(lines[0])}: a stored answer fails its checksum; "
        "the request is sent again."
    ]
    assert len(server.seen) == 3


def test_answers_from_disk_carry_what_they_cost(server: LLMServer) -> None:
    priced = {"price_in": "1000000", "price_out": "2000000"}
    with open_chat("qwen-7b", url=server.url, options=priced, limits=QUICK) as chat:
        chat.complete([ask("a b")])
    made = chat.usage()

    dearer = {"price_in": "5000000", "price_out": "5000000"}
    with open_chat("qwen-7b", url=server.url, options=dearer, limits=QUICK) as chat:
        chat.complete([ask("a b")])

    assert (made["calls"], made["cached"], made["cached_tokens"]) == (1, 0, 0)
    assert (chat.usage()["calls"], chat.usage()["money"]) == (0, 0)
    assert chat.usage()["cached_tokens"] == made["prompt_tokens"] + made["completion_tokens"] == 5
    assert chat.usage()["cached_money"] == made["money"] == 8
    assert chat.usage()["answer_seconds"] > 0


def test_answers_that_were_paid_for_long_ago_are_still_found(tmp_path: Path) -> None:
    """The names and the line are those that the first edition wrote; changing one loses answers."""
    request = ChatRequest((Message("user", "why?"),), sample=2, stop=("x",), max_tokens=5)
    folder = tmp_path / "some-model-4c17bd3edf1e6b32"
    folder.mkdir()
    (folder / "01794830111-1.calls").write_bytes(
        b'ecc2cb8d {"key": "ad1a4b8c06c45c6e5bbfaec5ecb9cbe1", "written": 1794830111.6277924, '
        b'"answer": {"text": "words", "finish": "stop", "prompt_tokens": 3, '
        b'"completion_tokens": 1, "seconds": 0.5}}\n'
    )

    answer = opened(tmp_path).get(request.key)

    assert answer == ChatAnswer("words", "stop", 3, 1, 0.5, cached=True)


def test_a_kept_answer_fits_whatever_stripping_reads_it(server: LLMServer) -> None:
    server.script = [says("Aspirin.", reasoning="Let me see.")]
    texts = []
    for stripping in ("think", "none"):
        with chat_at(server.url, name="qwq-32b", stripping=stripping) as chat:
            texts.append(chat.complete([ask("a")])[0].text)

    assert texts == ["<think>\nLet me see.\n</think>\n\nAspirin.", "Aspirin."]
    assert len(server.seen) == 1
