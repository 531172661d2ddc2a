"""The search server as a separate process, and requests to it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cli.running import start

TASK = "demo/medqa-diag"


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    url: str
    log: Path

    def post(
        self, path: str, content: object, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Send JSON, or bytes as they are; returns the status and the answer."""
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        address = urlsplit(self.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
        try:
            sent = {"Content-Type": "application/json", **(headers or {})}
            connection.request("POST", path, body, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            is_json = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if is_json else text
        finally:
            connection.close()

    def search(self, query: str, session: str = "1") -> list[dict[str, str]]:
        status, answer = self.post("/search", {"query": query, "session": session})
        assert status == 200, answer
        results: list[dict[str, str]] = answer["results"]
        return results


@contextmanager
def serve(log: Path, *options: str, system: str = "bm25") -> Iterator[Server]:
    """Run `r2med serve` at a free port until the block ends."""
    arguments = ["serve", system, "--task", TASK, "--port", "0", "--log", str(log), *options]
    process = start(*arguments, stderr=subprocess.STDOUT)
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if address := re.search(r"r2med serve: (http://[^/]+)/search", line):
                break
        else:
            raise AssertionError("".join(lines))
        yield Server(process, address[1], log)
    finally:
        process.kill()
        process.communicate(timeout=30)
