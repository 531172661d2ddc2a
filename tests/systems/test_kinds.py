"""A system's outermost stage, and what remains without it."""

from __future__ import annotations

import pytest

from r2med.systems.registry import SystemKind, first_stage, kind_of
from r2med.systems.spec import parse


@pytest.mark.parametrize(
    ("text", "kind", "below"),
    [
        ("nv | rankllama@100", "reranker", "nv"),
        ("hyde:gpt4 | nv", "gar", "nv"),
        ("hyde:gpt4 | nv | rankllama@100", "reranker", "hyde:gpt4 | nv"),
        ("bm25 + nv | rankllama@10", "reranker", "bm25 + nv"),
        ("hyde:gpt4 | (bm25 + nv)", "gar", "bm25 + nv"),
        ("(hyde:gpt4 | nv) + bm25 | monobert", "reranker", "(hyde:gpt4 | nv) + bm25"),
        ("bm25", "base", None),
        ("bm25 + nv", "base", None),
    ],
)
def test_the_first_stage_is_the_system_without_its_outermost_stage(
    text: str, kind: SystemKind, below: str | None
) -> None:
    found = first_stage(parse(text), kind)

    assert (str(found) if found else None) == below


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("bm25", "base"),
        ("bm25 + bm25-lucene", "base"),
        ("bm25 | rankllama@100", "reranker"),
        ("no-such-name | nor-this", "base"),
    ],
)
def test_the_registry_decides_the_kind(text: str, kind: SystemKind) -> None:
    assert kind_of(parse(text)) == kind
