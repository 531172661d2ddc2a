from __future__ import annotations

import json
from pathlib import Path

from r2med.nano.candidates import combine_candidates
from r2med.nano.folder import write_candidates
from r2med.nano.profiles import check_profile, profile
from r2med.runs import Run
from r2med.tasks.load import load_task
from r2med.tasks.registry import find_task
from tests.cli.running import run
from tests.tasks.writing import write_nano

NAME = "NanoR2MEDBiology"


def local_copy(root: Path) -> Path:
    """A NanoR2MED of one task that is not the published one."""
    folder = write_nano(root / "NanoR2MED", split=NAME)
    task = load_task(NAME, root=root, use_copy=False)
    ranked = Run.from_lists({"1": [("d3", 1.0)], "2": [("d1", 1.0)]})
    found = combine_candidates(ranked, ranked, task.judgements, split=NAME, dense=("x", "x"))
    for subset in (found[0], found[-1]):
        write_candidates(subset.run, folder, subset.config, NAME)
    return root


def test_verify_compares_the_candidates_of_a_local_copy_with_the_manifest(tmp_path: Path) -> None:
    root = local_copy(tmp_path)

    outcome = run("tasks", "verify", NAME, "--data-root", str(root), "--json")

    rows = [row for row in json.loads(outcome.out) if row["aspect"] == "profile"]
    verdicts = {row["fact"]: row["passed"] for row in rows}
    assert outcome.code == 1
    assert verdicts["bm25.ndcg@10"] is False
    assert verdicts["positives.min"] is True
    assert verdicts["dense.ndcg@10"] is None


def test_every_published_figure_of_every_subset_is_checked(tmp_path: Path) -> None:
    task = load_task(NAME, root=local_copy(tmp_path))

    checks = {check.fact for check in check_profile(profile(task), find_task(NAME))}

    for role in ("bm25", "dense", "reranking_hybrid"):
        for figure in ("ndcg@10", "hit@10", "micro_recall@100", "candidates_mean"):
            assert f"{role}.{figure}" in checks
    assert "reranking_hybrid.safeguard_rows" in checks
