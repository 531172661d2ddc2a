"""Documents that are excluded for single queries, as by BRIGHT's `excluded_ids`.

Exclusions are in a field of a query's row, or in a separate file. An excluded document is removed
from the ranked lists and the judgements of the query, so it is neither found nor missed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from r2med.errors import DataError
from r2med.tasks.task import Judgements, Queries

Exclusions = Mapping[str, frozenset[str]]
"""By query id, the ids of the documents that do not count for the query."""
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
        location = f"{path}, line {number}"
        try:
            row = json.loads(line)
            query_id, documents = row["id"], row["excluded_ids"]
        except (ValueError, KeyError, TypeError):
            raise DataError(f'{location}: no "id" and "excluded_ids" found.\n{_HINT}') from None
        if not isinstance(query_id, str):
            raise DataError(f'{location}: "id" must be a string.\n{_HINT}')
        exclusions[query_id] = _check_documents(documents, location)
    return exclusions


def normalize_exclusions(queries: Queries, locate: Callable[[int], object]) -> Queries:
    """Check the exclusions in query rows; rows that exclude nothing become null.

    Args:
        queries: The queries as read, with JSON texts.
        locate: Returns the line of a row, for errors.
    """
    texts = []
    for row, text in enumerate(queries.excluded_ids.to_pylist()):
        texts.append(None if text is None else _to_json(_parse_row(text, str(locate(row)))))
    return _replace_column(queries, texts)


def apply_exclusions_file(queries: Queries, path: Path) -> tuple[Queries, int]:
    """Add the exclusions in a file to the queries; return the number of unknown queries too."""
    listed = read_exclusions(path)
    texts = []
    query_ids = queries.ids.to_pylist()
    for query_id, text in zip(query_ids, queries.excluded_ids.to_pylist(), strict=True):
        documents = frozenset(json.loads(text)) if text is not None else frozenset()
        texts.append(_to_json(documents | listed.get(query_id, frozenset())))
    return _replace_column(queries, texts), len(listed.keys() - set(query_ids))


def remove_excluded_judgements(judgements: Judgements, exclusions: Exclusions) -> Judgements:
    """Remove the judgements of excluded documents, so that none counts as missed."""
    if not exclusions:
        return judgements
    pairs = zip(judgements.query_ids.to_pylist(), judgements.document_ids.to_pylist(), strict=True)
    is_kept = np.array(
        [document not in exclusions.get(query, ()) for query, document in pairs], dtype=bool
    )
    return judgements.filter(pa.array(is_kept))


def _parse_row(text: str, location: str) -> frozenset[str]:
    try:
        documents = json.loads(text)
    except ValueError:
        documents = [text]  # BRIGHT's "N/A" without a list
    return _check_documents(documents, location)


def _check_documents(documents: object, location: str) -> frozenset[str]:
    if isinstance(documents, list) and all(isinstance(name, str) for name in documents):
        return frozenset(documents) - {_NOTHING}
    raise DataError(f'{location}: "excluded_ids" must be a list of strings.\n{_HINT}')


def _to_json(documents: frozenset[str]) -> str | None:
    return json.dumps(sorted(documents), ensure_ascii=False) if documents else None


def _replace_column(queries: Queries, texts: list[str | None]) -> Queries:
    columns = {**vars(queries), "excluded_ids": pa.array(texts, pa.large_string())}
    return Queries(**columns)
