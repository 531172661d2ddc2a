"""docs/dense.md says what the registry says, and the torch routes of docs/your-model.md run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from r2med.systems.registry import Entry, entries
from tests.retrieve.checkpoints import save_model, save_modules

HEAD = "| name | checkpoint | pooling | tokens | query instruction | published as |"


def table() -> str:
    """The table of docs/dense.md, from the registry."""
    named = [entry for entry in entries().values() if entry.backend == "dense"]
    rows = [_row(entry) for entry in named if not entry.argument]
    return "\n".join([HEAD, "|---" * 6 + "|", *rows])


def _row(entry: Entry) -> str:
    told = entry.fields
    both = dict.fromkeys([told["query_checkpoint"], told["document_checkpoint"]])
    checkpoint = told["checkpoint"] or ", ".join(map(str, both))
    lengths = [told["query_max_length"] or told["max_length"], told["max_length"]]
    length = " / ".join(dict.fromkeys(str(n or "the model's own") for n in lengths))
    instruction = told["query_instruction"] or (
        f"the checkpoint's `{told['query_prompt']}`" if told["query_prompt"] else "none"
    )
    if told["query_instruction"]:
        instruction = f"`{instruction}`".replace("\n", "\\n").replace("|", "\\|")
    pooling = {"model": "the checkpoint's"}.get(str(told["pooling"]), told["pooling"])
    cells = [f"`{entry.name}`", checkpoint, pooling, length, instruction, entry.published_as or "-"]
    return "| " + " | ".join(map(str, cells)) + " |"


def test_the_guides_table_is_the_registry(repository: Path) -> None:
    assert table() in (repository / "docs" / "dense.md").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore")
def test_the_routes_that_need_torch_run(tmp_path: Path, repository: Path) -> None:
    pytest.importorskip("sentence_transformers")
    guide = (repository / "docs" / "your-model.md").read_text(encoding="utf-8")
    save_model(tmp_path / "my-model", "bert")
    save_modules(tmp_path / "my-model", pooling="mean")
    source, programs = str(repository / "src"), f"{Path(sys.executable).parent}"
    environment = {**os.environ, "PYTHONPATH": source, "HF_HUB_OFFLINE": "1"}
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"

    for language, block in re.findall(r"^```(sh|py)\n(.*?)^```$", guide, re.M | re.S):
        call = ["bash", "-euc", block] if language == "sh" else [sys.executable, "-c", block]
        done = subprocess.run(call, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
