"""The whole build from real exam items to a frozen benchmark, with a scripted language model.

Set `R2MED_PARITY` to a folder with `data/items`; the tests are skipped without it.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import r2med
from r2med.build.check import check_build
from r2med.build.corpus import build_corpus
from r2med.build.folder import BuildFolder
from r2med.build.freeze import freeze_build
from r2med.build.items import build_items
from r2med.build.judge import judge_candidates, prepare_judging
from r2med.build.pool import build_pool
from r2med.tasks.own_data import check
from tests.build.making import resources_of
from tests.llm_server import running_llm_server

pytestmark = pytest.mark.skipif(
    "R2MED_PARITY" not in os.environ, reason="set R2MED_PARITY to a folder with data/items"
)
ITEMS = Path(os.environ.get("R2MED_PARITY", ".")) / "data" / "items"
SYSTEMS = ["bm25", "bm25-nano", "wordllama"]
_TEXT = re.compile(r"Text:\n(.*?)\n\nCorrect answer", re.DOTALL)


def reply(body: Mapping[str, Any]) -> str:
    """Answer every prompt in the right form; a sixth of all passages are relevant."""
    text = str(body["messages"][-1]["content"])
    if "Give two scores" in text:
        score = 3 if zlib.crc32(text.encode()) % 6 == 0 else 1
        return json.dumps({"answer": score, "reasoning": score})
    if '"usable"' in text:
        return json.dumps({"type": "diagnosis", "usable": True, "reason": ""})
    if match := _TEXT.search(text):
        return json.dumps({"query": match[1]})
    if '"reasoning"' in text:
        return json.dumps({"reasoning": "The findings lead to the answer."})
    return json.dumps({"answer": "I do not know"})


def make_build(path: Path) -> BuildFolder:
    sources = ""
    for name in ("medqa", "medxpertqa"):
        rows = gzip.decompress((ITEMS / f"{name}.jsonl.gz").read_bytes())
        (path / f"{name}.jsonl").write_bytes(rows)
        sources += f'[[items.sources]]\npath = "{name}.jsonl"\nformat = "{name}"\n'
    (path / "texts").mkdir()
    demo = Path(r2med.__file__).parent / "tasks" / "demo"
    for corpus in sorted(demo.glob("*/corpus.jsonl")):
        (path / "texts" / f"{corpus.parent.name}.jsonl").write_bytes(corpus.read_bytes())
    (path / "build.toml").write_text(
        f"""[benchmark]\nname = "exam"\n[items]\nmodel = "writer"\n{sources}
[[corpus.sources]]\npath = "texts"\n[pool]\nsystems = {json.dumps(SYSTEMS)}\ndepth = 5
[judge]\njudges = ["judge"]\n[check]\naudit = false\n""",
        encoding="utf-8",
    )
    return BuildFolder(path)


@pytest.mark.slow
def test_real_exam_items_become_a_benchmark_that_three_systems_evaluate(tmp_path: Path) -> None:
    folder = make_build(tmp_path)
    with running_llm_server() as server:
        server.reply = reply
        with resources_of(server) as resources:
            items = build_items(folder, resources)
            corpus = build_corpus(folder, resources)
            build_pool(folder, resources)
            judge_candidates(folder, prepare_judging(folder, resources), resources)
            frozen = freeze_build(folder, resources)
            verdicts = check_build(folder, resources).verdicts
    problems, task = check(frozen.tasks[0])
    results = r2med.evaluate_all(SYSTEMS, frozen.tasks[0], results=tmp_path / "results")

    assert items.record.counts_in == {"items": 118 + 97}
    assert len(items.items) >= 200
    assert corpus.record.counts_out["passages"] >= 1_500
    assert problems == []
    assert task is not None and len(task.queries) >= 150
    assert all(0 < result.metrics["ndcg@10"] <= 1 for result in results)
    assert {"judged@10", "style probe", "leave out view: tau"} <= {v.check for v in verdicts}
