"""Correct the test of one pair over all stored pairs, as on the leaderboard."""

from __future__ import annotations

from collections.abc import Mapping

from r2med.measure.verdicts import StoredPairs
from r2med.results.leaderboard import Leaderboard
from r2med.results.record import Result
from r2med.results.standings import Standing


def find_stored_pairs(
    board: Leaderboard, results_a: Mapping[str, Result], results_b: Mapping[str, Result]
) -> StoredPairs | None:
    """Return a pair's p-value, corrected over a board; None if the board does not test it.

    `results_a` and `results_b` are the results of both systems, by task.
    """
    row_a, row_b = _find_row(board, results_a), _find_row(board, results_b)
    if row_a is None or row_b is None or row_b.system not in row_a.corrected_p:
        return None
    return StoredPairs(row_a.tests, row_a.corrected_p[row_b.system])


def _find_row(board: Leaderboard, results: Mapping[str, Result]) -> Standing | None:
    keys = {task: result.key for task, result in results.items()}
    for row in board.rows:
        if {task: result.key for task, result in row.results.items()} == keys:
            return row
    return None
