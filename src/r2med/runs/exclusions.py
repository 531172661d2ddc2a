"""Remove documents from ranked lists that are excluded for single queries."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from r2med.runs.run import Run, find_positions


def remove_excluded(run: Run, exclusions: Mapping[str, frozenset[str]]) -> tuple[Run, int]:
    """Remove excluded documents from the lists, so that the documents below them move up.

    Returns:
        The run without the excluded documents, and how many entries were removed.
    """
    if not exclusions:
        return run, 0
    names = sorted(frozenset().union(*exclusions.values()))
    positions = find_positions(pa.array(names, pa.large_string()), run.document_ids)
    codes = dict(zip(names, positions.tolist(), strict=True))
    is_kept = np.ones(len(run.documents), dtype=bool)
    for row, query_id in enumerate(run.query_ids.to_pylist()):
        excluded = [codes[name] for name in exclusions.get(query_id, ())]
        entries = slice(int(run.offsets[row]), int(run.offsets[row + 1]))
        if excluded:
            is_kept[entries] = ~np.isin(run.documents[entries], excluded)
    return run.take(np.flatnonzero(is_kept)), int((~is_kept).sum())
