"""Documents that are excluded for single queries, as BRIGHT's `excluded_ids` are.

An excluded document is removed from the ranked list before measuring, so that the documents below
it move up. It is neither a hit nor a miss.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from r2med.errors import DataError
from r2med.runs import Run
from r2med.tasks.task import Judgements

Exclusions = Mapping[str, frozenset[str]]
"""By query the ids of documents that do not count."""
#: BRIGHT writes this where a query excludes nothing.
_NOTHING = "N/A"
_HINT = 'Each line is {"id": "...", "excluded_ids": ["...", ...]}.'


def read_exclusions(path: Path) -> Exclusions:
    """Read the excluded documents of every query from JSON lines.

    Rows of a BRIGHT query file can be used unchanged; other fields are ignored.
    """
    exclusions: dict[str, frozenset[str]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{path} cannot be read: {problem}.") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            query_id, documents = row["id"], row["excluded_ids"]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f'{path}, line {number}: no "id" and "excluded_ids" found.\n{_HINT}'
            ) from None
        is_valid = isinstance(documents, list) and all(isinstance(d, str) for d in documents)
        if not isinstance(query_id, str) or not is_valid:
            raise DataError(
                f'{path}, line {number}: "id" must be a string and "excluded_ids" a list of '
                f"strings.\n{_HINT}"
            )
        exclusions[query_id] = frozenset(documents) - {_NOTHING}
    return exclusions


def remove_excluded(run: Run, exclusions: Exclusions) -> tuple[Run, int]:
    """Remove excluded documents from the lists; return the run and how many were removed."""
    query_ids = run.query_ids.to_pylist()
    document_ids = run.document_ids.to_pylist()
    excluded = {
        (row, document)
        for row, query_id in enumerate(query_ids)
        for document in exclusions.get(query_id, ())
    }
    is_kept = np.array(
        [
            (row, document_ids[document]) not in excluded
            for row, document in zip(run.query_rows.tolist(), run.documents.tolist(), strict=True)
        ],
        dtype=bool,
    )
    return run.take(np.flatnonzero(is_kept)), int((~is_kept).sum())


def remove_excluded_judgements(judgements: Judgements, exclusions: Exclusions) -> Judgements:
    """Remove the judgements of excluded documents, which then are not missed either."""
    pairs = zip(judgements.query_ids.to_pylist(), judgements.document_ids.to_pylist(), strict=True)
    is_kept = np.array(
        [document not in exclusions.get(query, ()) for query, document in pairs], dtype=bool
    )
    indices = pa.array(np.flatnonzero(is_kept))
    return Judgements(
        judgements.query_ids.take(indices),
        judgements.document_ids.take(indices),
        judgements.scores[is_kept],
    )
