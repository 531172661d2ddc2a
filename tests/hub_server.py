"""A hub in miniature on loopback: the endpoints the real client calls, and the ways they fail."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote, urlsplit

REVISION = re.compile(r"^/api/datasets/([^/]+/[^/]+)/revision/(.+)$")
TREE = re.compile(r"^/api/datasets/([^/]+/[^/]+)/tree/([^/]+)")
RESOLVE = re.compile(r"^/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)$")
SIGNED = re.compile(r"^/signed/([0-9a-f]{64})$")


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    range: str | None
    authorization: str | None


@dataclass
class Repository:
    """One dataset repository with a single commit, reachable by its hash and as `main`."""

    commit: str
    files: Mapping[str, bytes]
    refusal: tuple[int, str] | None = None


@dataclass
class Hub:
    """State of the server: what it serves, how it misbehaves, what it was asked."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    cut_after: int | None = None
    altered: dict[str, bytes] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    endpoint: str = ""

    def add(self, repo: str, commit: str, files: Mapping[str, bytes]) -> None:
        self.repositories[repo] = Repository(commit, files)

    def blob(self, digest: str) -> bytes | None:
        if digest in self.altered:
            return self.altered[digest]
        contents = (c for r in self.repositories.values() for c in r.files.values())
        return next((c for c in contents if sha256(c) == digest), None)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def running_hub() -> Iterator[Hub]:
    """Serve until the block ends; files of 1,000 bytes and more are redirected to a signed URL."""
    hub = Hub()
    handler = type("BoundHandler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the requests are recorded instead."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _see(self) -> str:
        path = unquote(urlsplit(self.path).path)
        headers = self.headers
        self.hub.seen.append(
            Seen(self.command, path, headers.get("Range"), headers.get("Authorization"))
        )
        return path

    def _answer(self) -> None:
        path = self._see()
        if found := SIGNED.match(path):
            return self._send_blob(found[1])
        for pattern, answer in ((REVISION, self._revision), (TREE, self._tree)):
            if found := pattern.match(path):
                repository = self._repository(found[1], found[2])
                return answer(found[1], repository) if repository else None
        if found := RESOLVE.match(path):
            repository = self._repository(found[1], found[2])
            return self._resolve(repository, found[3]) if repository else None
        return self._refuse(404, "RepoNotFound")

    def _repository(self, repo: str, revision: str) -> Repository | None:
        repository = self.hub.repositories.get(repo)
        if repository is None:
            self._refuse(404, "RepoNotFound")
        elif repository.refusal is not None:
            self._refuse(*repository.refusal)
        elif revision not in ("main", repository.commit):
            self._refuse(404, "RevisionNotFound")
        else:
            return repository
        return None

    def _revision(self, repo: str, repository: Repository) -> None:
        self._send_json({"id": repo, "sha": repository.commit, "siblings": []})

    def _tree(self, _repo: str, repository: Repository) -> None:
        self._send_json([_listing(p, c) for p, c in repository.files.items()])

    def _resolve(self, repository: Repository, path: str) -> None:
        content = repository.files.get(path)
        if content is None:
            return self._refuse(404, "EntryNotFound")
        if len(content) < 1000:
            return self._send(200, content, {"ETag": '"small"', "X-Repo-Commit": repository.commit})
        digest = sha256(content)
        self._send(
            302,
            b"",
            {
                "Location": f"{self._other_host()}/signed/{digest}",
                "X-Repo-Commit": repository.commit,
                "X-Linked-Size": str(len(content)),
                "X-Linked-ETag": f'"{digest}"',
            },
        )
        return None

    def _other_host(self) -> str:
        return self.hub.endpoint.replace("127.0.0.1", "localhost")

    def _send_blob(self, digest: str) -> None:
        content = self.hub.blob(digest)
        if content is None:
            return self._refuse(404, "EntryNotFound")
        start = int((self.headers.get("Range") or "bytes=0-").split("=")[1].split("-")[0])
        part = content[start:]
        headers = {"ETag": f'"{digest}"', "Accept-Ranges": "bytes"}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        if self.command == "GET" and self.hub.cut_after is not None:
            kept, self.hub.cut_after = self.hub.cut_after, None
            return self._send_and_hang_up(part, kept, headers)
        return self._send(206 if start else 200, part, headers)

    def _send_and_hang_up(self, content: bytes, kept: int, headers: Mapping[str, str]) -> None:
        self._send_head(200, len(content), headers)
        self.wfile.write(content[:kept])
        self.wfile.flush()
        self.close_connection = True

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"{}", {"X-Error-Code": code, "Content-Type": "application/json"})

    def _send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self._send_head(status, len(content), headers)
        if self.command != "HEAD":
            self.wfile.write(content)

    def _send_head(self, status: int, length: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()


def _listing(path: str, content: bytes) -> dict[str, object]:
    row: dict[str, object] = {"type": "file", "path": path, "size": len(content), "oid": "0" * 40}
    if len(content) >= 1000:
        row["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
    return row
