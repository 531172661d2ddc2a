"""The table of trials, printed when they are done."""

from __future__ import annotations

import pytest

from tests.trials.counting import COUNTS


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per kind of trial: how many ran."""
    if COUNTS:
        terminalreporter.section("trials")
        width = max(map(len, COUNTS))
        for kind, number in sorted(COUNTS.items()):
            terminalreporter.write_line(f"{kind:<{width}}  {number:>7,}")
