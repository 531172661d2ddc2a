"""System names in narrow columns."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from r2med.report.table import SystemName

NAME = "hyde:gpt4[n=4,combine=fuse] | bm25[k1=1.2]"


def test_names_break_between_their_parts() -> None:
    assert SystemName(NAME).lines(18) == ["hyde:gpt4[n=4,", "combine=fuse] |", "bm25[k1=1.2]"]
    assert SystemName(NAME).lines(80) == [NAME]


@given(st.text(alphabet="ab,[]|= ", max_size=40), st.integers(1, 12))
def test_every_line_fits_and_nothing_but_blanks_is_lost(text: str, width: int) -> None:
    lines = SystemName(text).lines(width)

    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())
