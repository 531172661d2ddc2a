"""Rerankers with code of their own: run only when trusted, and read by index."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from r2med.errors import DataError, UsageError
from r2med.execution.options import RunOptions
from r2med.execution.resources import Resources
from r2med.rerank.scores import Candidates
from r2med.systems.build import System
from r2med.systems.stages import Reranking

pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

from tests.rerank import tiny  # noqa: E402

CODE = """
from transformers import Qwen3ForCausalLM

class OwnRanker(Qwen3ForCausalLM):
    def rerank(self, query, documents, top_n=None):
        rows = [{"index": n, "relevance_score": len(d)} for n, d in enumerate(documents)]
        return sorted(rows, key=lambda row: -row["relevance_score"])
"""
LISTS = [Candidates("q", "fever", ["a", "b", "c"], ["cough", "c", "cough and fever"])]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "hf"))
    folder = tiny.save_qwen(tmp_path / "own")
    (folder / "ranking.py").write_text(CODE)
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModel": "ranking.OwnRanker"}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def stage(folder: Path, *, trusted: bool) -> Reranking:
    resources = Resources(RunOptions(trust_remote_code=trusted, device="cpu"))
    made = System.from_spec(f"bm25 | jina-reranker-v3[checkpoint={folder}]", resources).stage
    assert isinstance(made, Reranking)
    return made


def test_a_checkpoints_code_does_not_run_unless_allowed(folder: Path) -> None:
    with pytest.raises(UsageError, match="--trust-remote-code"):
        stage(folder, trusted=False)


def test_documents_are_ordered_by_the_scores_that_the_model_gives(folder: Path) -> None:
    [scores] = stage(folder, trusted=True).reranker.rerank(LISTS).scores

    assert scores.argsort()[::-1].tolist() == [2, 0, 1]


def test_a_model_without_rerank_is_named(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    del config["auto_map"]
    (folder / "config.json").write_text(json.dumps(config))

    with pytest.raises(DataError, match=r"has no attribute 'rerank'"):
        stage(folder, trusted=True).reranker.rerank(LISTS)
