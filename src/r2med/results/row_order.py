"""Gains, ranks and letters of a leaderboard's rows, which depend on all rows together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from r2med.measure import parse_metric
from r2med.measure.intervals import Averaging
from r2med.measure.significance import draws_for, holm, is_significant, letters, pairwise_p
from r2med.results.published_data import has_published_data
from r2med.results.standings import Standing

#: Metrics that only depend on which documents are in the first k, not on their order.
_SET_METRICS = ("recall", "precision", "hit", "judged")


def add_gains(rows: Sequence[Standing], metric: str) -> list[Standing]:
    """Return the rows with their gains over their first stages.

    The gain of a printed row is over the figure that the same work prints for the first stage. The
    gain of a measured row is over its measured first stage, or else over the published one, with a
    mark. A reranker has no gain in a metric that it cannot change, such as recall@100 for a
    reranker of 100 documents.
    """
    printed = {row.system: row for row in rows if row.origin != "measured"}
    measured = {row.system: row for row in reversed(rows) if row.origin == "measured"}

    def add_gain(row: Standing) -> Standing:
        if _only_reorders(row, metric):
            return row
        printed_first = printed.get(row.first_stage)
        if row.origin == "measured":
            return _add_measured_gain(row, measured.get(row.first_stage), printed_first)
        works = {work.id for work in row.sources}
        for figure in (printed_first, *printed_first.other_figures) if printed_first else ():
            if works & {work.id for work in figure.sources} and figure.mean is not None:
                return _add_gain(row, figure)
        return row

    def add_gains_of(row: Standing) -> Standing:
        with_gain = add_gain(row)
        if not row.other_figures:
            return with_gain
        return replace(with_gain, other_figures=tuple(map(add_gain, row.other_figures)))

    return [add_gains_of(row) for row in rows]


def _only_reorders(row: Standing, metric: str) -> bool:
    """Whether a metric cannot change because the reranker only reorders the documents it counts."""
    if row.depth is None:
        return False
    parsed = parse_metric(metric)
    if parsed.cutoff is None or parsed.family not in _SET_METRICS:
        return False
    if row.depth >= parsed.cutoff:
        return row.depth == parsed.cutoff
    rerankings = [result.record.reranking for result in row.results.values()]
    keeps_tail = [reranking is not None and reranking.tail == "keep" for reranking in rerankings]
    return bool(keeps_tail) and all(keeps_tail)


def _add_measured_gain(
    row: Standing, measured_first: Standing | None, printed_first: Standing | None
) -> Standing:
    """Add the gain of a measured row over its measured or published first stage."""
    if measured_first and measured_first.mean is not None and measured_first.marks == row.marks:
        return _add_gain(row, measured_first)
    if printed_first and printed_first.origin == "published" and not row.marks:
        mark = f"Δ is over the published figure of {row.first_stage}, not measured here"
        with_gain = _add_gain(row, printed_first, " (published)")
        return with_gain if with_gain is row else replace(with_gain, marks=(mark,))
    return row


def _add_gain(row: Standing, first_stage: Standing, suffix: str = "") -> Standing:
    """Return a row with its gain; unchanged if one of the rows has no mean."""
    if row.mean is None or first_stage.mean is None:
        return row
    gain = row.mean - first_stage.mean
    return replace(row, gain=gain, gain_over=first_stage.system + suffix)


def rank_rows(rows: Sequence[Standing]) -> list[Standing]:
    """Return the rows with ranks, best first; equal means share a rank.

    Rows without a mean, or on data other than the published data, come last without a rank.
    """
    complete = [row for row in rows if row.mean is not None and row.is_published_data]
    ranked: list[Standing] = []
    for position, row in enumerate(sorted(complete, key=lambda row: -(row.mean or 0)), start=1):
        is_tied = ranked and ranked[-1].mean == row.mean
        ranked.append(replace(row, rank=ranked[-1].rank if is_tied else position))
    unranked = [row for row in rows if row.mean is None or not row.is_published_data]
    return [*ranked, *sorted(unranked, key=lambda row: -(row.mean or 0))]


def assign_letters(rows: Sequence[Standing], metric: str, averaging: Averaging) -> list[Standing]:
    """Return the rows (best first) with letters.

    Two rows share a letter unless they differ significantly.

    All pairs of rows on the same data are tested, with Holm's correction over all pairs. If there
    are results on several data, the published data are used, or else those of most systems. Rows on
    other data have no letter.
    """
    groups: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for row_index, row in enumerate(rows):
        if row.interval is not None:
            data = tuple((task, result.data) for task, result in row.results.items())
            groups.setdefault(data, []).append(row_index)

    def weight(group: Sequence[int]) -> tuple[bool, int]:
        results = rows[group[0]].results.values()
        return all(has_published_data(result) for result in results), len(group)

    tested = max(groups.values(), key=weight, default=[])
    if len(tested) < 2:
        return list(rows)
    tasks = []
    for task in rows[tested[0]].results:
        tables = [rows[row_index].results[task].scores_by(metric) for row_index in tested]
        # The order of the first row's queries: a comparison has it too, and draws the same signs.
        query_ids = tables[0].query_ids
        tasks.append(np.column_stack([table.at(query_ids)[metric] for table in tables]))
    upper = np.triu_indices(len(tested), 1)
    p_values = pairwise_p(tasks, averaging, resamples=draws_for(len(upper[0])))
    corrected = np.ones((len(tested), len(tested)))
    corrected[upper] = holm(list(p_values[upper]))
    corrected = np.minimum(corrected, corrected.T)
    different = np.vectorize(is_significant)(corrected)
    tests = len(upper[0])
    lettered = list(rows)
    for row_index, names, p_of_row in zip(tested, letters(different), corrected, strict=True):
        corrected_p = {
            rows[rival_index].system: float(p)
            for rival_index, p in zip(tested, p_of_row, strict=True)
            if rival_index != row_index
        }
        lettered[row_index] = replace(
            rows[row_index], letters=names, tests=tests, corrected_p=corrected_p
        )
    return lettered
