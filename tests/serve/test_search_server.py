"""The search server over HTTP: a real process, its limits, and a log that survives kill -9."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import r2med
from r2med.agents.call_log import document_code, read_log
from r2med.evaluation.trial import try_query
from r2med.systems.build import System
from tests.cli.running import run
from tests.serve.serving import TASK, Server, serve

pytestmark = pytest.mark.extra("serve")
QUERY = "descending paralysis after home-bottled beans"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serve(tmp_path_factory.mktemp("served") / "log", "--per-search", "4") as running:
        yield running


def calls(log: Path) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(c.session, c.text, c.documents) for c in read_log(log, warn=pytest.fail).calls]


def test_a_search_returns_the_ranking_of_the_system_under_codes(server: Server) -> None:
    task = r2med.load_task(TASK)
    expected = try_query(System.from_spec("bm25"), task, QUERY, paid=False, depth=4).stages[-1][1]

    results = server.search(QUERY)

    assert [hit["text"] for hit in results] == [task.document(name) for name, _ in expected]
    codes = [document_code(task.corpus.hash, name) for name, _ in expected]
    assert [hit["id"] for hit in results] == codes


def test_no_id_of_a_document_or_query_is_shown(server: Server) -> None:
    _, answer = server.post("/search", {"query": QUERY, "session": "1"})

    assert "medqa" not in json.dumps(answer).lower()


def test_the_log_maps_codes_back_to_documents(server: Server) -> None:
    results = server.search("thrombotic microangiopathy", session="7")

    [call] = [c for c in read_log(server.log, warn=pytest.fail).calls if c.session == "7"]
    assert list(call.codes) == [hit["id"] for hit in results]
    assert set(call.documents) <= set(r2med.load_task(TASK).corpus.ids.to_pylist())


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"query": ""}, "query"),
        ({"query": 3}, "query"),
        ({"query": "x" * 10_001}, "query"),
        ({"query": "a\x00b"}, "query"),
        ({"query": "a", "session": 5}, "session"),
        ({"query": "a", "session": "s" * 201}, "session"),
        ({"query": "a", "session": "a\nb"}, "session"),
        ([1], "object"),
        (b"{", "JSON"),
        (b"[" * 20_000, "JSON"),
    ],
)
def test_a_malformed_search_is_refused_and_named(
    server: Server, content: object, problem: str
) -> None:
    before = calls(server.log)

    status, answer = server.post("/search", content)

    assert (status, problem in answer["error"]) == (400, True)
    assert calls(server.log) == before


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({}, "answer"),
        ({"answer": "x", "confidence": 85}, "confidence"),
        ({"answer": "x", "confidence": True}, "confidence"),
        ({"answer": "x", "citations": "b4lptdwu"}, "citations"),
        ({"answer": "x", "citations": ["a"] * 101}, "citations"),
        ({"answer": "x", "tokens": -1}, "tokens"),
    ],
)
def test_a_malformed_answer_is_refused_and_named(
    server: Server, content: object, field: str
) -> None:
    status, answer = server.post("/answer", content)

    assert (status, answer["error"].startswith(field)) == (400, True)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
    ],
)
@pytest.mark.parametrize("path", ["/search", "/mcp"])
def test_requests_of_web_pages_are_refused(
    server: Server, path: str, headers: dict[str, str], expected: int
) -> None:
    before = calls(server.log)

    status, _ = server.post(path, {"query": QUERY}, headers)

    assert 400 <= status < 500 and (path == "/mcp" or status == expected)
    assert calls(server.log) == before


def test_a_large_request_is_refused_before_it_is_read(server: Server) -> None:
    status, _ = server.post("/search", b"{" + b" " * 70_000)
    of_mcp, _ = server.post("/mcp", b"{" + b" " * 70_000)

    assert (status, of_mcp) == (413, 413)


def test_the_server_is_bound_to_loopback_only(server: Server) -> None:
    port = urlsplit(server.url).port
    others = {
        str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
    }
    for address in others - {"127.0.0.1"}:
        if not address.startswith("127."):
            with socket.socket() as probe:
                assert probe.connect_ex((address, port)) != 0


@pytest.mark.parametrize("answered", [1, 20])
def test_a_kill_among_running_searches_loses_no_answered_call(
    tmp_path: Path, answered: int
) -> None:
    acknowledged, enough = list[str](), threading.Event()

    def search_until_killed(server: Server, client: int) -> None:
        for number in range(1_000):
            words = f"fever {client} {number}"
            try:
                server.search(words, session="2")
            except (OSError, HTTPException):
                return
            acknowledged.append(words)
            if len(acknowledged) >= answered:
                enough.set()

    with serve(tmp_path / "log") as server, ThreadPoolExecutor(3) as clients:
        for client in range(3):
            clients.submit(search_until_killed, server, client)
        assert enough.wait(60)
        server.process.send_signal(signal.SIGKILL)

    logged = [text for _, text, _ in calls(tmp_path / "log")]
    assert set(acknowledged) <= set(logged) and len(logged) == len(set(logged))
    assert len(logged) - len(acknowledged) <= 3
    with serve(tmp_path / "log") as server:
        server.search("again", session="2")
    assert [text for _, text, _ in calls(tmp_path / "log")] == [*logged, "again"]


def test_a_log_of_another_setup_is_not_continued(tmp_path: Path) -> None:
    with serve(tmp_path / "log"):
        pass
    arguments = ["--task", TASK, "--log", str(tmp_path / "log"), "--port", "0"]

    systems, depth = (
        run("serve", "bm25-nano", *arguments),
        run("serve", "bm25", "--per-search", "9", *arguments),
    )

    assert (systems.code, depth.code) == (2, 2)
    assert "another system (bm25)" in systems.err and "--per-search 5" in depth.err


def test_several_tasks_are_refused() -> None:
    refused = run("serve", "bm25", "--task", "demo")

    assert refused.code == 2 and "names 8 tasks" in refused.err
