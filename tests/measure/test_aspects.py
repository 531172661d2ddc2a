"""Measures over aspects equal ndeval's, and weights change them as they should."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from r2med import load_task
from r2med.errors import DataError
from r2med.measure.aspects import MEASURES, measure_aspects
from r2med.runs import Run
from r2med.tasks.reading.aspects import AspectJudgement, read_aspects, read_task_aspects
from tests.cli.running import run

NDEVAL = {
    "aspect_recall": "strec@10",
    "alpha_ndcg": "alpha-nDCG@10",
    "p_ia": "P-IA@10",
    "err_ia": "ERR-IA@10",
}
DOCUMENTS = [f"d{number:02}" for number in range(15)]
JUDGED = st.lists(
    st.tuples(st.sampled_from("12"), st.sampled_from(DOCUMENTS), st.sampled_from("abcd")),
    min_size=1,
    unique=True,
)
LISTS = st.fixed_dictionaries({"1": st.permutations(DOCUMENTS), "2": st.permutations(DOCUMENTS)})


def run_of(lists: dict[str, list[str]]) -> Run:
    return Run.from_lists(
        {
            query: [(name, -float(rank)) for rank, name in enumerate(names)]
            for query, names in lists.items()
        }
    )


@pytest.mark.extra("test")
@given(JUDGED, LISTS)
@settings(max_examples=300)
def test_every_measure_equals_ndeval(
    judged: list[tuple[str, str, str]], lists: dict[str, list[str]]
) -> None:
    pyndeval = pytest.importorskip("pyndeval")
    subtopics = [pyndeval.SubtopicQrel(q, a, d, 1) for q, d, a in judged]
    ranked = [
        pyndeval.ScoredDoc(query, name, 100.0 - rank)
        for query, names in lists.items()
        for rank, name in enumerate(names)
    ]
    expected = pyndeval.ndeval(subtopics, ranked, measures=list(NDEVAL.values()))

    scores = measure_aspects(run_of(lists), [AspectJudgement(*row) for row in judged])

    for row, query in enumerate(scores.query_ids):
        for name in MEASURES:
            ndeval_score = expected[query][NDEVAL[name]]
            assert scores.columns[name][row] == pytest.approx(ndeval_score, abs=1e-6), name


def test_equal_gains_in_the_ideal_order_are_taken_from_the_largest_id_as_by_ndeval() -> None:
    aspects = {"d00": "abcd", "d01": "ab", "d02": "bc", "d03": "ad"}
    judged = [AspectJudgement("1", name, aspect) for name in aspects for aspect in aspects[name]]

    scores = measure_aspects(run_of({"1": sorted(aspects)}), judged)

    assert scores.columns["alpha_ndcg"][0] == pytest.approx(0.9967583, abs=1e-7)


def test_weights_count_the_heavier_aspect_more() -> None:
    judged = [
        AspectJudgement("1", "x", "gold", weight=3.0),
        AspectJudgement("1", "y", "evidence", weight=1.0),
    ]

    with_gold = measure_aspects(run_of({"1": ["x"]}), judged)
    with_evidence = measure_aspects(run_of({"1": ["y"]}), judged)

    assert with_gold.means["aspect_recall@10"] == 0.75
    assert with_evidence.means["aspect_recall@10"] == 0.25
    assert with_gold.missed == {"1": ("evidence",)}
    assert [(c.aspect, c.covered, c.missed) for c in with_gold.coverage] == [
        ("evidence", 0, 1),
        ("gold", 1, 0),
    ]


def test_aspects_are_read_from_lines_and_from_diversity_files(tmp_path: Path) -> None:
    lines, text = tmp_path / "qrels.jsonl", tmp_path / "qrels.txt"
    rows = [
        {"q_id": "1", "p_id": "a", "score": 1, "aspect": "gold", "weight": 2},
        {"q_id": "1", "p_id": "b", "score": 1},
    ]
    lines.write_text("\n".join(map(json.dumps, rows)))
    text.write_text("1 3 a 1\n1 0 b 1\n")

    assert read_aspects(lines) == [AspectJudgement("1", "a", "gold", 1, 2.0)]
    assert read_aspects(text) == [AspectJudgement("1", "a", "3", 1, 1.0)]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"q_id": "1", "p_id": "a", "aspect": 3}, '"aspect" must be a text'),
        ({"q_id": "1", "p_id": "a", "aspect": "x", "weight": 0}, '"weight" must be a number'),
        ({"q_id": "1", "aspect": "x"}, "'p_id' is missing"),
    ],
)
def test_a_wrong_aspect_is_named(tmp_path: Path, row: dict[str, object], problem: str) -> None:
    path = tmp_path / "qrels.jsonl"
    path.write_text(json.dumps(row))

    with pytest.raises(DataError, match=f"line 1.*{problem}"):
        read_aspects(path)


def test_a_task_without_aspects_has_none() -> None:
    assert read_task_aspects(load_task("demo/biology")) == []


def test_diagnose_and_score_show_missed_aspects(tmp_path: Path) -> None:
    folder = tmp_path / "fevers"
    folder.mkdir()
    texts = {"a": "rash and fever", "b": "malaria prophylaxis", "c": "fever"}
    documents = [{"id": name, "text": text} for name, text in texts.items()]
    judged = [
        {"q_id": "1", "p_id": "a", "score": 1, "aspect": "evidence"},
        {"q_id": "1", "p_id": "b", "score": 1, "aspect": "gold"},
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (folder / "query.jsonl").write_text(json.dumps({"id": "1", "text": "fever with rash"}))
    (folder / "qrels.jsonl").write_text("\n".join(map(json.dumps, judged)))
    (tmp_path / "run.trec").write_text("1 Q0 a 1 2 r\n1 Q0 c 2 1 r\n")

    assert run("eval", "bm25@1", "--task", str(folder)).code == 0
    diagnosed = run("diagnose", "bm25@1", "--task", "fevers", "--json")
    scored = run("score", str(tmp_path / "run.trec"), str(folder / "qrels.jsonl"))

    assert json.loads(diagnosed.out)["tasks"][0]["aspects"]["missed"] == {"1": ["gold"]}
    assert "alpha_ndcg@10" in scored.out
    assert "gold" in scored.out
