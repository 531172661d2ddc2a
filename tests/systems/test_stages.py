from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import UsageError
from r2med.systems.build import System
from r2med.systems.registry import entries
from r2med.systems.stages import Expanding
from r2med.tasks.load import load_task


def test_every_published_method_is_an_expander() -> None:
    methods = {name for name, entry in entries().items() if entry.stage == "expander"}

    assert methods == {"hyde", "query2doc", "lamer", "search-o1", "search-r1"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hyde:gpt4", "expands queries for what follows it"),
        ("hyde:gpt4 + bm25", "expands queries for what follows it"),
        ("bm25 | hyde:gpt4", "it must come before the retriever"),
        ("hyde:gpt4 | candidates:bm25", "so a retriever must follow it"),
        ("hyde:gpt4 | (bm25 + candidates:bm25)", "so a retriever must follow it"),
        (
            "hyde:gpt4 | lamer:gpt4 | bm25",
            "queries that hyde:gpt4 has already",
        ),
        ("hyde | bm25", "which model?"),
        ("hyde:gpt4[m=4] | bm25", "has no option 'm'"),
        ("hyde:gpt4[kind=quiz] | bm25", "expected one of post, exam"),
        ("hyde:gpt4[lexical=words] | bm25", "neither {query} nor {generated}"),
        ('search-o1:gpt4[search=""] | bm25', "search-o1: it needs a retriever"),
    ],
)
def test_what_cannot_be_is_refused_in_words(text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        System.from_spec(text)

    assert complaint in str(caught.value)


def test_an_agent_that_would_search_with_a_fusion_is_refused() -> None:
    system = System.from_spec('search-o1:smollm2[search="bm25 + bm25-nano"] | bm25')
    assert isinstance(system.stage, Expanding)

    with pytest.raises(UsageError, match="expected one retriever"):
        system.stage.identity(load_task("demo/biology"))


def test_depth_and_ties_are_those_of_what_searches() -> None:
    task = load_task("demo/biology")

    stage = System.from_spec("hyde:smollm2 | bm25-nano@70").stage

    assert stage.depth == 70
    assert stage.ties(task) == "list"


@pytest.mark.parametrize(
    ("text", "published"),
    [
        ("hyde:gpt4[generations=published] | bm25", "hyde:gpt4 | bm25"),
        ("hyde:gpt4[generations=live] | bm25", None),
        ("hyde:gpt4 | bm25", None),
        ("hyde:gpt4[generations=published] | bm25[k1=1.2]", None),
    ],
)
def test_only_published_generations_make_a_published_system(
    text: str, published: str | None
) -> None:
    assert System.from_spec(text).stage.published_as == published


def test_identity_follows_the_file_s_content(tmp_path: Path) -> None:
    task = load_task("demo/biology")
    file = tmp_path / "g.jsonl"
    file.write_text('{"id": "1", "hy_doc": "a"}\n')
    stage = System.from_spec(f"hyde:gpt4[generations={file}] | bm25").stage
    before = stage.identity(task)

    file.write_text('{"id": "1", "hy_doc": "b"}\n')

    assert stage.identity(task) != before
