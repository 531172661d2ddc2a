"""Apply the option `--judgements` in commands that read a results folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from r2med.judge.log import Warn
from r2med.results.record import BENCHMARK, Result


def results_with_judgements(
    folder: Path, choice: str, *, root: Path | None, warn: Warn
) -> Path | Sequence[Result]:
    """Return `folder` if `choice` is the benchmark, else its results measured with the choice."""
    if choice == BENCHMARK:
        return folder
    from r2med.judge.rescore import rescore_results
    from r2med.results.select import ResultSet

    results = ResultSet.open(folder, warn).results
    return rescore_results(results, choice, folder, root=root, warn=warn)
