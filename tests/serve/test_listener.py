"""The log of our servers."""

from __future__ import annotations

import asyncio

import pytest

from r2med.serve.listener import report_in_one_line


def test_an_error_that_the_event_loop_repeats_is_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.new_event_loop()
    try:
        report_in_one_line(loop)
        for _ in range(100):
            problem = OSError(24, "Too many open files")
            loop.call_exception_handler({"message": "accept()\nfailed", "exception": problem})
        loop.call_exception_handler({"message": "something else"})
    finally:
        loop.close()

    messages = [record.getMessage() for record in caplog.records if record.name == "r2med.serve"]
    assert messages == [
        "accept() failed: OSError: [Errno 24] Too many open files",
        "something else",
    ]
