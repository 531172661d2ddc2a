from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from r2med.errors import MissingError, UsageError
from r2med.nano import Recipe, add_candidates, build, profile
from r2med.nano.candidates import CandidateList, combine_candidates, dense_config
from r2med.runs import Run
from r2med.systems.build import System
from r2med.tasks.load import load_task
from tests.building import judgements_of
from tests.cli.running import ended, run, start
from tests.nano.making import contents

DENSE = ("some_encoder", "some")


def falling(names: list[str]) -> list[tuple[str, float]]:
    return [(name, float(-rank)) for rank, name in enumerate(names)]


def candidates_of(bm25: list[str], dense: list[str], positives: list[str]) -> list[CandidateList]:
    return combine_candidates(
        Run.from_lists({"7": falling(bm25)}),
        Run.from_lists({"7": falling(dense)}),
        judgements_of({"7": dict.fromkeys(positives, 1)}),
        split="NanoR2MEDBiology",
        dense=DENSE,
    )


def names(found: CandidateList) -> list[str]:
    return found.run.ranked_documents("7")


def test_the_hybrid_sums_reciprocal_ranks_with_k_100() -> None:
    *_, hybrid = candidates_of(["a", "b", "c"], ["c", "d", "a"], ["a"])

    scores = dict(hybrid.run.ranking("7"))
    assert scores["a"] == pytest.approx(1 / 101 + 1 / 103)
    assert scores["d"] == pytest.approx(1 / 102)
    assert names(hybrid) == ["a", "c", "b", "d"]


def test_equal_hybrid_scores_go_by_best_rank_then_by_id() -> None:
    *_, hybrid = candidates_of(["z", "b"], ["a", "c"], ["a"])

    assert names(hybrid) == ["a", "z", "b", "c"]


def test_documents_that_share_no_term_count_in_the_hybrid_as_published() -> None:
    lexical = Run.from_lists({"7": [("a", 1.0), ("b", 0.0)]})
    vector = Run.from_lists({"7": [("c", 0.9)]})

    *_, hybrid = combine_candidates(
        lexical, vector, judgements_of({"7": {"a": 1}}), split="S", dense=DENSE
    )

    assert dict(hybrid.run.ranking("7"))["b"] == pytest.approx(1 / 102)


def test_lists_are_cut_at_500_and_100() -> None:
    many = [f"d{i:04}" for i in range(700)]

    found = candidates_of(many, many[::-1], ["d0000"])

    assert [len(names(one)) for one in found] == [500, 500, 100]


def test_equal_dense_scores_are_ordered_by_id() -> None:
    tied = Run.from_lists({"7": [("b", 0.5), ("a", 0.5), ("c", 0.9)]})

    _, dense, _ = combine_candidates(
        tied, tied, judgements_of({"7": {"a": 1}}), split="S", dense=DENSE
    )

    assert names(dense) == ["c", "a", "b"]


def test_a_list_that_holds_a_positive_gets_no_safeguard() -> None:
    *_, hybrid = candidates_of(["a", "b"], ["b", "c"], ["c", "x"])

    assert hybrid.safeguards == {}
    assert names(hybrid) == ["b", "a", "c"]


def test_the_safeguard_is_the_published_seeded_choice_at_the_end() -> None:
    positives = ["p3", "p1", "p2"]
    chance = random.Random("20260524\0NanoR2MEDBiology\x007\0positive_safeguard")

    hundred = [f"d{i}" for i in range(100)]
    *_, hybrid = candidates_of(hundred, hundred, positives)

    chosen = chance.choice(sorted(positives))
    assert names(hybrid) == [*hundred, chosen]
    assert hybrid.safeguards == {"7": chosen}


@given(st.permutations([f"d{i}" for i in range(8)]), st.permutations([f"d{i}" for i in range(8)]))
def test_the_hybrid_does_not_depend_on_which_member_is_which(a: list[str], b: list[str]) -> None:
    assert names(candidates_of(a, b, ["d0"])[-1]) == names(candidates_of(b, a, ["d0"])[-1])


def test_the_dense_subset_is_named_after_the_checkpoint() -> None:
    assert dense_config("harrier") == "harrier_oss_v1_270m"
    assert dense_config("minilm") == "all_minilm_l6_v2"


@pytest.mark.parametrize(
    ("dense", "told"),
    [
        ("harier", "Did you mean 'harrier'"),
        ("none", "system 'none' is not known"),
        ("bm25", "this is BM25"),
        ("bm25 + harrier", "not a single retriever"),
    ],
)
def test_a_dense_member_that_is_no_encoder_is_refused(
    tmp_path: Path, dense: str, told: str
) -> None:
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=40))
    was = contents(tmp_path)

    with pytest.raises(UsageError, match=told):
        add_candidates(tmp_path / "nano", dense)

    assert contents(tmp_path) == was


def test_a_folder_that_was_not_built_here_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no nano\.json"):
        add_candidates(tmp_path, "harrier")


@pytest.fixture
def with_candidates(tmp_path: Path) -> Path:
    pytest.importorskip("wordllama")
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=60))
    add_candidates(tmp_path / "nano", "wordllama")
    return tmp_path / "nano"


def test_the_three_subsets_are_read_back_as_first_stages(with_candidates: Path) -> None:
    task = load_task(f"{with_candidates}#NanoDemoBiology")

    found = {row.role: row.config for row in profile(task).retrieval}

    assert found == {
        "bm25": "bm25",
        "dense": "word_llama_l2_supercat",
        "reranking_hybrid": "reranking_hybrid",
    }
    assert str(System.from_spec("candidates:bm25")) == "candidates:bm25"


def test_offline_the_encoder_that_needs_no_download_is_suggested(with_candidates: Path) -> None:
    done = ended(start("nano", "candidates", str(with_candidates), "--force", "--offline"))

    assert done.code == 1
    assert "nothing is downloaded in offline mode" in done.err
    assert "--dense wordllama" in done.err


def test_candidates_are_the_same_bytes_twice_and_not_replaced_unasked(
    with_candidates: Path,
) -> None:
    was = contents(with_candidates)

    refused = run("nano", "candidates", str(with_candidates), "--dense", "wordllama")
    add_candidates(with_candidates, "wordllama", force=True)

    assert refused.code == 2 and "has candidates already" in refused.err
    assert contents(with_candidates) == was
