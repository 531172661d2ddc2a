"""Excluded documents are removed before measuring and never count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import DataError
from r2med.measure.run_scores import score_run_file
from r2med.runs import Run
from r2med.runs.exclusions import remove_excluded
from r2med.tasks.reading.exclusions import read_exclusions
from tests.cli.running import run

LISTS = st.dictionaries(
    st.sampled_from(["1", "2", "3"]),
    st.lists(st.sampled_from("abcdefg"), unique=True, min_size=1, max_size=7),
    min_size=1,
)
EXCLUDED = st.dictionaries(st.sampled_from(["1", "2", "9"]), st.frozensets(st.sampled_from("abcz")))


@given(LISTS, EXCLUDED)
def test_the_other_documents_keep_their_order(
    lists: dict[str, list[str]], excluded: dict[str, frozenset[str]]
) -> None:
    ranked = Run.from_lists(
        {
            query: [(document, -float(rank)) for rank, document in enumerate(documents)]
            for query, documents in lists.items()
        }
    )

    left, removed = remove_excluded(ranked, excluded)

    expected = {
        query: [document for document in documents if document not in excluded.get(query, ())]
        for query, documents in lists.items()
    }
    assert {query: list(left.ranks_of(query)) for query in lists} == expected
    assert removed == sum(map(len, lists.values())) - sum(map(len, expected.values()))


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Query 1 excludes the document its run puts first; query 2 excludes nothing, as in BRIGHT."""
    run_file, judgements, excluded = (tmp_path / name for name in ("a.trec", "q.txt", "e.jsonl"))
    run_file.write_text("1 Q0 x 1 3 r\n1 Q0 a 2 2 r\n1 Q0 b 3 1 r\n2 Q0 b 1 2 r\n2 Q0 a 2 1 r\n")
    judgements.write_text("1 0 a 1\n1 0 x 1\n2 0 a 1\n")
    rows = [{"id": "1", "excluded_ids": ["x"], "query": "?"}, {"id": "2", "excluded_ids": ["N/A"]}]
    excluded.write_text("\n".join(map(json.dumps, rows)))
    return run_file, judgements, excluded


def test_an_excluded_document_is_neither_found_nor_missed(files: tuple[Path, Path, Path]) -> None:
    run_file, judgements, excluded = files

    plain = score_run_file(run_file, judgements, ["mrr", "recall@1"])
    without = score_run_file(
        run_file, judgements, ["mrr", "recall@1"], exclusions=read_exclusions(excluded)
    )

    assert plain.scores.by_query("recall@1") == {"1": 0.5, "2": 0.0}
    assert without.scores.by_query("mrr") == {"1": 1.0, "2": 0.5}
    assert without.scores.by_query("recall@1") == {"1": 1.0, "2": 0.0}
    assert without.excluded == 1


def test_the_command_counts_what_was_removed(files: tuple[Path, Path, Path]) -> None:
    run_file, judgements, excluded = map(str, files)

    done = run("score", run_file, judgements, "--exclude", excluded)

    assert "1 excluded document removed from the lists before measuring." in done.out


@pytest.mark.parametrize("line", ["[]", '{"id": "1"}', '{"id": 1, "excluded_ids": []}', "x"])
def test_a_wrong_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "e.jsonl"
    path.write_text(f'{{"id": "1", "excluded_ids": []}}\n{line}')

    with pytest.raises(DataError, match="line 2"):
        read_exclusions(path)


@pytest.mark.extra("test")
def test_scores_equal_those_of_the_procedure_of_bright(tmp_path: Path) -> None:
    """BRIGHT removes excluded ids from the scores of a query and then calls pytrec_eval."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    scores = {
        "1": {"own-post": 9.0, "a": 8.0, "b": 7.0, "c": 1.0},
        "2": {"b": 5.0, "a": 4.0, "c": 3.0},
        "3": {"other": 2.0, "c": 1.5, "b": 1.0},
    }
    judged = {"1": {"b": 1, "c": 1}, "2": {"a": 1}, "3": {"c": 1, "b": 1}}
    excluded = {"1": ["own-post"], "2": ["N/A"], "3": ["other", "absent"]}
    expected_run = {query: dict(documents) for query, documents in scores.items()}
    for query, documents in excluded.items():
        for document in set(documents):
            if document != "N/A":
                expected_run[query].pop(document, None)
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.10", "recall.2"})
    expected = evaluator.evaluate(expected_run)
    run_file, judgements, listed = (tmp_path / n for n in ("r.trec", "q.txt", "e.jsonl"))
    run_file.write_text(
        "".join(
            f"{query} Q0 {document} {rank} {score} r\n"
            for query, documents in scores.items()
            for rank, (document, score) in enumerate(documents.items(), start=1)
        )
    )
    judgements.write_text(
        "".join(f"{q} 0 {d} {score}\n" for q, row in judged.items() for d, score in row.items())
    )
    rows = [{"id": query, "excluded_ids": documents} for query, documents in excluded.items()]
    listed.write_text("\n".join(map(json.dumps, rows)))

    measured = score_run_file(
        run_file, judgements, ["ndcg@10", "recall@2"], exclusions=read_exclusions(listed)
    ).scores

    for name, oracle in (("ndcg@10", "ndcg_cut_10"), ("recall@2", "recall_2")):
        by_query = {query: row[oracle] for query, row in expected.items()}
        assert measured.by_query(name) == pytest.approx(by_query)
