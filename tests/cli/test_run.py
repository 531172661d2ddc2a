"""`r2med run`: the reference's command lines, as they stand in its README."""

from __future__ import annotations

import pytest

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


@pytest.mark.parametrize(
    ("options", "system"),
    [
        ("--mode eval_retrieval --retriever_name bm25", "bm25"),
        ("--mode eval_reranker --retriever_name nv --reranker_name monobert", "'nv | monobert@10'"),
        (
            "--mode eval_retrieval --retriever_name bge --gar_method hyde --gar_llm gpt4",
            "'hyde:gpt4 | bge'",
        ),
    ],
)
def test_options_become_a_system(options: str, system: str) -> None:
    done = run("run", *options.split(), "--task", "Biology", "--results", "here", "--dry-run")

    assert done.err == f"$ r2med eval {system} --task Biology --results here\n"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--mode eval", "--mode 'eval' is not known"),
        ("--mode eval_retrieval", "needs --retriever_name"),
        ("--mode eval_reranker --retriever_name nv", "needs --reranker_name"),
        ("--mode generate_hydoc --gar_method hyde", "needs --gar_llm"),
        ("--mode eval_retrieval --retriever_name nv --gar_llm gpt4", "--gar_method is missing"),
        (
            "--mode eval_reranker --retriever_name nv --reranker_name mono",
            "Did you mean 'monobert'",
        ),
    ],
)
def test_what_is_missing_or_unknown_is_named(options: str, why: str) -> None:
    refused = run("run", *options.split(), "--task", "demo/biology")

    assert refused.code == 2
    assert why in refused.err
