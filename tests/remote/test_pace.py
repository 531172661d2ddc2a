"""How many at once, and how long to wait: laws of the pace and of Retry-After."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.remote.pace import Pace
from r2med.remote.retrying import asked_wait, backoff

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"Retry-After": format_datetime(SOON, usegmt=True)}, 30),
        ({"Retry-After": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-3"}, None),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "9", "Retry-After-Ms": "250"}, 0.25),
    ],
)
def test_what_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_wait(headers, NOW) == seconds


@given(st.text())
def test_no_header_is_an_obstacle(text: str) -> None:
    asked_wait({"Retry-After": text, "Retry-After-Ms": text}, NOW)


@given(st.integers(1, 50))
def test_waits_double_up_to_a_minute_and_vary(attempt: int) -> None:
    wait = backoff(attempt, 0.5)

    whole = min(60.0, 0.5 * 2.0 ** (attempt - 1))
    assert whole / 2 <= wait <= whole


def test_a_fixed_pace_stays() -> None:
    pace = Pace(5)

    pace.congested(0.0)
    pace.succeeded(0.1)

    assert pace.allowed == 5


def test_a_server_that_keeps_up_gets_more() -> None:
    pace = Pace()
    before = pace.allowed

    for _ in range(20):
        pace.under_way = int(pace.allowed)
        pace.succeeded(0.1)

    assert pace.allowed > before


def test_a_pace_that_is_not_used_does_not_grow() -> None:
    pace = Pace()
    before = pace.allowed

    for _ in range(20):
        pace.under_way = 1
        pace.succeeded(0.1)

    assert pace.allowed == before


def test_a_crowd_of_refusals_halves_once() -> None:
    pace = Pace()
    before = pace.allowed

    for _ in range(int(before)):
        pace.congested(0.0)

    assert pace.allowed == before / 2


def test_answers_that_take_longer_and_longer_stop_the_growth() -> None:
    pace = Pace()
    pace.succeeded(0.1)
    reached = pace.allowed

    for _ in range(50):
        pace.under_way = int(pace.allowed)
        pace.succeeded(1.0)

    assert pace.allowed <= reached + 3


@given(st.lists(st.sampled_from(["good", "bad", "slow"]), max_size=200))
def test_there_is_always_room_for_one(events: list[str]) -> None:
    pace = Pace()

    for event in events:
        pace.under_way = int(pace.allowed)
        if event == "bad":
            pace.congested(float("inf"))
        else:
            pace.succeeded(0.1 if event == "good" else 10.0)

    assert 1 <= pace.allowed <= 256


def test_nothing_starts_while_the_server_wants_a_pause() -> None:
    async def first_start() -> tuple[float, float]:
        pace = Pace(1)
        loop = asyncio.get_running_loop()
        began = loop.time()
        pace.hold(0.2)
        await pace.enter()
        return began, loop.time()

    began, started = asyncio.run(first_start())

    assert started - began >= 0.19
