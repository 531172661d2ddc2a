"""API encoders: what is sent, what is kept, what is paid, and the real SDKs beside them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pytest

from r2med.errors import DataError, LimitError, MissingError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.remote.budget import Limits
from r2med.retrieve.api import ApiRetriever, ApiSettings, build
from r2med.settings import parse_settings
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.tasks.task import Task
from tests.llm_server import LLMServer, cut, fails, garbled, running_llm_server, slow, vector_of
from tests.retrieve.small_task import DOCUMENTS, QUERIES, own_task

pytest.importorskip("aiohttp")

QUICK = Limits(concurrency=2, timeout=10, backoff=0.001)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LLMServer]:
    for name in ("OPENAI_API_KEY", "VOYAGE_API_KEY", "R2MED_EMBED_URL", "R2MED_EMBED_KEY"):
        monkeypatch.delenv(name, raising=False)
    with running_llm_server() as running:
        yield running


def retriever(name: str, url: str = "", *, limits: Limits = QUICK, **options: str) -> ApiRetriever:
    given: Mapping[str, str] = options | ({"url": url} if url else {})
    entry = entries()[name].override(given)
    return build(
        parse_settings(ApiSettings, entry.fields, name=name), Resources(RunOptions(limits=limits))
    )


def sent_to(server: LLMServer) -> list[str]:
    return [text for body in server.bodies for text in body["input"]]


@pytest.mark.parametrize("name", ["openai", "voyage"])
def test_the_published_names_send_every_text_quoted(server: LLMServer, name: str) -> None:
    task = own_task({"d1": 'two\nlines of "text" é'}, {"q1": "why?"})

    retriever(name, server.url).prepare(task).search(task.queries, depth=5)

    assert sent_to(server) == ['"two lines of \\"text\\" \\u00e9"', '"why?"']


@pytest.mark.parametrize("name", ["openai-raw", "voyage-raw"])
def test_the_raw_names_send_texts_as_they_are(server: LLMServer, name: str) -> None:
    task = own_task({"d1": 'two\nlines of "text" é', "d2": ""}, {"q1": "why?"})

    retriever(name, server.url).prepare(task).search(task.queries, depth=5)

    assert sorted(sent_to(server)) == sorted(['two\nlines of "text" é', " ", "why?"])


def test_voyage_is_told_the_side(server: LLMServer) -> None:
    task = own_task()

    retriever("voyage", server.url).prepare(task).search(task.queries, depth=5)

    assert [body["input_type"] for body in server.bodies] == ["document", "query"]


def test_scores_are_cosines_of_the_servers_vectors(server: LLMServer) -> None:
    task = own_task({"d1": "one", "d2": "two"}, {"q1": "ask"})

    run = retriever("openai-raw", server.url).prepare(task).search(task.queries, depth=2)

    query = np.array(vector_of("ask"))
    wanted = {
        name: float(query @ other / np.linalg.norm(query) / np.linalg.norm(other))
        for name, other in (("d1", np.array(vector_of("one"))), ("d2", np.array(vector_of("two"))))
    }
    found = dict(
        zip(
            [run.document_ids[int(row)].as_py() for row in run.documents],
            run.scores.tolist(),
            strict=True,
        )
    )
    assert found == pytest.approx(wanted, abs=1e-6)


def test_equal_texts_are_paid_for_once_and_a_second_run_asks_nobody(server: LLMServer) -> None:
    task = own_task()
    first = retriever("openai", server.url)
    first.prepare(task).search(task.queries, depth=5)
    asked = len(server.seen)

    second = retriever("openai", server.url)
    second.prepare(task).search(task.queries, depth=5)

    texts = sent_to(server)
    assert len(texts) == len(set(texts)) == len(set(DOCUMENTS.values()) | set(QUERIES.values()))
    assert len(server.seen) == asked


def test_requests_hold_no_more_texts_and_tokens_than_allowed(server: LLMServer) -> None:
    task = own_task({f"d{i}": "word " * (i + 1) for i in range(10)}, {"q1": "ask"})

    retriever("openai-raw", server.url, most_texts="3", most_tokens="15").prepare(task)

    assert max(len(body["input"]) for body in server.bodies) == 3
    long = [body for body in server.bodies if sum(len(t) for t in body["input"]) > 15 * 4 + 3]
    assert not long


@pytest.mark.parametrize(
    "trouble",
    [
        fails(429, retry_after="0"),
        fails(500),
        cut(),
        garbled(),
        garbled(b'{"data": []}'),
        garbled(b'{"data": [{"index": 0, "embedding": "%%%"}]}'),
        garbled(b'{"data": [{"index": 7, "embedding": [1.0]}]}'),
        garbled(b'{"data": [{"index": 0, "embedding": []}]}'),
    ],
    ids=["429", "500", "cut", "not json", "none", "not base64", "wrong place", "no numbers"],
)
def test_passing_trouble_is_retried(server: LLMServer, trouble: object) -> None:
    server.script = [trouble]  # type: ignore[list-item]
    task = own_task({"d1": "one"}, {"q1": "ask"})

    run = retriever("openai-raw", server.url).prepare(task).search(task.queries, depth=1)

    assert len(run.documents) == 1
    assert len(server.seen) == 3


def test_a_slow_answer_is_asked_for_again(server: LLMServer) -> None:
    server.script = [slow(5)]
    task = own_task({"d1": "one"}, {"q1": "ask"})

    retriever("openai-raw", server.url, limits=replace(QUICK, timeout=0.2)).prepare(task)

    assert len(server.seen) == 2


def test_nothing_paid_for_is_lost_when_it_fails_half_way(server: LLMServer) -> None:
    task = own_task({f"d{i}": f"text {i}" for i in range(6)}, {"q1": "ask"})
    limits = replace(QUICK, concurrency=1, attempts=1)
    ok = garbled(b"")
    server.script = [replace(ok, content=None), fails(500), replace(ok, content=None)]
    with pytest.raises(MissingError, match=r"1 of 6 requests failed.*HTTP 500"):
        retriever("openai", server.url, limits=limits, most_texts="1").prepare(task)
    answered = [text for i, text in enumerate(sent_to(server)) if i != 1]

    retriever("openai", server.url, most_texts="1").prepare(task)

    assert all(sent_to(server).count(text) == 1 for text in answered)
    assert len(server.seen) == 7


def test_a_request_too_large_for_the_server_is_halved(server: LLMServer) -> None:
    task = own_task({f"d{i}": f"text {i}" for i in range(4)}, {"q1": "ask"})
    server.script = [fails(400, "too many tokens in one request")]

    retriever("openai-raw", server.url).prepare(task)

    assert [len(body["input"]) for body in server.bodies] == [4, 2, 2]


def test_a_text_that_the_server_never_takes_is_named(server: LLMServer) -> None:
    task = own_task({"d1": "odd text"}, {"q1": "ask"})
    server.script = [fails(400, "unreadable")]

    with pytest.raises(DataError, match=r"unreadable.*\n.*'odd text'"):
        retriever("openai-raw", server.url).prepare(task)


def test_a_limit_of_money_stops_and_keeps(server: LLMServer) -> None:
    task = own_task({f"d{i}": f"a text of five words {i}" for i in range(9)}, {"q1": "ask"})
    limits = replace(QUICK, money=0.13 * 40 / 1e6, concurrency=1)

    with pytest.raises(LimitError, match=r"All answers received so far are stored"):
        retriever("openai-raw", server.url, limits=limits, most_texts="1").prepare(task)
    paid = len(server.seen)
    retriever("openai-raw", server.url, most_texts="1").prepare(task)

    assert 1 <= paid <= 4
    assert len(server.seen) == 9


def test_the_cost_is_estimated_before_and_counted_after(server: LLMServer) -> None:
    task = own_task({"d1": "x" * 400, "d2": "y" * 400}, {"q1": "z" * 40})
    searching = retriever("openai-raw", server.url)

    estimate = searching.estimate(task)
    searcher = searching.prepare(task)
    indexed = searcher.usage
    searched = searcher.search_queries(task.queries, depth=1).usage

    assert estimate.prompt_tokens == 210
    assert estimate.calls == 2
    assert estimate.money == pytest.approx(210 * 0.13 / 1e6)
    assert (indexed.tokens, indexed.calls) == (2, 1)
    assert (searched.tokens, searched.calls) == (1, 1)
    assert searched.money == pytest.approx(1 * 0.13 / 1e6)
    assert searching.estimate(task).money == 0


def test_a_key_goes_only_to_the_address_it_belongs_to(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor")
    task = own_task({"d1": "one"}, {"q1": "ask"})

    retriever("openai", server.url).prepare(task)
    monkeypatch.setenv("R2MED_EMBED_KEY", "own")
    retriever("openai-raw", server.url).prepare(task)

    assert [seen.authorization for seen in server.seen] == [None, "Bearer own"]


def test_a_missing_key_is_named_before_anything_is_sent() -> None:
    task = own_task({"d1": "one"}, {"q1": "ask"})

    with pytest.raises(MissingError, match="OPENAI_API_KEY"):
        retriever("openai").prepare(task)


def test_no_key_is_in_identity_facts_or_errors(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MED_EMBED_KEY", "sk-secret")
    task = own_task({"d1": "one"}, {"q1": "ask"})
    searching = retriever("openai", server.url)
    facts = searching.prepare(task).facts()
    server.script = [fails(401, "bad key sk-secret")]

    with pytest.raises(MissingError) as caught:
        retriever("openai-raw", server.url).prepare(task)

    shown = json.dumps(facts, default=str) + json.dumps(dict(searching.identity), default=str)
    assert "sk-secret" not in shown + repr(searching) + str(caught.value)


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (401, "needs a key or does not accept this one"),
        (404, "check the server's address"),
    ],
)
def test_running_again_is_not_advised_where_it_cannot_help(
    server: LLMServer, status: int, advice: str
) -> None:
    server.script = [fails(status, "no")]

    with pytest.raises(MissingError, match=advice) as caught:
        retriever("openai-raw", server.url).prepare(own_task())

    assert "run again" not in str(caught.value)


def test_any_model_of_any_server_can_be_named(server: LLMServer) -> None:
    task = own_task({"d1": "one"}, {"q1": "ask"})

    retriever("api", server.url, model="me/embed", query_instruction="Q: ").prepare(task).search(
        task.queries, depth=1
    )

    assert [body["model"] for body in server.bodies] == ["me/embed"] * 2
    assert sent_to(server) == ["one", "Q: ask"]


def test_a_model_without_a_name_or_server_is_an_error() -> None:
    with pytest.raises(UsageError, match="the model is missing"):
        retriever("api")
    with pytest.raises(MissingError, match=r"\[url=\.\.\.\] or R2MED_EMBED_URL"):
        _ = retriever("api", model="me/embed").identity


def test_a_killed_run_goes_on_where_it_was(server: LLMServer) -> None:
    code = (
        "from tests.retrieve.api.test_api import retriever, many_texts; import sys;"
        "retriever('openai', sys.argv[1], most_texts='1').prepare(many_texts())"
    )
    server.script = [slow(0.05)] * 400
    process = subprocess.Popen([sys.executable, "-c", code, server.url], env=os.environ | _PATHS)
    while len(server.seen) < 12:
        time.sleep(0.01)
    process.kill()
    process.wait()
    server.script.clear()

    retriever("openai", server.url, most_texts="1").prepare(many_texts())

    asked = sent_to(server)
    assert len(set(asked)) == 40
    assert len(asked) - 40 <= QUICK.concurrency


def many_texts() -> Task:
    return own_task({f"d{i}": f"text {i}" for i in range(40)}, {"q1": "ask"})


_PATHS = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}


@pytest.mark.parametrize(
    "option", ["query_instruction", "document_instruction", "max_length", "quoted", "similarity"]
)
def test_systems_that_differ_in_an_option_are_two_systems(server: LLMServer, option: str) -> None:
    values = {"max_length": "5", "quoted": "true", "similarity": "dot"}
    changed = f"{option}={values.get(option, 'Q')}"
    plain = f"api:m[tokenizer=tiktoken:cl100k_base,url={server.url}]"
    other = f"api:m[{changed},tokenizer=tiktoken:cl100k_base,url={server.url}]"
    task = own_task()

    identities = [System.from_spec(spec).stage.identity(task) for spec in (plain, other)]

    assert identities[0] != identities[1]


def test_an_interrupted_run_keeps_every_vector_that_arrived(server: LLMServer) -> None:
    code = (
        "from tests.retrieve.api.test_api import retriever, many_texts; import sys;"
        "retriever('openai', sys.argv[1], most_texts='1').prepare(many_texts())"
    )
    server.script = [slow(0.05)] * 400
    process = subprocess.Popen(
        [sys.executable, "-c", code, server.url],
        env=os.environ | _PATHS,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(server.seen) < 12:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    error = process.communicate()[1]
    server.script.clear()

    retriever("openai", server.url, most_texts="1").prepare(many_texts())

    assert "KeyboardInterrupt" in error
    assert len(sent_to(server)) - 40 <= 2


def test_another_model_does_not_have_the_price_of_the_one_it_replaces() -> None:
    limited = Resources(RunOptions(limits=Limits(money=1.0)))

    def price(**options: str) -> float | None:
        settings = parse_settings(ApiSettings, entries()["openai"].override(options).fields)
        known = settings.known_price()
        return known.prompt if known else None

    assert price() == 0.13
    assert price(model="text-embedding-3-small") is None
    assert price(model="text-embedding-3-small", price="0.02") == 0.02
    with pytest.raises(UsageError, match="no price is known for text-embedding-3-small"):
        System.from_spec("openai[model=text-embedding-3-small]", limited)
