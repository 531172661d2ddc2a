"""Power tables come from stored results, and nonsignificant verdicts say what was detectable."""

from __future__ import annotations

from pathlib import Path

import pytest

from r2med.errors import MissingError
from r2med.results.compare import compare
from r2med.results.power import compare_power, measure_power
from tests.cli.running import run
from tests.results.storing import ranks, store

TASK = "demo/biology"


@pytest.fixture
def results(tmp_path: Path) -> Path:
    store(tmp_path, "bm25", TASK, ranks(1, 2, 5, 0, 1, 3, 9, 2, 4, 1))
    store(tmp_path, "bm25-nano", TASK, ranks(2, 1, 4, 1, 1, 4, 9, 1, 5, 0))
    return tmp_path


def test_no_significant_difference_says_what_was_detectable(results: Path) -> None:
    comparison = compare("bm25", "bm25-nano", results=results)
    [verdict], [row] = comparison.verdicts, compare_power(comparison).rows

    assert row.detectable is not None
    assert verdict.detectable == row.detectable
    assert verdict.sentence.endswith(
        f"these queries detect a true difference of {100 * row.detectable:.1f} points."
    )


def test_the_power_of_a_task_is_that_of_its_stored_pairs(results: Path) -> None:
    comparison = compare("bm25", "bm25-nano", results=results)

    table = measure_power(TASK, results=results)

    assert table.pairs == (("bm25", "bm25-nano"),)
    [row], [alone] = table.rows, compare_power(comparison).rows
    assert (row.detectable, row.queries) == (alone.detectable, 10)
    assert table.to_arrow().num_rows == 1


def test_power_needs_two_stored_systems(tmp_path: Path) -> None:
    store(tmp_path, "bm25", TASK, ranks(1, 2, 3))

    with pytest.raises(MissingError, match="r2med eval bm25 wordllama --task demo/biology"):
        measure_power(TASK, results=tmp_path)


def test_the_command_and_the_option_print_the_same_table(results: Path) -> None:
    command = run("power", "--task", TASK, "--results", str(results))
    option = run("compare", "bm25", "bm25-nano", "--power", "--results", str(results))

    assert command.code == option.code == 0, command.err + option.err
    assert command.out.splitlines()[2:] == option.out.splitlines()[2:]
    assert max(map(len, command.out.splitlines())) <= 80
