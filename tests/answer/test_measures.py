"""Citations, correlation and the relation of retrieval to answers, against hand-made cases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from r2med.answer.citations import read_citations, score_citations
from r2med.answer.prompt import AnswerPrompt, find_prompt, read_prompt
from r2med.answer.relation import spearman
from r2med.errors import DataError, MissingError, UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Botulism [1].", (1,)),
        ("as in [2][3]", (2, 3)),
        ("as in [1, 3]", (1, 3)),
        ("as in [1-3]", (1, 2, 3)),
        ("[Passage 2] says", (2,)),
        ("Passage 2 says so, and passages 1 and 4 too", (2, 1, 4)),
        ("【1】", (1,)),
        ("see [3], [1] and again [3]", (3, 1)),
        ("<think>[5]</think>see [1]", (1,)),
        ("a dose of [30-900] mg", (30, 900)),
        ("nothing here, 12 of 30", ()),
        ("[citation needed]", ()),
    ],
)
def test_citations_are_read(text: str, expected: tuple[int, ...]) -> None:
    assert read_citations(text) == expected


def test_invented_numbers_are_wrong_citations() -> None:
    scores = score_citations((1, 9), (1, 2))
    assert (scores.precision, scores.recall) == (0.5, 0.5)
    assert score_citations((), (1,)).precision is None
    assert score_citations((1,), ()).recall is None


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0])), min_size=3, max_size=20
    )
)
def test_spearman_equals_scipy(points: list[tuple[int, float]]) -> None:
    first, second = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    rho = float(spearman(first, second))
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        assert np.isnan(rho)
    else:
        assert rho == pytest.approx(spearmanr(first, second).statistic)


def test_prompts_are_data(tmp_path: Path) -> None:
    prompt = find_prompt("default")
    assert isinstance(prompt, AnswerPrompt)
    messages = prompt.messages("Why {text}?", ["one {question}", "x" * 5000])
    assert "[1] one {question}" in messages[-1].content and "Why {text}?" in messages[-1].content
    assert "…" in messages[-1].content and "x" * 4001 not in messages[-1].content
    with pytest.raises(UsageError, match="prompt 'defualt' is not known"):
        find_prompt("defualt")
    with pytest.raises(MissingError, match="no such prompt file"):
        find_prompt(str(tmp_path / "mine.toml"))
    path = tmp_path / "mine.toml"
    path.write_text(
        'closed_book = "{question}"\nwith_passages = "{question}"\npassage = "{text}"\n'
    )
    with pytest.raises(DataError, match=r"passage does not contain \{number\}"):
        read_prompt(path)
