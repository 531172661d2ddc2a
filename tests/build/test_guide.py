"""The commands of docs/build.md that need a language model run, in order, with a scripted one."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.llm_server import running_llm_server

GUIDE = Path(__file__).parent.parent.parent / "docs" / "build.md"
_PREPARATION = re.compile(r"^```(python|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^    (r2med .*)$", re.MULTILINE)


def grade(body: Mapping[str, Any]) -> str:
    """Grade passages that share a long word with the answer or the reasoning as relevant."""
    text = str(body["messages"][-1]["content"])
    question, _, passage = text.partition("Passage:\n")
    supported = question.partition("Reference answer:\n")[2].lower()
    passage = passage.partition("\n\nGive two scores")[0].lower()
    shared = set(re.findall(r"[a-z]{8,}", supported)) & set(re.findall(r"[a-z]{8,}", passage))
    score = 3 if shared or ("gout" in supported and "gout" in passage) else 0
    return json.dumps({"answer": score, "reasoning": score, "rationale": "as read"})


@pytest.mark.slow
def test_the_guide_leads_from_questions_to_a_checked_benchmark(tmp_path: Path) -> None:
    text = GUIDE.read_text(encoding="utf-8")
    example, stages = (match[2] for match in list(_PREPARATION.finditer(text))[:2])
    first = [line.removeprefix("$ ") for line in stages.splitlines()]
    with running_llm_server() as server:
        server.reply = grade
        environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "R2MED_LLM_URL": server.url,
        }
        subprocess.run([sys.executable, "-c", example], cwd=tmp_path, check=True)
        outputs = {}
        for command in [*first, *_COMMANDS.findall(text)]:
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
            outputs[command] = done.stdout + done.stderr

    assert "questions.jsonl, line 4: the answer is missing" in outputs["r2med build items ward"]
    assert "No person has reviewed the judgements." in outputs["r2med build freeze ward"]
    assert (tmp_path / "funnel.svg").read_text("utf-8").startswith("<svg")
    card = (tmp_path / "ward" / "frozen" / "README.md").read_text("utf-8")
    assert "| queries | 3 (3 in test) |" in card
    assert "| of these, passages of distractor collections | 40 |" in card
