"""Offline mode refuses every connection that leaves the machine, in workers too."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.running import ended, start

#: Addresses that are reserved for documentation: nothing answers there.
ELSEWHERE = "192.0.2.7"


def python(program: str, offline: str = "1") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import r2med, socket\n{program}"],
        env={**os.environ, "R2MED_OFFLINE": offline},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    "program",
    [
        f"socket.create_connection(('{ELSEWHERE}', 80), timeout=1)",
        f"socket.socket().connect_ex(('{ELSEWHERE}', 80))",
        f"socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('{ELSEWHERE}', 53))",
        "socket.getaddrinfo('example.org', 443)",
        "socket.gethostbyname('example.org')",
        "import urllib.request; urllib.request.urlopen('http://example.org', timeout=1)",
        "import asyncio; asyncio.run(asyncio.open_connection('example.org', 80))",
    ],
)
def test_no_way_out_is_left(program: str) -> None:
    done = python(program)

    assert done.returncode == 1
    assert "OfflineError: offline: the connection to" in done.stderr


def test_loopback_and_unix_sockets_work() -> None:
    program = (
        "server = socket.create_server(('127.0.0.1', 0)); "
        "socket.create_connection(('localhost', server.getsockname()[1])); "
        "a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    )

    assert python(program).stdout == "b'x'\n"


def test_workers_are_offline_too() -> None:
    program = (
        "import multiprocessing, concurrent.futures as futures\n"
        "from r2med.paths import cache_folder\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    pool = futures.ProcessPoolExecutor(1, context, initializer=cache_folder, "
        "initargs=('data',))\n"
        f"    pool.submit(socket.create_connection, ('{ELSEWHERE}', 80), 1).result()\n"
    )

    assert "offline: the connection to" in python(program).stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("fetch", "Biology", "--offline"),
        (
            "eval",
            "hyde:qwen-7b | bm25",
            "-t",
            "demo/biology",
            "--llm-url",
            f"http://{ELSEWHERE}/v1",
        ),
        ("eval", "bm25", "-t", "demo/biology", "--engine", f"ray={ELSEWHERE}:6379"),
        ("eval", "bm25", "-t", "demo/biology", "--engine", f"ray=ray://{ELSEWHERE}"),
    ],
)
def test_commands_that_need_the_network_end_with_a_message(arguments: tuple[str, ...]) -> None:
    if "ray" in arguments[-1]:
        pytest.importorskip("ray")
    if "--llm-url" in arguments:
        pytest.importorskip("aiohttp")

    done = ended(start(*arguments, *(() if "--offline" in arguments else ("--offline",))))

    assert done.code == 1
    assert "offline" in done.err.lower() and "Traceback" not in done.err


def test_a_local_evaluation_needs_no_network() -> None:
    assert ended(start("eval", "bm25", "-t", "demo/biology", "--offline")).code == 0


def test_without_offline_mode_connections_are_left_to_the_system() -> None:
    program = "print(socket.getaddrinfo('127.0.0.1', 80) != [])"

    assert python(program, offline="0").stdout == "True\n"
