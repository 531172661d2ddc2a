"""One query explained: what its terms add up to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med.evaluation.explain import explain
from r2med.retrieve.bm25.retriever import Bm25Searcher
from r2med.systems.build import System
from r2med.systems.stages import Expanding, Retrieval
from r2med.tasks.load import load_task


def test_terms_of_bm25_add_up_to_the_score() -> None:
    task = load_task("demo/biology")
    ids = task.queries.ids.to_pylist()
    rows = [{"id": name, "hy_doc": "sympathetic vasoconstriction pulp"} for name in ids]
    Path("given.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = "hyde:qwen-7b[generations=given.jsonl] | bm25"

    found = explain(text, task, "1", run=True)

    stage = System.from_spec(text).stage
    assert isinstance(stage, Expanding) and isinstance(stage.first, Retrieval)
    searcher = stage.first.retriever.prepare(task)
    assert isinstance(searcher, Bm25Searcher)
    scores = dict(searcher.search(task.queries, depth=1000).ranking("1"))
    assert found.changes
    for document, changes in found.changes.items():
        assert sum(change.before for change in changes) == pytest.approx(scores[document])
