"""Killed in any stage, a build loses nothing: the same command ends with the same bytes."""

from __future__ import annotations

import csv
import hashlib
import random
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from r2med.build.folder import BuildFolder
from r2med.build.review import open_review
from r2med.judge.review_files import export_review
from tests.build.making import make_folder, passages, reply
from tests.cli.running import ended, start
from tests.llm_server import LLMServer, Step, running_llm_server
from tests.trials.counting import COUNTS

KILLS = 2
STAGES = ("items", "corpus", "pool", "judge", "review", "freeze", "check")
ASKING = ("items", "judge")
#: Seconds that a request takes, so that kills meet requests and not only the start of Python.
SECONDS = 0.01


def make_build(path: Path) -> BuildFolder:
    make_folder(path)
    with (path / "build.toml").open("a", encoding="utf-8") as file:
        file.write('[[corpus.sources]]\npath = "documents"\nlicence = "CC0"\n')
    (path / "documents").mkdir()
    for row in passages(450):
        name = row["id"].replace("#", "-")
        (path / "documents" / f"{name}.txt").write_text(row["text"], encoding="utf-8")
    return BuildFolder(path)


def command(stage: str, folder: BuildFolder, server: LLMServer) -> list[str]:
    words = ["build", stage, str(folder.path)]
    if stage == "review":
        words += ["--reviewer", "ann", "--import", str(write_labels(folder)), "--partial"]
    return [*words, "--llm-url", server.url] if stage in ASKING else words


def write_labels(folder: BuildFolder) -> Path:
    """Write the labels of a reviewer who finds every other pair relevant."""
    path = folder.path / "ann.csv"
    if path.exists():
        return path
    review = open_review(folder, warn=pytest.fail)
    export_review(path, review.queue, "ann", lambda pair: {"passage": "p"}, review.store)
    review.store.close()
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    for index, row in enumerate(rows):
        row["label"] = str(3 * (index % 2))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def hash_outputs(folder: BuildFolder) -> Mapping[str, str]:
    """Return the hashes of every file that people or later stages read."""
    outputs = [folder.path / name for name in ("items.jsonl", "pool.jsonl", "judged.jsonl")]
    outputs += [*folder.corpus_folder.iterdir(), *folder.frozen_folder.rglob("*")]
    outputs += [*(folder.path / "records").iterdir(), folder.check_path]
    return {
        path.relative_to(folder.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(outputs)
        if path.is_file()
    }


@pytest.mark.slow
def test_a_build_that_is_killed_in_every_stage_has_the_same_bytes(
    tmp_path: Path, trials: int
) -> None:
    chance = random.Random(24)
    undisturbed, killed = make_build(tmp_path / "whole"), make_build(tmp_path / "killed")
    with running_llm_server() as server:
        server.reply = reply
        server.script = [Step(seconds=SECONDS)] * 100_000
        for stage in STAGES:
            began = time.monotonic()
            outcome = ended(start(*command(stage, undisturbed, server)))
            assert outcome.code == 0, outcome.err
            duration = time.monotonic() - began
            for _ in range(KILLS * trials):
                process = start(*command(stage, killed, server))
                time.sleep(chance.uniform(0.3, 1.0) * duration)
                process.kill()
                process.communicate()
                COUNTS[f"kills in build {stage}"] += 1
            outcome = ended(start(*command(stage, killed, server)))
            assert outcome.code == 0, outcome.err

    assert hash_outputs(killed) == hash_outputs(undisturbed)
