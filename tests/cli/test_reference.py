"""The reference's command lines mean the same systems here."""

from __future__ import annotations

import pytest

from r2med.cli.run import reference_words
from r2med.errors import UsageError


@pytest.mark.parametrize(
    ("options", "system"),
    [
        ({"mode": "eval_retrieval", "retriever_name": "bm25"}, "bm25"),
        (
            {"mode": "eval_reranker", "retriever_name": "nv", "reranker_name": "monobert"},
            "nv | monobert@10",
        ),
        (
            {
                "mode": "eval_reranker",
                "retriever_name": "nv",
                "reranker_name": "rankllama",
                "recall_k": 100,
            },
            "nv | rankllama@100",
        ),
        (
            {
                "mode": "eval_retrieval",
                "retriever_name": "bge",
                "gar_method": "hyde",
                "gar_llm": "gpt4",
            },
            "hyde:gpt4 | bge",
        ),
    ],
)
def test_options_become_a_system(options: dict[str, object], system: str) -> None:
    assert reference_words(**options) == ["eval", system]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"mode": "eval"}, "--mode 'eval' is not known"),
        ({"mode": "eval_retrieval"}, "needs --retriever_name"),
        ({"mode": "eval_reranker", "retriever_name": "nv"}, "needs --reranker_name"),
        ({"mode": "generate_hydoc", "gar_method": "hyde"}, "needs --gar_llm"),
        (
            {"mode": "eval_retrieval", "retriever_name": "nv", "gar_llm": "gpt4"},
            "--gar_method is missing",
        ),
        (
            {"mode": "eval_reranker", "retriever_name": "nv", "reranker_name": "mono"},
            "Did you mean 'monobert'",
        ),
    ],
)
def test_what_is_missing_or_unknown_is_named(options: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        reference_words(**options)  # type: ignore[arg-type]
