"""Judging and reviewing at scale: is the server the limit, and does a page come at once?

    python bench/judge.py [--json] [--pairs N] [--queued N]

Floors: 10,000 pairs at 32 requests in parallel, against a server that takes 50 ms per answer,
within 1.15 times the time that the same requests take with a bare client, which does nothing but
send and receive; a review page in under 100 ms with 50,000
pairs queued, one of them in ten labelled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing.queues import Queue
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.tasks.task import Task

PAIRS = 10_000
QUEUED = 50_000
CONCURRENCY = 32
ANSWER_SECONDS = 0.05
MOST_RATIO = 1.15
MOST_PAGE_MS = 100.0
PAGES = 21
_ANSWER = json.dumps({"match": 2, "trustworthiness": 2, "overall": 2, "rationale": "It helps."})
_PASSAGE = "Aspirin irreversibly inhibits cyclooxygenase and so thins the blood. " * 10


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", action="store_true", help="print JSON and nothing else")
    arguments.add_argument("--pairs", type=int, default=PAIRS)
    arguments.add_argument("--queued", type=int, default=QUEUED)
    chosen = arguments.parse_args()
    ports: Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=serve, args=(ports,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{ports.get()}/v1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["R2MED_HOME"] = f"{folder}/home"
        try:
            measure_judging(url, Path(folder) / "warm", 200)
            limit = measure_server(url, chosen.pairs)
            seconds, cpu_ms = measure_judging(url, Path(folder) / "results", chosen.pairs)
        finally:
            server.terminate()
        page_ms, post_ms = measure_pages(Path(folder) / "review", chosen.queued)
    waiting = -(-chosen.pairs // CONCURRENCY) * ANSWER_SECONDS
    ratio = seconds / limit
    is_met = ratio <= MOST_RATIO and page_ms < MOST_PAGE_MS
    values = {
        "met": is_met,
        "pairs": chosen.pairs,
        "seconds": seconds,
        "limit": limit,
        "ratio": ratio,
        "waiting": waiting,
        "ratio_to_waiting": seconds / waiting,
        "cpu_ms_per_pair": cpu_ms,
        "queued": chosen.queued,
        "page_ms": page_ms,
        "decision_ms": post_ms,
    }
    if chosen.json:
        print(json.dumps(values))
    else:
        print(f"{chosen.pairs:,} pairs, {CONCURRENCY} in parallel: {seconds:.2f} s")
        print(f"  server's limit {limit:.2f} s, ratio {ratio:.3f} (floor {MOST_RATIO})")
        print(f"  50 ms per answer alone {waiting:.2f} s, ratio {seconds / waiting:.3f}")
        print(f"  {cpu_ms:.2f} ms of CPU per pair")
        print(f"review page with {chosen.queued:,} pairs queued: {page_ms:.1f} ms (floor 100)")
        print(f"  decision and next page {post_ms:.1f} ms")
        print("met" if is_met else "NOT MET")
    return 0 if is_met else 1


def measure_server(url: str, requests: int) -> float:
    """Return the seconds that a bare client needs for requests of the same size."""
    host, _, port = url.removeprefix("http://").removesuffix("/v1").partition(":")
    body = json.dumps({"messages": [{"role": "user", "content": _PASSAGE * 4}]}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n"
    request = head % len(body) + body
    left = iter(range(requests))

    async def send() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        for _ in left:
            writer.write(request)
            header = await reader.readuntil(b"\r\n\r\n")
            length = header.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        writer.close()

    async def run() -> None:
        await asyncio.gather(*(send() for _ in range(CONCURRENCY)))

    began = time.perf_counter()
    asyncio.run(run())
    return time.perf_counter() - began


def measure_judging(url: str, results: Path, pairs: int) -> tuple[float, float]:
    """Return the seconds of judging a pool, and the milliseconds of CPU per pair."""
    from r2med.judge.judging import judge_pool, open_set
    from r2med.judge.panel import open_panel
    from r2med.judge.pool import Pool
    from r2med.judge.rubric import find_rubric
    from r2med.remote.budget import Limits
    from r2med.remote.chat import Remote

    task = make_task(queries=100, documents=max(1, pairs // 100))
    asked = tuple(
        (query_id, document_id)
        for query_id in task.queries.ids.to_pylist()
        for document_id in task.corpus.ids.to_pylist()
    )[:pairs]
    pool = Pool(asked, {}, {}, dict.fromkeys(asked, ("bm25",)), 0)
    remote = Remote(Limits(concurrency=CONCURRENCY), url=url)
    panel = open_panel([f"judge-{pairs}"], find_rubric("graded"), remote)
    judged = open_set(task, panel, results, name=None, depth=10, warn=print)
    began, busy = time.perf_counter(), time.process_time()
    judge_pool(task, pool, [], panel, judged)
    seconds, spent = time.perf_counter() - began, time.process_time() - busy
    assert len(judged.grades()) == len(asked)
    remote.close()
    return seconds, 1000 * spent / len(asked)


def measure_pages(results: Path, queued: int) -> tuple[float, float]:
    """Return the median milliseconds of a page, and of a decision with the page that follows."""
    from starlette.testclient import TestClient

    from r2med.explore.review import ReviewSession, create_review_app
    from r2med.judge.pool import query_texts, texts_of
    from r2med.judge.review import ReviewQueue, ReviewStore, label_pair
    from r2med.judge.rubric import find_rubric
    from r2med.judge.store import Pair

    task = make_task(queries=500, documents=-(-queued // 500))
    pairs = tuple(
        (query_id, document_id)
        for query_id in task.queries.ids.to_pylist()
        for document_id in task.corpus.ids.to_pylist()
    )[:queued]
    store = ReviewStore(results, task.name, task.suite, warn=print)
    queue = store.open(ReviewQueue(find_rubric("graded"), pairs, {}, "texts"))
    store.add(*(label_pair(queue, "ann", p, 1) for p in queue.order("ann")[: queued // 10]))
    queries = query_texts(task)

    def texts(pair: Pair) -> dict[str, str]:
        return {**queries[pair[0]], "passage": texts_of(task, [pair[1]])[pair[1]]}

    session = ReviewSession(queue, store, "ann", texts, "bench")
    client = TestClient(create_review_app(session), base_url="http://127.0.0.1")
    page = client.get("/?marks=1").text
    pages, decisions = [], []
    for _ in range(PAGES):
        began = time.perf_counter()
        page = client.get("/?marks=1").text
        pages.append(time.perf_counter() - began)
        code = page.partition('name="code" value="')[2][:12]
        began = time.perf_counter()
        form = {"code": code, "label": "2", "marks": "1"}
        answer = client.post("/decide", data=form, headers={"Origin": "http://127.0.0.1"})
        decisions.append(time.perf_counter() - began)
        assert answer.status_code == 200
    return 1000 * median(pages), 1000 * median(decisions)


def make_task(queries: int, documents: int) -> Task:
    import pyarrow as pa

    from r2med.tasks.task import Corpus, Judgements, Queries, Task

    ids = [f"d{number}" for number in range(documents)]
    texts = [f"Passage {number}. {_PASSAGE}" for number in range(documents)]
    return Task(
        name="bench",
        suite=None,
        corpus=Corpus(pa.array(ids, pa.large_string()), pa.array(texts, pa.large_string())),
        queries=Queries.of(
            [f"q{number}" for number in range(queries)],
            [f"Which drug thins the blood, case {number}?" for number in range(queries)],
        ),
        judgements=Judgements.none(),
        source=Path("bench"),
    )


def serve(ports: Queue[int]) -> None:
    """Answer every request after 50 ms, in a process of its own, with as little HTTP as needed."""
    message = {"role": "assistant", "content": _ANSWER}
    value = {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 30, "total_tokens": 330},
    }
    content = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    answer = head % len(content) + content

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = await reader.readuntil(b"\r\n\r\n")
                length = header.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
                await reader.readexactly(int(length))
                await asyncio.sleep(ANSWER_SECONDS)
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, backlog=256)
        ports.put(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(run())


if __name__ == "__main__":
    sys.exit(main())
