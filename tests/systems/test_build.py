"""What may stand where in a system, and what is said when something may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import R2MedError, UsageError
from r2med.systems.build import System
from r2med.systems.stages import Fused, Reranking
from r2med.tasks.load import load_task


class Mine:
    identity = "mine"

    def predict(self, pairs: list[tuple[str, str]]) -> list[float]:
        return [0.0] * len(pairs)


def built(text: str) -> System:
    return System.from_spec(text, models={"mine": Mine()})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("mine@10", "it needs one before it, as in 'bm25 | mine@10'"),
        ("monobert@10", "it needs one before it"),
        ("bm25 | bm25", "fuse retrievers with '+'"),
        ("bm25 | run:x.trec", "fuse rankings with '+'"),
        ("bm25 | rrf", "fuses retrievers joined by '+' right before it"),
        ("bm25 + bm25-nano | mine | rrf", "fuses retrievers joined by '+' right before it"),
        ("rrf", "fuses the retrievers before it"),
        ("bm25 | (bm25 + bm25-nano)", "fuse retrievers with '+'"),
        ("bm25 | mine[tail=cut]", "tail=cut is not known. With tail=keep"),
        ("bm25 | mine[tial=keep]", "Did you mean 'tail'"),
        ("bm25 | monobert:x", "takes no argument after ':'"),
        ("bm25 | monobert[dtype=int3]", "monobert[dtype=int3]: expected one of auto"),
        ("bm25 | ce", "as in ce:PATH"),
        ("bm25 | listwise", "as in listwise:gpt4"),
        ("bm25 | listwise:gpt4[window=1]", "expected a whole number from 2"),
        ("bm25 | listwise:gpt4[step=0]", "expected a whole number from 1"),
        ("bm25 | listwise:gpt4[window=5,step=6]", "would be skipped"),
        ("bm25 + bm25-nano | rrf[k=-1]", "expected a whole number from 0"),
        ("bm25 + bm25-nano | minmax[weights=1]", "1 weights for 2 members"),
        ("run", "the path is missing; expected run:PATH"),
        ("candidates", "as in candidates:bm25"),
        ("bm25 | monobort@10", "Did you mean 'monobert'"),
        ("bm25 | zzz", "reranker or fusion 'zzz' is not known. Known: bge-reranker,"),
        ("bm25 + bm25-nano | rff", "reranker or fusion 'rff' is not known. Did you mean 'rrf'?"),
        ("my_module:Encoder", "Write a Python class as 'model:my_module:Encoder'."),
        ("mymodel:Encoder", "Write a Python class as 'model:mymodel:Encoder'."),
        ("bm25 | zzz", "Write your own reranker as 'own:module:Class'"),
        ("bm25 | my_module:Ranker", "Write a Python class as 'own:my_module:Ranker'."),
        ("bm25 | model:m:Ranker", "write your reranker as 'own:m:Ranker'."),
        ("tests", "Write the model in that folder as 'dense:./tests'."),
        ("bm25 | tests", "Write the model in that folder as 'ce:./tests'."),
        ("bm25=bm25-nano", "label 'bm25' is the name of another system"),
        ('" "=bm25', "expected 1 to 60 printable characters"),
    ],
)
def test_a_system_that_makes_no_sense_says_why(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as problem:
        built(text)

    assert why in str(problem.value)


def test_an_encoder_is_not_offered_where_a_reranker_is_expected() -> None:
    with pytest.raises(UsageError) as problem:
        built("bm25 | minilmm")

    assert "minilm'" not in str(problem.value).replace("'minilmm'", "")


@pytest.mark.parametrize("text", ["run:{}", "candidates:{}", "dense:{}", "bm25 | ce:{}"])
@pytest.mark.parametrize("name", ["y" * 5000, "a/" * 3000, "\\0"])
def test_a_name_that_no_file_can_have_is_refused(text: str, name: str) -> None:
    task = load_task("demo/biology")

    with pytest.raises(R2MedError):
        built(text.format(f'"{name}"')).stage.identity(task)


def test_a_model_of_ones_own_is_fused_by_its_name_and_has_no_options() -> None:
    def lengths(texts: list[str]) -> list[list[float]]:
        return [[float(len(text)), 1.0] for text in texts]

    stage = System.from_spec("bm25 + lengths@7", models={"lengths": lengths}).stage

    assert isinstance(stage, Fused)
    assert [(member.name, member.depth) for member in stage.members] == [
        ("bm25", 100),
        ("lengths@7", 7),
    ]
    with pytest.raises(UsageError, match="lengths has no option 'k'"):
        System.from_spec("lengths[k=1]", models={"lengths": lengths})


def test_rerankers_follow_one_another() -> None:
    stage = built("bm25 | mine@50 | mine[tail=drop]@5").stage

    assert isinstance(stage, Reranking)
    assert (stage.reranked, stage.tail, stage.depth) == (5, "drop", 5)
    assert stage.first.text == "bm25 | mine@50"


def test_the_published_rerankers_drop_the_tail_and_others_keep_it() -> None:
    tails = {}
    for text in ("bm25 | monobert@10", "bm25 | monobert[tail=keep]@10", "bm25 | mine@10"):
        stage = built(text).stage
        assert isinstance(stage, Reranking)
        tails[text] = (stage.tail, stage.depth)

    assert list(tails.values()) == [("drop", 10), ("keep", 100), ("keep", 100)]


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("nv | rankllama@100", "nv | rankllama@100"),
        ("nv | rankllama@10", "nv | rankllama@10"),
        ("nv | rankllama@50", None),
        ("bm25 | rankllama@100", None),
        ("nv | rankllama[max_length=512]@100", None),
    ],
)
def test_a_reranked_system_is_published_on_nv_at_two_depths(
    text: str, published: str | None
) -> None:
    assert built(text).stage.published_as == published


def test_a_fusion_stage_configures_the_fusion_before_it() -> None:
    plain, told = built("bm25 + bm25-nano").stage, built("bm25 + bm25-nano | rrf[k=7]@20").stage

    assert isinstance(plain, Fused) and isinstance(told, Fused)
    assert (plain.fusion.k, plain.depth) == ("auto", 500)
    assert (told.fusion.k, told.depth) == (7, 20)


def test_members_keep_their_own_texts() -> None:
    stage = built("(bm25 | mine@5) + bm25-nano | minmax").stage

    assert isinstance(stage, Fused)
    assert [member.text for member in stage.members] == ["bm25 | mine@5", "bm25-nano"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("bm25", "the name of another system"),
        ("a | b[x", "cannot be used in a spec"),
        ("two words", "cannot be used in a spec"),
        ("mine@10", "cannot be used in a spec"),
    ],
)
def test_a_model_of_ones_own_needs_a_name_of_its_own(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        System.from_model(lambda texts: [[1.0] for _ in texts], name=name)
    with pytest.raises(UsageError, match=why):
        System.from_spec("bm25", models={name: Mine()})
