"""Small values for tests, built from plain Python ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from r2med.tasks.task import Judgements


def texts(*values: str | None) -> pa.LargeStringArray:
    return pa.array(values, type=pa.large_string())


def judgements_of(qrels: Mapping[str, Mapping[str, int]]) -> Judgements:
    rows = [(q, d, score) for q, judged in qrels.items() for d, score in judged.items()]
    return Judgements(
        query_ids=texts(*(q for q, _, _ in rows)),
        document_ids=texts(*(d for _, d, _ in rows)),
        scores=np.array([score for _, _, score in rows], dtype=np.int32),
    )
