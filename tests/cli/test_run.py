"""`r2med run`: the reference's command lines, as they stand in its README."""

from __future__ import annotations

from tests.cli.running import run


def test_retrieval_runs_and_shows_its_equivalent() -> None:
    done = run(
        "run", "--mode", "eval_retrieval", "--task", "demo/biology", "--retriever_name", "bm25"
    )

    assert done.code == 0
    assert "$ r2med eval bm25 --task demo/biology" in done.err
    assert "nDCG@10" in done.out


def test_a_reranker_becomes_a_pipeline() -> None:
    command = "--mode eval_reranker --task All --retriever_name nv --reranker_name rankllama"

    done = run("run", *command.split(), "--recall_k", "100", "--dry-run")

    assert done.code == 0
    assert done.err == "$ r2med eval 'nv | rankllama@100' --task All\n"


def test_generation_becomes_generate() -> None:
    command = "--mode generate_hydoc --task Biology --gar_method hyde --gar_llm gpt4 --dry-run"

    done = run("run", *command.split())

    assert done.err == "$ r2med generate hyde --llm gpt4 --task Biology\n"


def test_what_a_mode_needs_is_asked_for() -> None:
    done = run("run", "--mode", "eval_reranker", "--task", "Biology", "--retriever_name", "nv")

    assert (done.code, done.err) == (2, "error: --mode eval_reranker needs --reranker_name.\n")
