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
