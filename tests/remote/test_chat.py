"""A chat keeps order, keeps answers, keeps going, and stops cleanly."""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest

from r2med.errors import MissingError, UsageError
from r2med.remote.budget import Limits
from r2med.remote.chat import Chat
from r2med.remote.completions import ChatRequest, Message
from r2med.remote.requests import Session
from tests.llm_server import (
    EMPTY,
    MALFORMED_TAGS,
    REFUSING,
    UNCLOSED_THOUGHT,
    LLMServer,
    cut,
    fails,
    garbled,
    says,
    slow,
)
from tests.remote.asking import QUICK, ask, chat_at, open_chat

pytest.importorskip("aiohttp")


def test_answers_come_in_the_order_of_the_requests(server: LLMServer) -> None:
    def reply(body: dict[str, Any]) -> str:
        text = str(body["messages"][-1]["content"])
        time.sleep(0.2 if text == "one" else 0)
        return text

    server.reply = reply

    with chat_at(server.url) as chat:
        answers = chat.complete([ask("one"), ask("two"), ask("three")])

    assert [answer.text for answer in answers] == ["one", "two", "three"]


def test_the_published_parameters_are_sent(server: LLMServer) -> None:
    with chat_at(server.url) as chat:
        chat.complete([ask("what?", sample=2)])

    assert server.bodies[0] == {
        "model": "Qwen/Qwen2.5-7B-Instruct",
        "messages": [{"role": "user", "content": "what?"}],
        "temperature": 0.7,
        "seed": 44,
        "max_tokens": 10240,
    }


def test_a_model_that_accepts_no_temperature_gets_none(server: LLMServer) -> None:
    with chat_at(server.url, name="o3-mini") as chat:
        chat.complete([replace(ask("what?"), max_tokens=9)])

    assert set(server.bodies[0]) == {"model", "messages", "max_completion_tokens"}


def test_a_request_overrides_length_and_stops(server: LLMServer) -> None:
    request = ChatRequest((Message("user", "x"),), stop=("</search>",), max_tokens=7)

    with chat_at(server.url) as chat:
        chat.complete([request])

    assert server.bodies[0]["max_tokens"] == 7
    assert server.bodies[0]["stop"] == ["</search>"]


def test_nothing_is_asked_twice_across_chats(server: LLMServer) -> None:
    requests = [ask("a"), ask("b"), ask("a")]
    with chat_at(server.url) as chat:
        first = chat.complete(requests)

    with chat_at(server.url) as chat:
        second = chat.complete(requests)

    assert [answer.text for answer in first] == [answer.text for answer in second]
    assert all(answer.cached for answer in second)
    assert len(server.seen) == 2
    assert chat.usage()["calls"] == 0
    assert chat.usage()["cached"] == 2


@pytest.mark.parametrize(
    "other", [{"temperature": "0.1"}, {"model": "other"}, {"seed": "7"}, {"max_tokens": "5"}]
)
def test_other_parameters_are_asked_anew(server: LLMServer, other: dict[str, str]) -> None:
    with chat_at(server.url) as chat:
        chat.complete([ask("a")])

    with open_chat("qwen-7b", url=server.url, options=other, limits=QUICK) as chat:
        chat.complete([ask("a")])

    assert len(server.seen) == 2


def test_another_sample_is_asked_anew(server: LLMServer) -> None:
    with chat_at(server.url) as chat:
        chat.complete([ask("a"), ask("a", sample=1)])

    assert sorted(body["seed"] for body in server.bodies) == [42, 43]


def test_fresh_asks_again_once_and_the_new_answer_stays(server: LLMServer) -> None:
    server.script = [says("old"), says("new")]
    with chat_at(server.url) as chat:
        chat.complete([ask("a")])

    with chat_at(server.url, fresh=True) as chat:
        again = [chat.complete([ask("a")])[0].text, chat.complete([ask("a")])[0].text]
    with chat_at(server.url) as chat:
        later = chat.complete([ask("a")])[0].text

    assert again == ["new", "new"]
    assert later == "new"
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    "trouble",
    [
        fails(429),
        fails(500),
        fails(503),
        cut(),
        garbled(),
        garbled(b'{"choices": []}'),
        garbled(b""),
    ],
    ids=["429", "500", "503", "cut", "malformed", "no choices", "nothing"],
)
def test_passing_trouble_is_retried(server: LLMServer, trouble: object) -> None:
    server.script = [trouble, says("there")]  # type: ignore[list-item]

    with chat_at(server.url) as chat:
        answer = chat.complete([ask("a")])[0]

    assert answer.text == "there"
    assert len(server.seen) == 2


def test_an_answer_that_takes_too_long_is_asked_for_again(server: LLMServer) -> None:
    server.script = [slow(5), says("there")]

    with chat_at(server.url, limits=replace(QUICK, timeout=0.2)) as chat:
        answer = chat.complete([ask("a")])[0]

    assert answer.text == "there"


def test_the_wait_that_a_server_asks_for_is_kept(server: LLMServer) -> None:
    server.script = [fails(429, retry_after="1")]

    with chat_at(server.url) as chat:
        chat.complete([ask("a")])

    assert server.seen[1].at - server.seen[0].at >= 1


def test_a_wait_until_a_date_is_kept(server: LLMServer) -> None:
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    server.script = [fails(503, retry_after=format_datetime(until, usegmt=True))]

    with chat_at(server.url) as chat:
        chat.complete([ask("a")])

    assert server.seen[1].at - server.seen[0].at >= 0.5


def test_a_server_that_asks_to_come_back_tomorrow_is_an_error(server: LLMServer) -> None:
    server.script = [fails(429, "quota", retry_after="86400")]

    with chat_at(server.url) as chat, pytest.raises(MissingError, match=r"wait 86,400 s"):
        chat.complete([ask("a")])


def test_a_failure_keeps_what_arrived_and_the_next_run_asks_only_for_the_rest(
    server: LLMServer,
) -> None:
    limits = replace(QUICK, concurrency=1, attempts=2)
    server.script = [says("1"), fails(500), fails(500), says("3")]
    requests = [ask("a"), ask("b"), ask("c")]
    told = r"1 of 3 requests have no answer.*HTTP 500: no"
    with chat_at(server.url, limits=limits) as chat, pytest.raises(MissingError, match=told):
        chat.complete(requests)

    with chat_at(server.url) as chat:
        answers = chat.complete(requests)

    assert [answer.text for answer in answers] == ["1", "about b", "3"]
    assert len(server.seen) == 5


def test_a_wrong_key_stops_at_once_and_is_never_shown(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MED_LLM_KEY", "sk-very-secret")
    server.script = [fails(401, "Incorrect API key provided: sk-very-secret")]
    limits = replace(QUICK, concurrency=1)

    with chat_at(server.url, limits=limits) as chat, pytest.raises(MissingError) as caught:
        chat.complete([ask(str(i)) for i in range(20)])

    assert server.seen[0].authorization == "Bearer sk-very-secret"
    assert "sk-very-secret" not in str(caught.value)
    assert "***" in str(caught.value)
    assert len(server.seen) < 4


def test_a_server_that_is_gone_is_given_up() -> None:
    nowhere = "http://127.0.0.1:9/v1"
    limits = replace(QUICK, concurrency=1, attempts=2)

    told = r"127.0.0.1:9.*20 of 20.*tried 2 times"

    with chat_at(nowhere, limits=limits) as chat, pytest.raises(MissingError, match=told):
        chat.complete([ask(str(i)) for i in range(20)])


@pytest.mark.parametrize(
    ("step", "finish", "text"),
    [
        (EMPTY, "empty", ""),
        (says(None), "empty", ""),
        (REFUSING, "stop", "I'm sorry, but I can't help with that."),
        (says(None, refusal="No."), "refusal", ""),
        (says("half a", finish="length"), "length", "half a"),
        (says("x", finish="content_filter"), "refusal", "x"),
        (MALFORMED_TAGS, "stop", "<search aspirin </serach> <|begin_search_query aspirin|>"),
        (says("I cannot stress enough: " + "aspirin thins blood. " * 40), "stop", None),
        (fails(400, "no", code="content_filter"), "refusal", ""),
        (fails(400, "too long", code="context_length_exceeded"), "too-long", ""),
        (fails(400, "This model's maximum context length is 8192 tokens"), "too-long", ""),
    ],
)
def test_every_end_of_an_answer_has_its_name(
    server: LLMServer, step: object, finish: str, text: str | None
) -> None:
    server.script = [step]  # type: ignore[list-item]

    with chat_at(server.url) as chat:
        answer = chat.complete([ask("a")])[0]

    assert answer.finish == finish
    assert text is None or answer.text == text
    assert len(server.seen) == 1


def test_refusals_empty_and_cut_answers_are_kept(server: LLMServer) -> None:
    server.script = [EMPTY, says(None, refusal="No."), UNCLOSED_THOUGHT]
    requests = [ask("a"), ask("b"), ask("c")]
    with chat_at(server.url) as chat:
        chat.complete(requests)

    with chat_at(server.url) as chat:
        again = chat.complete(requests)

    assert len(server.seen) == 3
    assert sorted(answer.finish for answer in again) == ["empty", "length", "refusal"]


def test_reasoning_that_a_server_cut_out_is_put_back(server: LLMServer) -> None:
    server.script = [says("Aspirin.", reasoning="Let me see."), says("", reasoning="Let me")]
    limits = replace(QUICK, concurrency=1)

    with chat_at(server.url, name="qwq-32b", limits=limits) as chat:
        whole, cut_off = chat.complete([ask("a"), ask("b")])

    assert whole.text == "<think>\nLet me see.\n</think>\n\nAspirin."
    assert cut_off.text == "<think>\nLet me"


def test_money_is_counted_where_a_price_is_known(server: LLMServer) -> None:
    server.script = [says("one two three")]

    with chat_at(server.url, price_in="1000000", price_out="2000000") as chat:
        chat.complete([ask("a b")])

    assert chat.usage()["money"] == 2 * 1 + 3 * 2


def test_an_estimate_asks_nobody_and_leaves_out_what_is_on_disk(server: LLMServer) -> None:
    with chat_at(server.url, price_in="1", price_out="2") as chat:
        chat.complete([ask("a" * 40)])
        asked = len(server.seen)

        estimate = chat.estimate([ask("a" * 40), ask("b" * 40)])

    assert len(server.seen) == asked
    assert (estimate.calls, estimate.cached) == (1, 1)
    assert estimate.prompt_tokens == 14
    assert estimate.money == pytest.approx((14 + 2 * estimate.completion_tokens) / 1e6)


def test_a_fixed_concurrency_is_never_passed(server: LLMServer) -> None:
    server.script = [slow(0.05)] * 12

    with chat_at(server.url, limits=replace(QUICK, concurrency=3)) as chat:
        chat.complete([ask(str(i)) for i in range(12)])

    assert server.most_at_once == 3


def test_progress_says_how_far_how_fast_and_how_dear(server: LLMServer) -> None:
    told: list[tuple[str, int, int, float]] = []

    with chat_at(server.url, price_in="1", price_out="1") as chat:
        chat.complete([ask("a")])
        chat.complete([ask("a"), ask("b"), ask("c")], show=lambda *now: told.append(now))

    assert [(done, total) for _, done, total, _ in told] == [(2, 3), (3, 3)]
    assert re.fullmatch(r"asking qwen-7b · [\d,]*[1-9][\d,]* tokens/s · \$[\d.]+", told[-1][0])


def test_it_works_inside_a_running_event_loop(server: LLMServer) -> None:
    async def notebook() -> str:
        with chat_at(server.url) as chat:
            return chat.complete([ask("a")])[0].text

    assert asyncio.run(notebook()) == "about a"


def test_a_stored_run_needs_no_key_and_no_connection(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with chat_at(server.url) as chat:
        chat.complete([ask("a")])
    monkeypatch.setattr(Session, "__init__", lambda *_: pytest.fail("connected"))

    with chat_at(server.url) as chat:
        answers = chat.complete([ask("a")])

    assert answers[0].cached


def test_a_chat_shows_no_key(server: LLMServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("R2MED_LLM_KEY", "sk-very-secret")

    with chat_at(server.url) as chat:
        chat.complete([ask("a")])
        shown = repr(chat.identity) + repr(chat._server) + repr(vars(chat))
        kept = b"".join(p.read_bytes() for p in chat._answers.folder.rglob("*") if p.is_file())

    assert "sk-very-secret" not in shown
    assert b"sk-very-secret" not in kept


def test_limits_may_come_from_the_environment(
    server: LLMServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("R2MED_LLM_TOKENS", "1000")
    monkeypatch.setenv("R2MED_LLM_CONCURRENCY", "many")

    with pytest.raises(
        UsageError, match="R2MED_LLM_\\*\\[concurrency=many\\]: expected a whole number from 1"
    ):
        Limits.from_environment()


def test_lone_surrogates_are_no_obstacle(server: LLMServer) -> None:
    with chat_at(server.url) as chat:
        answer = chat.complete([ask("odd \ud800 text")])[0]

    assert answer.finish == "stop"
    assert isinstance(chat, Chat)
