from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from r2med import evaluate_all
from r2med.errors import MissingError
from r2med.nano import Recipe, build
from r2med.nano.fidelity import fidelity, kendall, spearman
from r2med.results.record import Result
from r2med.tasks.load import load_task
from r2med.tasks.task import Task
from tests.cli.running import run

SYSTEMS = ["bm25", "bm25-lucene", "bm25-nano", "bm25[k1=3.0]"]


@pytest.fixture
def results(tmp_path: Path) -> list[Result]:
    build(load_task("demo/biology"), tmp_path / "nano", Recipe(documents=60))
    nano = load_task(f"{tmp_path / 'nano'}#NanoDemoBiology")
    return evaluate_all(SYSTEMS, [load_task("demo/biology"), nano])


def test_systems_are_ranked_on_both_tasks_with_intervals(results: list[Result]) -> None:
    found = fidelity("demo/biology", "nano#NanoDemoBiology", results, resamples=200)

    assert {row.system for row in found.systems} == set(SYSTEMS)
    assert found.queries == len(load_task("demo/biology").queries)
    assert -1 <= found.kendall <= 1 and -1 <= found.spearman <= 1
    assert found.kendall_interval.low <= found.kendall_interval.high


def test_a_task_compared_with_itself_agrees_wholly(results: list[Result]) -> None:
    found = fidelity("demo/biology", "demo/biology", results, resamples=100)

    assert found.kendall == pytest.approx(1.0)
    assert found.spearman_interval.low == pytest.approx(1.0)


def test_the_command_reads_stored_results_and_fits_eighty_columns(results: list[Result]) -> None:
    outcome = run("nano", "fidelity", "demo/biology", "nano#NanoDemoBiology", "--resamples", "100")
    by_folder = run("nano", "fidelity", "demo/biology", "nano", "--resamples", "100")

    assert outcome.code == 0
    assert by_folder.out == outcome.out
    assert all(system in outcome.out for system in SYSTEMS)
    assert "Kendall tau-b" in outcome.out and "Spearman rho" in outcome.out
    assert max(len(line.rstrip()) for line in outcome.out.splitlines()) <= 80


def test_too_few_systems_is_an_error_that_says_which_there_are(results: list[Result]) -> None:
    few = [result for result in results if result.system in SYSTEMS[:2]]

    with pytest.raises(MissingError, match=r"2 systems have stored results on both"):
        fidelity("demo/biology", "nano#NanoDemoBiology", few)


def other_data(folder: Path, documents: int) -> Task:
    """Another form of the same source, built in the place of the first."""
    build(load_task("demo/biology"), folder / "nano", Recipe(documents=documents), force=True)
    return load_task(f"{folder / 'nano'}#NanoDemoBiology")


def test_results_on_other_data_of_a_task_are_told_and_not_counted(
    results: list[Result], tmp_path: Path
) -> None:
    on_other = evaluate_all(SYSTEMS[:3], [other_data(tmp_path, 50)])

    found = fidelity("demo/biology", "nano#NanoDemoBiology", [*on_other, *results], resamples=100)

    assert {row.system: row.nano for row in found.systems} == {
        result.system: pytest.approx(result.metrics["ndcg@10"]) for result in on_other
    }
    [note] = found.passed_over
    assert "NanoDemoBiology: 4 stored results on other data" in note


def test_too_few_systems_on_the_newest_data_is_an_error_that_tells_of_the_other(
    results: list[Result], tmp_path: Path
) -> None:
    on_other = evaluate_all(SYSTEMS[:1], [other_data(tmp_path, 50)])

    with pytest.raises(MissingError, match="4 stored results on other data"):
        fidelity("demo/biology", "nano#NanoDemoBiology", [*on_other, *results])


columns = st.lists(st.floats(0, 1), min_size=3, max_size=8).filter(lambda c: np.ptp(c) > 0)


@given(columns)
def test_agreement_is_whole_with_itself_and_reversed_with_its_negative(column: list[float]) -> None:
    values = np.array(column)

    assert kendall(values, values) == pytest.approx(1.0)
    assert spearman(values, -values) == pytest.approx(-1.0)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=3, max_size=9))
def test_spearman_is_scipys(pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))

    if np.ptp(a) and np.ptp(b):
        assert spearman(a, b) == pytest.approx(float(spearmanr(a, b).statistic))
    else:
        assert spearman(a, b) == 0.0
