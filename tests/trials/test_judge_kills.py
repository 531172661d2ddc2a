"""Killed at any moment, neither judging nor the review page loses a decision."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest

from r2med.judge.review import ReviewStore
from r2med.judge.store import Judgement, JudgementStore
from r2med.tasks.load import load_task
from tests.cli.running import run, start
from tests.cli.test_judge import grade_by_answer
from tests.judge.making import store_grades
from tests.llm_server import LLMServer, Step, running_llm_server

KILLS = 3
TASK = ("--task", "demo/biology")
RESULTS = Path("r2med-results")
PROGRAM = [sys.executable, "-c", "from r2med.cli import main; main()"]


def test_a_killed_judge_loses_no_judgement_and_asks_nothing_twice(trials: int) -> None:
    chance = random.Random(33)
    assert run("eval", "bm25", "bm25-nano", *TASK).code == 0
    task = load_task("demo/biology")
    seen: dict[tuple[str, str], Judgement] = {}
    with running_llm_server() as server:
        server.reply = grade_by_answer
        server.script = [Step(seconds=0.02)] * 10_000
        words = ["judge", "bm25", "bm25-nano", *TASK, "--judge", "scripted"]
        words += ["--llm-url", server.url, "--concurrency", "4"]
        for _ in range(KILLS * trials):
            process = start(*words)
            wait_for_requests(server, len(server.seen) + 1, process)
            time.sleep(chance.uniform(0, 0.6))
            process.kill()
            process.communicate()
            for judged in JudgementStore(RESULTS, warn=pytest.fail).sets(task):
                stored = judged.judgements()
                assert {pair: stored[pair] for pair in seen} == seen
                seen = stored
        answered = len(server.billed)
        done = run(*words)

    assert done.code == 0, done.err
    [judged] = JudgementStore(RESULTS, warn=pytest.fail).sets(task)
    final = judged.judgements()
    assert {pair: final[pair] for pair in seen} == seen
    prompts = [str(request.body["messages"]) for request in server.seen]
    repeated = len(prompts) - len(set(prompts))
    assert repeated <= 4 * KILLS * trials  # requests under way at each kill
    assert answered and len(final) == len(set(prompts))


def wait_for_requests(server: LLMServer, count: int, process: subprocess.Popen[str]) -> None:
    while len(server.seen) < count and process.poll() is None:
        time.sleep(0.01)


def test_a_killed_review_page_loses_no_acknowledged_decision(trials: int) -> None:
    chance = random.Random(34)
    task = load_task("demo/biology")
    documents = task.corpus.document_ids.to_pylist()[:30]
    grades = {(q, d): len(q + d) % 4 for q in task.queries.ids.to_pylist() for d in documents}
    store_grades(RESULTS, task, "judge", grades)
    acknowledged: list[str] = []
    for _ in range(KILLS * trials):
        with_page = [*PROGRAM, "review", *TASK, "--reviewer", "ann", "--no-open", "--port", "0"]
        with subprocess.Popen(with_page, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            url = process.stdout.readline().split()[2]
            killer = threading.Timer(chance.uniform(0.1, 0.6), process.kill)
            killer.start()
            while process.poll() is None:
                label_next(url, acknowledged)
            killer.join()

    store = ReviewStore(RESULTS, task.name, task.suite, warn=pytest.fail)
    queue, labels = store.queue(), store.labels()["ann"]
    stored = {queue.code(pair): label for pair, label in labels.items()}
    assert len(acknowledged) >= KILLS * trials
    assert {code: stored.get(code) for code in acknowledged} == {
        code: int(code, 16) % 4 for code in acknowledged
    }


def label_next(url: str, acknowledged: list[str]) -> None:
    """Label the pair that the page shows; it is acknowledged once the next page is here."""
    try:
        with urlopen(url) as answer:
            page = answer.read().decode()
        code = re.search(r'name="code" value="([0-9a-f]+)"', page)
        if code is None:
            return
        form = urlencode({"code": code[1], "label": str(int(code[1], 16) % 4)}).encode()
        headers = {"Origin": url.rstrip("/")}
        with urlopen(Request(f"{url}decide", form, headers)) as answer:
            answer.read()
        acknowledged.append(code[1])
    except (URLError, ConnectionError):
        return
