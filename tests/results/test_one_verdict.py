"""`eval`, `compare`, the leaderboard and the report decide a pair by the same test."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from r2med.measure.significance import is_significant
from r2med.results.compare import compare
from r2med.results.evaluation import Evaluation
from r2med.results.leaderboard import leaderboard
from tests.results.storing import store

TASKS = ("demo/biology", "demo/medqa-diag")
SYSTEMS = ("bm25", "bm25-lucene", "bm25-nano", "wordllama")


@pytest.mark.parametrize("seed", range(4))
def test_every_table_has_the_same_p_values_for_a_pair(seed: int, tmp_path: Path) -> None:
    draw = np.random.default_rng(seed)
    results = [
        store(
            tmp_path,
            system,
            task,
            {f"q{n}": max(1, int(draw.integers(1, 4 + 2 * index))) for n in range(24)},
        )
        for task in TASKS
        for index, system in enumerate(SYSTEMS)
    ]
    evaluated = Evaluation(results).verdicts(TASKS, "ndcg@10")
    compared = compare(*SYSTEMS, task=",".join(TASKS), results=tmp_path, tell=lambda _: None)
    board = leaderboard(suite="demo", task=",".join(TASKS), results=tmp_path)
    rows = {row.system: row for row in board.rows}

    by_pair = {frozenset((verdict.a, verdict.b)): verdict for verdict in compared.verdicts}
    assert len(evaluated) == len(SYSTEMS) - 1
    for verdict in evaluated.values():
        other = by_pair[frozenset((verdict.a, verdict.b))]
        assert verdict.difference.p_randomisation == other.difference.p_randomisation
        assert verdict.p_corrected == pytest.approx(other.p_corrected)
        assert verdict.p_corrected == pytest.approx(rows[verdict.a].corrected_p[verdict.b])
        assert verdict.family == other.family
        assert verdict.better == other.better
        shares_letter = set(rows[verdict.a].letters) & set(rows[verdict.b].letters)
        assert is_significant(verdict.p_corrected) != bool(shares_letter)


def test_two_named_systems_are_decided_as_on_the_leaderboard(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    for task in TASKS:
        for index, system in enumerate(SYSTEMS):
            ranks = {f"q{n}": max(1, int(draw.integers(1, 4 + index))) for n in range(24)}
            store(tmp_path, system, task, ranks)
    board = leaderboard(suite="demo", task=",".join(TASKS), results=tmp_path)
    rows = {row.system: row for row in board.rows}

    for a, b in combinations(SYSTEMS, 2):
        comparison = compare(a, b, results=tmp_path, tell=lambda _: None)
        [verdict] = comparison.verdicts

        alone = verdict.difference.p_randomisation
        assert verdict.family.tests == 6
        assert verdict.p_corrected == max(alone, rows[a].corrected_p[b])
        assert verdict.is_significant != bool(set(rows[a].letters) & set(rows[b].letters))


def test_the_only_stored_pair_is_one_test(tmp_path: Path) -> None:
    for system in SYSTEMS[:2]:
        store(tmp_path, system, TASKS[0], {"1": 1, "2": 2})

    [verdict] = compare(*SYSTEMS[:2], results=tmp_path, tell=lambda _: None).verdicts

    assert verdict.family.tests == 1
