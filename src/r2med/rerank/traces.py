"""Read the traces of reranking models: the answers about every query, with their reasoning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from r2med.paths import cache_folder

_FOLDER = "rerank-traces"


@dataclass(frozen=True)
class RerankAnswer:
    """One answer of a reranking model about some documents of a query."""

    query_id: str
    sample: int
    document_ids: tuple[str, ...]
    """The documents in the order of their numbers in the prompt, from 1."""
    thought: str
    answer: str
    finish: str
    is_read: bool
    """Whether anything could be read from the answer."""


def read_rerank_answers(trace: str | None, query_id: str) -> list[RerankAnswer]:
    """Return the answers about one query, in order; empty if the trace is missing or damaged.

    `trace` comes from a stored record, which may come from someone else, so only a file directly
    inside the folder of traces is read.
    """
    parts = PurePosixPath(trace or "").parts
    if len(parts) != 2 or parts[0] != _FOLDER or parts[1] in (".", ".."):
        return []
    path = cache_folder(_FOLDER) / parts[1]
    try:
        if not path.is_file() or path.is_symlink():
            return []
        with path.open(encoding="utf-8") as file:
            return [answer for answer in _read_lines(file) if answer.query_id == query_id]
    except (OSError, ValueError):
        return []


def _read_lines(lines: Any) -> Iterator[RerankAnswer]:
    for line in lines:
        row = json.loads(line)
        try:
            yield RerankAnswer(
                query_id=str(row["query_id"]),
                sample=int(row["sample"]),
                document_ids=tuple(map(str, row["documents"])),
                thought=str(row["thought"]),
                answer=str(row["answer"]),
                finish=str(row["finish"]),
                is_read=row["read"] is not None,
            )
        except (KeyError, TypeError, AttributeError):
            raise ValueError("not a line of a trace") from None
