"""A diagnosis as data: JSON for programs, and a table with one row per positive for Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from r2med.results.diagnosis.causes import CAUSES
from r2med.results.diagnosis.findings import Diagnosis, PositiveFinding, QueryFinding
from r2med.results.diagnosis.slices import slices

#: Columns that may hold nothing but missing values, from which no type could be read.
_TYPES = {
    "rank": pa.int32(),
    "limit": pa.int32(),
    "first_stage_rank": pa.int32(),
    "cause": pa.string(),
    "witness": pa.string(),
    "answer": pa.string(),
    "body_system": pa.string(),
    "family": pa.string(),
    "query_cause": pa.string(),
}


def to_json(diagnoses: Sequence[Diagnosis], query: str | None = None) -> dict[str, Any]:
    """Everything that was found; `query` keeps one query only."""
    return {
        "system": diagnoses[0].system,
        "causes": {cause.name: cause.meaning for cause in CAUSES.values()},
        "tasks": [_task(each, query) for each in diagnoses],
        "slices": [asdict(each) for each in slices(diagnoses)] if query is None else [],
    }


def to_arrow(diagnoses: Sequence[Diagnosis]) -> pa.Table:
    """One row per positive; the columns of its query are repeated."""
    rows = [
        _row(each, query, positive)
        for each in diagnoses
        for query in each.queries
        for positive in query.positives
    ]
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return pa.table({name: pa.array(column, _TYPES.get(name)) for name, column in columns.items()})


def _task(diagnosis: Diagnosis, query: str | None) -> dict[str, Any]:
    return {
        "task": diagnosis.task,
        "suite": diagnosis.suite,
        "family": diagnosis.family,
        "data": diagnosis.data,
        "metric": diagnosis.metric,
        "depth": diagnosis.depth,
        "positives": diagnosis.positives,
        "missed": diagnosis.causes,
        "out_of_reach": diagnosis.out_of_reach,
        "holes": diagnosis.holes,
        "looked_at": diagnosis.looked_at,
        "open": list(diagnosis.open),
        "queries": [_query(each) for each in diagnosis.queries if query in (None, each.query_id)],
    }


def _query(query: QueryFinding) -> dict[str, Any]:
    told = asdict(query)
    return {**told, "outcome": query.outcome, "cause": query.cause, "holes": query.holes}


def _row(diagnosis: Diagnosis, query: QueryFinding, positive: PositiveFinding) -> dict[str, Any]:
    return {
        "system": diagnosis.system,
        "task": diagnosis.task,
        "family": diagnosis.family,
        "query_id": query.query_id,
        diagnosis.metric: query.score,
        "outcome": query.outcome,
        "query_cause": query.cause,
        "query_words": query.words,
        "query_terms": query.terms,
        "overlap": query.overlap,
        "holes": query.holes,
        "answer": query.answer,
        "body_system": query.body_system,
        **asdict(positive),
    }
