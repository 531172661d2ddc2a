"""Limits are a promise about money: no request is sent that could exceed them."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import LimitError, MissingError, UsageError
from r2med.remote.budget import Budget, Limits, Price, RequestCost, Tokens
from r2med.remote.chat import Chat, Remote
from r2med.remote.completions import ChatRequest
from tests.llm_server import LLMServer, Step, cut, fails, garbled, slow
from tests.remote.asking import QUICK, ask, chat_at

pytest.importorskip("aiohttp")

AT_ONCE = replace(QUICK, concurrency=64)
PRICES: dict[str, Any] = {"price_in": "100", "price_out": "400"}


def at_most(body: dict[str, Any]) -> str:
    """As long an answer as the request allows."""
    return "word " * int(body["max_tokens"])


def in_bytes(text: str) -> int:
    """As many tokens as a text can have."""
    return len(text.encode())


def stopped(
    error: type[Exception] | tuple[type[Exception], ...],
    message: str,
    url: str,
    limits: Limits,
    requests: list[ChatRequest],
) -> Chat:
    """A chat whose limits, or whose server, did not let it finish."""
    with (
        chat_at(url, limits=limits, max_tokens="300", **PRICES) as chat,
        pytest.raises(error, match=message),
    ):
        chat.complete(requests)
    return chat


@pytest.mark.parametrize(
    "limit", [{"tokens": 20_000}, {"money": 7.0}, {"tokens": 30_000, "money": 2.0}], ids=str
)
@pytest.mark.parametrize("greedy", [True, False], ids=["all they may", "little"])
def test_what_is_spent_never_passes_a_limit_at_64_at_once(
    server: LLMServer, limit: dict[str, Any], greedy: bool
) -> None:
    if greedy:
        server.reply, server.count = at_most, in_bytes
    server.script = [slow(0.01)] * 50
    requests = [ask(f"{i} " + "why? " * 100) for i in range(800)]

    limits = replace(AT_ONCE, **limit)
    chat = stopped(
        LimitError, r"All answers received so far are stored", server.url, limits, requests
    )

    assert server.tokens <= (limits.tokens or float("inf"))
    assert server.cost(100, 400) <= (limits.money or float("inf"))
    assert chat.budget.spent.tokens == server.tokens


def test_a_request_waits_for_room_while_others_may_still_cost_less(server: LLMServer) -> None:
    limits = replace(AT_ONCE, tokens=5_000)
    server.script = [slow(0.2)] * 12

    with chat_at(server.url, limits=limits, max_tokens="1000") as chat:
        answers = chat.complete([ask(f"why {i}?") for i in range(12)])

    assert len(answers) == 12
    assert 1 < server.most_at_once <= 2


def test_the_limit_is_used_up_to_what_one_request_may_use(server: LLMServer) -> None:
    limits = replace(AT_ONCE, tokens=5_000)

    requests = [ask(f"{i} " + "word " * 100) for i in range(100)]
    stopped(LimitError, "the limit of 5,000 tokens; used: ", server.url, limits, requests)

    assert 5_000 - 300 - 700 < server.tokens <= 5_000


def test_a_stopped_run_goes_on_where_it_was_when_given_more(server: LLMServer) -> None:
    requests = [ask(f"{i} " + "word " * 50) for i in range(40)]
    stopped(LimitError, "again to continue", server.url, replace(AT_ONCE, tokens=2_000), requests)
    asked = len(server.seen)

    with chat_at(server.url, max_tokens="300", **PRICES) as chat:
        answers = chat.complete(requests)

    assert 1 < asked < 40
    assert len(answers) == len(server.seen) == 40
    assert chat.usage()["cached"] == asked


@pytest.mark.parametrize("what", ["tokens", "money"])
def test_a_limit_below_one_request_is_refused_before_the_first_call(
    server: LLMServer, what: str
) -> None:
    limits = replace(QUICK, tokens=500) if what == "tokens" else replace(QUICK, money=0.01)
    request = ask("why? " * 50)
    with (
        pytest.raises(UsageError, match="Give at least --max-") as caught,
        chat_at(server.url, limits=limits, max_tokens="300", **PRICES) as chat,
    ):
        chat.complete([request])
    assert not server.seen

    figure = re.search(r"--max-(?:tokens|cost) ([\d.]+)", str(caught.value))
    assert figure
    tokens, money = (int(figure[1]), None) if what == "tokens" else (None, float(figure[1]))
    enough = replace(QUICK, tokens=tokens, money=money)
    with chat_at(server.url, limits=enough, max_tokens="300", **PRICES) as chat:
        answers = chat.complete([request])

    assert len(answers) == 1


@pytest.mark.parametrize(
    ("step", "counted"),
    [
        (slow(5), True),
        (cut(), True),
        (garbled(), True),
        (fails(500), True),
        (fails(502), True),
        (fails(429), False),
        (fails(503), False),
        (fails(400), False),
    ],
    ids=["too slow", "cut", "garbled", "500", "502", "429", "503", "400"],
)
def test_what_fails_after_it_was_sent_counts_in_full(
    server: LLMServer, step: object, counted: bool
) -> None:
    server.script = [step]  # type: ignore[list-item]
    limits = replace(QUICK, tokens=100_000, timeout=0.3, attempts=1)

    chat = stopped(MissingError, "no answer", server.url, limits, [ask("why?")])

    assert (chat.budget.spent.tokens > 300) == counted
    assert chat.budget.spent == (chat.budget.unanswered if counted else RequestCost())


def test_retries_after_time_outs_stay_within_the_limit(server: LLMServer) -> None:
    server.script = [slow(5)] * 6
    limits = replace(QUICK, tokens=1_200, timeout=0.1)

    stopped(LimitError, "by requests without an answer", server.url, limits, [ask("why?")])

    assert len(server.seen) == 2


def test_what_requests_without_an_answer_used_is_told_as_the_limit_is(server: LLMServer) -> None:
    server.script = [slow(5)] * 6
    limits = replace(QUICK, money=0.25, timeout=0.1)

    told = r"used: \$0\.\d+ \(\$0\.\d+ of it by requests"
    stopped(LimitError, told, server.url, limits, [ask("why?")])


def test_a_server_that_cannot_be_reached_costs_nothing() -> None:
    limits = replace(QUICK, tokens=1_000, attempts=2)

    chat = stopped(MissingError, "no answer", "http://127.0.0.1:9/v1", limits, [ask("why?")])

    assert chat.budget.spent == RequestCost()


def test_chats_of_several_models_and_threads_share_one_budget(server: LLMServer) -> None:
    server.reply, server.count = at_most, in_bytes
    remote = Remote(replace(AT_ONCE, tokens=20_000), url=server.url)
    limited: list[str] = []

    def work(name: str) -> None:
        try:
            remote.chat(name, {"max_tokens": "200"}).complete(
                [ask(f"{name} {i}") for i in range(60)]
            )
        except LimitError:
            limited.append(name)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, ["one", "two", "three", "four"]))
    remote.close()

    assert limited
    assert 20_000 - 2_000 < server.tokens <= 20_000


@pytest.mark.parametrize("limit", [{"tokens": 0}, {"money": -1.0}, {"concurrency": 0}], ids=str)
def test_a_limit_that_allows_nothing_is_refused(limit: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"the limit of \w+ is .*, expected \d or more"):
        Limits(**limit)


def test_a_limit_of_money_needs_a_price(server: LLMServer) -> None:
    limits = replace(QUICK, money=1.0)
    message = "no price is known for qwen-7b"

    with pytest.raises(UsageError, match=message), chat_at(server.url, limits=limits):
        pass


def test_a_limit_needs_to_know_how_long_an_answer_may_become(server: LLMServer) -> None:
    limits = replace(QUICK, tokens=10_000)

    with (
        chat_at(server.url, limits=limits, max_tokens="none") as chat,
        pytest.raises(UsageError, match="longest possible answer of qwen-7b"),
    ):
        chat.complete([ask("why?")])
    with chat_at(server.url, limits=limits, max_tokens="none", output_limit="200") as chat:
        answers = chat.complete([ask("why?")])

    assert answers[0].finish == "stop"


def test_what_the_server_says_it_used_is_what_counts(server: LLMServer) -> None:
    limits = replace(QUICK, tokens=10_000)

    with chat_at(server.url, limits=limits, max_tokens="300") as chat:
        chat.complete([ask("why? " * 10)])

    assert chat.budget.spent.tokens == server.tokens == 21


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=60))
def test_claims_and_spending_together_never_pass_the_limit(
    requests: list[tuple[int, int, bool]],
) -> None:
    budget = Budget(Limits(tokens=100, money=50e-6))
    price = Price(1.0, 1.0)
    under_way: list[tuple[object, RequestCost]] = []

    for most, real, lost in requests:
        claim, cost = object(), RequestCost.of(Tokens(most), price)
        try:
            sent = budget.claim(claim, cost, "m")
        except LimitError:
            assert not under_way
            continue
        if sent:
            under_way.append((claim, cost))
        else:
            settled, claimed = under_way.pop(0)
            used = RequestCost.of(Tokens(min(real, claimed.tokens)), price)
            budget.settle(settled, None if lost else used)
        total = sum((cost for _, cost in under_way), budget.spent)

        assert total.tokens <= 100
        assert total.money <= 50e-6 + 1e-15


def billing(prompt: int, new: int, **rest: object) -> Step:
    """An answer of a server with its own figures of what it used."""
    usage = {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}
    return garbled(json.dumps({"usage": usage, **rest}).encode())


@pytest.mark.parametrize("status", [200, 500, 400])
def test_an_error_counts_as_much_as_the_server_reports(server: LLMServer, status: int) -> None:
    usage = {"prompt_tokens": 60_000, "completion_tokens": 15_000}
    body = json.dumps({"error": {"message": "overloaded"}, "usage": usage}).encode()
    server.script = [replace(garbled(body), status=status)] * 9
    limits = replace(AT_ONCE, tokens=20_000)

    chat = stopped(
        (LimitError, MissingError),
        "All answers received|answers are stored",
        server.url,
        limits,
        [ask("why?")],
    )

    assert len(server.seen) == 1, "it was asked again after the limit was passed"
    assert chat.budget.spent.tokens == 75_000


def test_a_server_that_ignores_max_tokens_passes_the_limit_by_one_answer(
    server: LLMServer,
) -> None:
    choices = [{"message": {"content": "a"}, "finish_reason": "stop"}]
    server.script = [billing(10, 10_000, choices=choices)] * 200
    limits = replace(AT_ONCE, tokens=20_000)

    stopped(
        LimitError, "could exceed", server.url, limits, [ask(f"why {row}?") for row in range(100)]
    )

    assert len(server.seen) * 10_010 <= 20_000 + 10_010


@pytest.mark.parametrize("honest", [1, 5, 20, 35])
def test_a_server_that_begins_late_to_bill_twice_passes_the_limit_by_one_answer(
    server: LLMServer, honest: int
) -> None:
    choices = [{"message": {"content": "a"}, "finish_reason": "stop"}]
    most = 300 + in_bytes("why 00?") + 100
    server.script = [billing(10, 290, choices=choices)] * honest
    server.script += [billing(10, 2 * most, choices=choices)] * 200
    limits = replace(AT_ONCE, tokens=20_000)

    stopped(
        LimitError, "could exceed", server.url, limits, [ask(f"why {row}?") for row in range(100)]
    )

    late = len(server.seen) - honest
    assert late > 0
    assert 300 * honest + (2 * most + 10) * late <= 20_000 + 2 * most + 10


def test_requests_are_sent_at_once_when_a_server_keeps_to_its_claims(server: LLMServer) -> None:
    server.script = [slow(0.01)] * 64
    limits = replace(AT_ONCE, tokens=10**9)

    with chat_at(server.url, limits=limits, max_tokens="100") as chat:
        chat.complete([ask(f"why {row}?") for row in range(64)])

    assert server.most_at_once > 4
