"""Connections that mean no good: the explorer goes on answering, and its log stays short."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

from tests.results.storing import ranks, store
from tests.trials.counting import counted
from tests.trials.limits import time_limit

CONNECTIONS = 400
#: Fewer than the connections of one round, so that they could exhaust them.
OPEN_FILES = 320
MOST_LINES = 20
SERVER = (
    "import resource\n"
    f"resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES}, {OPEN_FILES}))\n"
    "from r2med.cli import main\n"
    "main()\n"
)


@contextmanager
def serve(log: Path) -> Iterator[int]:
    """Run the explorer with few open files, and yield its port."""
    command = [sys.executable, "-c", SERVER, "explore", "--no-open", "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while not (match := re.search(r"http://127\.0\.0\.1:(\d+)", log.read_text())):
                assert process.poll() is None, log.read_text()
                time.sleep(0.1)
            yield int(match[1])
        finally:
            process.terminate()
            process.wait(timeout=60)


def stay_idle(connection: socket.socket) -> None:
    pass


def send_half_a_request(connection: socket.socket) -> None:
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")


def promise_a_form(connection: socket.socket) -> None:
    connection.sendall(
        b"POST /try HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
        b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 5000\r\n\r\ntext="
    )


def send_noise(connection: socket.socket) -> None:
    connection.sendall(random.Random(0).randbytes(2_000))


def ask_and_leave(connection: socket.socket) -> None:
    connection.sendall(b"GET /about HTTP/1.1\r\nHost: localhost\r\n\r\n")
    connection.close()


def reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def pipeline_requests(connection: socket.socket) -> None:
    connection.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)


VISITORS: tuple[Callable[[socket.socket], None], ...] = (
    *(stay_idle, send_half_a_request, promise_a_form, send_noise),
    *(ask_and_leave, reset, pipeline_requests),
)


def test_pages_are_answered_whatever_other_connections_do(tmp_path: Path, trials: int) -> None:
    store(Path("r2med-results"), "bm25", "demo/biology", ranks(1, 2, 0))
    chance = random.Random(9)
    log = tmp_path / "log"
    with serve(log) as port:
        for _ in range(trials):
            opened = []
            for _ in range(CONNECTIONS):
                connection = socket.create_connection(("127.0.0.1", port), timeout=30)
                opened.append(connection)
                with suppress(OSError):  # closed by the server to make room
                    chance.choice(VISITORS)(connection)
            with time_limit():
                page = HTTPConnection("127.0.0.1", port, timeout=20)
                page.request("GET", "/about")
                assert page.getresponse().status == 200
                page.close()
            for connection in opened:
                connection.close()
            counted("hostile connections", CONNECTIONS)

    lines = log.read_text().splitlines()
    assert "Traceback" not in log.read_text()
    assert len(lines) <= MOST_LINES, os.linesep.join(lines[:5])
