"""Requests to a server: how long to wait, what is read, what leaves the machine."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import MissingError, UsageError
from r2med.remote.budget import Budget
from r2med.remote.requests import ApiRequest, RequestTimes, Session, _backoff, parse_retry_after
from r2med.remote.server import Server
from tests.llm_server import LLMServer, Step, cut, garbled, running_llm_server, says, slow
from tests.remote.asking import QUICK, ask, chat_at

pytest.importorskip("aiohttp")

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": format_datetime(SOON, usegmt=True)}, 30),
        ({"Retry-After": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "9", "Retry-After-Ms": "250"}, 0.25),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers, NOW) == seconds


@given(st.text())
def test_no_header_is_an_obstacle(text: str) -> None:
    parse_retry_after({"Retry-After": text, "Retry-After-Ms": text}, NOW)


@given(st.integers(1, 50))
def test_waits_double_up_to_a_minute_and_vary(attempt: int) -> None:
    wait = _backoff(attempt, 0.5)

    whole = min(60.0, 0.5 * 2.0 ** (attempt - 1))
    assert whole / 2 <= wait <= whole


def only(server: LLMServer, step: Step, **limits: Any) -> str:
    """What a chat says of a server whose every answer is this one."""
    server.script = [step] * 10
    told = replace(QUICK, attempts=2, **limits)
    with chat_at(server.url, limits=told) as chat, pytest.raises(MissingError) as caught:
        chat.complete([ask("why?")])
    return str(caught.value)


@pytest.mark.parametrize(
    "step",
    [
        garbled(b'{"error": {"message": "%s wrong key KEY"}}' % (b"x" * 490)),
        garbled(b'{"error": "wrong key KEY"}'),
        garbled(b'{"choices": [], "error": {"k": ["KEY"]}}'),
        Step(400, b"x" * 195 + b" KEY"),
        Step(400, b'{"error": {"message": "%s KEY"}}' % (b"x" * 490)),
        Step(400, b'{"error": ["KEY"]}'),
        Step(400, b'{"detail": {"loc": "KEY"}}'),
        Step(500, b"KEY" * 500),
    ],
    ids=["200", "200 text", "200 deep", "text", "message", "list", "detail", "500"],
)
def test_no_part_of_a_key_is_ever_shown(
    server: LLMServer, step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz"
    monkeypatch.setenv("R2MED_LLM_KEY", key)
    assert step.content is not None
    step = replace(step, content=step.content.replace(b"KEY", key.encode()))

    shown = only(server, step)

    assert server.seen[0].authorization == f"Bearer {key}"
    assert not any(key[i : i + 8] in shown for i in range(len(key) - 8))


@pytest.mark.parametrize("status", [200, 400, 500])
def test_deeply_nested_json_is_an_unreadable_answer(server: LLMServer, status: int) -> None:
    shown = only(server, Step(status, b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}"))

    assert "HTTP" in shown or "not a JSON object" in shown


def test_an_answer_larger_than_the_limit_is_not_read(server: LLMServer) -> None:
    shown = only(server, says("word " * 50_000), answer_bytes=100_000)

    assert "larger than the limit of 100,000 bytes" in shown
    assert "R2MED_LLM_ANSWER_BYTES" in shown
    assert len(server.seen) == 1


def test_an_answer_that_unpacks_to_more_than_the_limit_is_not_read(server: LLMServer) -> None:
    packed = gzip.compress(b"{" + b" " * 300_000_000, compresslevel=1)

    tracemalloc.start()
    shown = only(server, Step(200, packed, {"Content-Encoding": "gzip"}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert "larger than the limit of 32,000,000 bytes" in shown
    assert peak < 150_000_000


def test_an_answer_that_is_packed_unasked_is_read(server: LLMServer) -> None:
    content = json.dumps({"choices": [{"message": {"content": "there"}}]}).encode()
    server.script = [Step(200, gzip.compress(content), {"Content-Encoding": "gzip"})]

    with chat_at(server.url) as chat:
        answer = chat.complete([ask("why?")])[0]

    assert answer.text == "there"


def test_a_connection_that_breaks_is_told_in_the_words_of_the_system(server: LLMServer) -> None:
    assert "no answer within 0.2 s (tried 2 times)" in only(server, slow(1), timeout=0.2)
    assert "the connection failed: " in only(server, cut())


def test_threads_that_share_a_session_share_its_limit_of_requests(server: LLMServer) -> None:
    session = Session(Server(server.url), Budget(replace(QUICK, concurrency=2)), name="m")
    server.script = [slow(0.05)] * 24
    jobs = [ApiRequest({"model": "m", "messages": [{"content": str(n)}]}) for n in range(8)]

    def work() -> None:
        assert len(list(session.send_all("chat/completions", jobs, lambda *_: None))) == 8

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    session.close()

    assert len(server.seen) == 24
    assert server.most_at_once == 2


def test_a_defect_is_raised_and_what_else_was_asked_is_kept(server: LLMServer) -> None:
    server.script = [slow(0.1)] * 3

    def read(place: int, value: dict[str, Any], _: RequestTimes) -> str:
        if place == 1:
            raise ZeroDivisionError("a defect")
        return str(value["choices"][0]["message"]["content"])

    session = Session(Server(server.url), Budget(QUICK), name="m")
    jobs = [ApiRequest({"model": "m", "messages": [{"content": text}]}) for text in "abc"]
    arrived = []
    with pytest.raises(ZeroDivisionError, match="a defect"):
        for place, _ in session.send_all("chat/completions", jobs, read):
            arrived.append(place)
    session.close()

    assert sorted(arrived) == [0, 2]


def test_a_defect_ends_a_round_of_one_request_at_a_time(server: LLMServer) -> None:
    def read(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    session = Session(Server(server.url), Budget(replace(QUICK, concurrency=1)), name="m")
    jobs = [ApiRequest({"model": "m", "messages": [{"content": text}]}) for text in "abc"]

    with pytest.raises(ZeroDivisionError, match="a defect"):
        list(session.send_all("chat/completions", jobs, read))
    session.close()

    assert len(server.seen) == 1


def test_a_slow_caller_has_no_more_answers_to_lose_than_run_at_once(server: LLMServer) -> None:
    limits = replace(QUICK, concurrency=2)
    session = Session(Server(server.url), Budget(limits), name="m")
    jobs = [ApiRequest({"model": "m", "messages": [{"content": str(n)}]}) for n in range(12)]

    for taken, _ in enumerate(session.send_all("chat/completions", jobs, lambda *_: None)):
        time.sleep(0.02)

        assert len(server.seen) <= taken + limits.concurrency

    assert len(server.seen) == 12


def test_loopback_never_uses_a_proxy(server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_llm_server() as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)

        with chat_at(server.url) as chat:
            chat.complete([ask("a patient with a rash")])

        assert len(server.seen) == 1
        assert not proxy.seen


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://gpu-3:8000/v1", "http://proxy:1"),
        ("https://api.vendor.example/v1", "http://secure:2"),
        ("http://inside.example/v1", None),
        ("http://localhost:8000/v1", None),
        ("http://127.3.2.1:8000/v1", None),
        ("http://[::1]:8000/v1", None),
        ("http://[::ffff:127.0.0.1]:8000/v1", None),
        ("http://0.0.0.0:8000/v1", None),
    ],
)
def test_other_addresses_use_the_proxy_of_the_environment(
    url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("https_proxy", "secure:2")
    monkeypatch.setenv("no_proxy", "inside.example")

    assert Server(url).proxy() == proxy


def test_a_proxy_of_a_kind_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://me:secret@proxy:1")

    with pytest.raises(UsageError, match=r"socks5://, expected http://.*NO_PROXY") as caught:
        Server("https://api.vendor.example/v1").proxy()

    assert "secret" not in str(caught.value)


def test_a_netrc_entry_is_left_alone(
    server: LLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("default login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("R2MED_LLM_KEY", "sk-own")

    with chat_at(server.url) as chat:
        chat.complete([ask("why?")])

    assert server.seen[0].authorization == "Bearer sk-own"


@pytest.mark.parametrize("which", ["SIGINT", "SIGTERM"])
def test_an_interrupted_run_keeps_every_answer_that_arrived(server: LLMServer, which: str) -> None:
    code = (
        "import signal, sys; from tests.remote.asking import ask, chat_at\n"
        "signal.signal(signal.SIGTERM, signal.default_int_handler)\n"
        "with chat_at(sys.argv[1]) as chat: chat.complete([ask(str(i)) for i in range(60)])"
    )
    server.script = [slow(0.03)] * 300
    paths = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, server.url],
        env=os.environ | paths,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.seen) < 20:
        time.sleep(0.005)
    process.send_signal(getattr(signal, which))
    error = process.communicate()[1]
    answered = len(server.seen) - 4

    with chat_at(server.url) as chat:
        kept = chat.estimate([ask(str(i)) for i in range(60)]).cached

    assert "KeyboardInterrupt" in error
    assert kept >= answered


def redirect(status: int, target: str) -> Step:
    return Step(status, b"{}", {"Location": target})


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_prompt_is_carried_to_another_address(server: LLMServer, status: int) -> None:
    with running_llm_server() as other:
        message = only(server, redirect(status, f"{other.url}/chat/completions"))

        assert not other.seen
    assert len(server.seen) == 1
    assert other.url in message


def test_a_redirect_within_the_address_is_followed_a_few_times(server: LLMServer) -> None:
    server.script = [redirect(307, "/v1/other"), redirect(308, "/v1/chat/completions")]

    with chat_at(server.url) as chat:
        [answer] = chat.complete([ask("why?")])

    assert answer.text == "about why?"
    assert [request.path for request in server.seen] == [
        "/v1/chat/completions",
        "/v1/other",
        "/v1/chat/completions",
    ]


def test_an_endless_redirect_ends(server: LLMServer) -> None:
    message = only(server, redirect(307, "/v1/chat/completions"))

    assert "redirects to /v1/chat/completions" in message
    assert len(server.seen) <= 4
