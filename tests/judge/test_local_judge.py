"""The whole flow once with a real small model: its grades are read, stored and calibrated."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.judge.calibration import calibrate_set
from r2med.judge.judging import items_of, open_set
from r2med.judge.panel import open_panel
from r2med.judge.pool import sample_calibration
from r2med.judge.rubric import find_rubric
from r2med.remote.chat import Remote
from r2med.tasks.load import load_task
from tests.local_llm import smollm2_url  # noqa: F401 - a fixture


def test_a_real_small_model_judges_and_is_calibrated(
    smollm2_url: str,  # noqa: F811 - the fixture
    tmp_path: Path,
) -> None:
    task = load_task("demo/biology")
    remote = Remote(url=smollm2_url)
    panel = open_panel(["smollm2[max_tokens=80]"], find_rubric("graded"), remote)
    sample = sample_calibration(task, 4)
    judged = open_set(task, panel, tmp_path, name=None, depth=10, warn=pytest.fail)

    judged.add(panel.ask(items_of(task, [], calibration=sample)))
    remote.close()

    stored = judged.judgements()
    assert sorted(stored) == sorted(sample)
    for judgement in stored.values():
        [vote] = judgement.votes
        assert vote.model == "smollm2" and (judgement.grade in (0, 1, 2, 3) or vote.problem)
    assert calibrate_set(judged, task).pairs == len(judged.grades())
