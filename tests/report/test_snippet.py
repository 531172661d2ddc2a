from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from r2med.report.table import snippet


@given(st.text(), st.integers(10, 100))
def test_a_snippet_is_one_line_that_fits(text: str, width: int) -> None:
    shown = snippet(text, width)

    assert "\n" not in shown and "\x1b" not in shown
    assert cell_len(shown) <= width


def test_a_long_text_is_cut_at_a_word() -> None:
    assert snippet("acute intermittent porphyria", 20) == "acute intermittent …"


def test_a_short_text_stays_whole() -> None:
    assert snippet(" acute  pain\n", 20) == "acute pain"
