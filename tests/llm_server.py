"""A model server in miniature on loopback: chat and embeddings, and the ways they go wrong.

    with running_llm_server() as server:
        server.script.extend([fails(429, retry_after="0"), says("A passage.")])
        ...                                  # the client under test talks to server.url
        assert server.bodies[0]["messages"]

Each request takes the next step of the script; when the script is empty it is answered by
`server.reply`, a function from the request's body to a text. No answer has more words than
`max_tokens` allows. Every request that is worked on is billed, whether or not its answer arrives:
`server.billed` counts tokens by `server.count`, and `server.cost` gives them a price.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

WIDTH = 8


@dataclass(frozen=True)
class Step:
    """How one request is answered."""

    status: int = 200
    content: bytes | None = None
    """None is worked out from the request."""
    headers: Mapping[str, str] = field(default_factory=dict)
    message: Mapping[str, object] | None = None
    finish: str = "stop"
    seconds: float = 0.0
    cut: bool = False
    """Whether the connection ends in the middle of the answer."""


def says(
    text: str | None,
    *,
    finish: str = "stop",
    reasoning: str | None = None,
    refusal: str | None = None,
    seconds: float = 0.0,
) -> Step:
    message: dict[str, object] = {"role": "assistant", "content": text}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if refusal is not None:
        message["refusal"] = refusal
    return Step(message=message, finish=finish, seconds=seconds)


def fails(
    status: int, message: str = "no", *, code: str | None = None, retry_after: str | None = None
) -> Step:
    content = json.dumps({"error": {"message": message, "code": code, "type": "error"}}).encode()
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Step(status, content, headers)


def slow(seconds: float) -> Step:
    return Step(seconds=seconds)


def cut() -> Step:
    return Step(cut=True)


def garbled(content: bytes = b'{"choices": [{"mess') -> Step:
    return Step(content=content)


EMPTY = says("")
REFUSING = says("I'm sorry, but I can't help with that.")
UNCLOSED_THOUGHT = says("<think> The patient has a rash, so first I consider", finish="length")
MALFORMED_TAGS = says("<search aspirin </serach> <|begin_search_query aspirin|>")


@dataclass(frozen=True)
class Seen:
    """A request as it arrived."""

    path: str
    body: dict[str, Any]
    authorization: str | None
    at: float
    port: int
    """The client's: requests over one connection have one port."""


@dataclass
class LLMServer:
    """State of the server: what it will answer, and what it was asked."""

    script: list[Step] = field(default_factory=list)
    reply: Callable[[dict[str, Any]], str] = lambda body: f"about {body['messages'][-1]['content']}"
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    most_at_once: int = 0
    under_way: int = 0
    count: Callable[[str], int] = lambda text: len(text.split())
    alternatives: Callable[[str], dict[str, float]] | None = None
    """From a bare prompt to the log-probabilities of the next token; None tells none."""
    billed: list[tuple[int, int]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def tokens(self) -> int:
        return sum(map(sum, self.billed))

    def cost(self, price_in: float, price_out: float) -> float:
        return sum(prompt * price_in + new * price_out for prompt, new in self.billed) / 1e6

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.seen]


@contextmanager
def running_llm_server() -> Iterator[LLMServer]:
    """Serve until the block ends."""
    server = LLMServer()
    handler = type("BoundHandler", (_Handler,), {"server_state": server})
    http = _Server(("127.0.0.1", 0), handler)
    server.url = f"http://127.0.0.1:{http.server_address[1]}/v1"
    thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def vector_of(text: str) -> list[float]:
    """The embedding of a text here: a function of its characters alone."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return [struct.unpack_from("<H", digest, 2 * i)[0] / 65536 - 0.5 for i in range(WIDTH)]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server_state: ClassVar[LLMServer]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the requests are recorded instead."""

    def do_POST(self) -> None:
        state = self.server_state
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with state.lock:
            key = self.headers.get("Authorization")
            port = self.client_address[1]
            state.seen.append(Seen(self.path, body, key, time.monotonic(), port))
            step = state.script.pop(0) if state.script else Step()
            state.under_way += 1
            answer = self._answer(step, body) if step.content is None else None
            state.most_at_once = max(state.most_at_once, state.under_way)
        try:
            if step.seconds:
                time.sleep(step.seconds)
            self._send(step, answer)
        finally:
            with state.lock:
                state.under_way -= 1

    def _answer(self, step: Step, body: dict[str, Any]) -> dict[str, Any]:
        embeds = self.path.endswith("/embeddings")
        answer = self._embeddings(body) if embeds else self._completion(step, body)
        usage = answer["usage"]
        prompt = usage["prompt_tokens"]
        self.server_state.billed.append((prompt, usage["total_tokens"] - prompt))
        return answer

    def _send(self, step: Step, answer: dict[str, Any] | None) -> None:
        content = step.content
        if content is None:
            content = json.dumps(answer).encode()
        self.send_response(step.status)
        for name, header in step.headers.items():
            self.send_header(name, header)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if step.cut:
            self.wfile.write(content[: len(content) // 2])
            self.close_connection = True
        else:
            self.wfile.write(content)

    def _completion(self, step: Step, body: dict[str, Any]) -> dict[str, Any]:
        bare = "prompt" in body
        message = step.message
        if message is None:
            text = self.server_state.reply(body)
            most = body.get("max_tokens") or body.get("max_completion_tokens")
            if most and len(text.split()) > most:
                text = " ".join(text.split()[:most])
            message = {"role": "assistant", "content": text}
        turns = [body["prompt"]] if bare else [turn["content"] for turn in body["messages"]]
        prompt = sum(self.server_state.count(str(turn)) for turn in turns)
        new = len(str(message.get("content") or "").split())
        said: dict[str, Any] = {"text": message["content"]} if bare else {"message": message}
        if "logprobs" in body and self.server_state.alternatives:
            said["logprobs"] = {"top_logprobs": [self.server_state.alternatives(body["prompt"])]}
        return {
            "id": "chatcmpl-0",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, **said, "finish_reason": step.finish}],
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": new,
                "total_tokens": prompt + new,
            },
        }

    def _embeddings(self, body: dict[str, Any]) -> dict[str, Any]:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        tokens = sum(self.server_state.count(text) for text in texts)
        rows = [
            {"object": "embedding", "index": index, "embedding": _encoded(vector_of(text), body)}
            for index, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": rows, "model": body["model"], "usage": usage}


def _encoded(vector: list[float], body: dict[str, Any]) -> list[float] | str:
    if body.get("encoding_format") != "base64":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
