"""Where a system is weak: its score by length, positives, overlap, body system, family and task."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from r2med.measure.intervals import Interval, mean_interval
from r2med.results.diagnosis.findings import Diagnosis, QueryFinding

_Member = tuple[Diagnosis, QueryFinding]
#: Too few queries for an interval that means anything.
_FEW = 5


@dataclass(frozen=True)
class Slice:
    """Some of the queries and how they fare."""

    by: str
    value: str
    queries: int
    score: float
    interval: Interval | None
    """None below five queries."""
    hit: float


def slices(diagnoses: Sequence[Diagnosis]) -> list[Slice]:
    """All slices of one system's diagnoses; a slicing that says nothing is left out."""
    members = [(each, query) for each in diagnoses for query in each.queries]
    found = [
        *_thirds("query length", members, lambda m: m[1].words, lambda n: f"{n:.0f}", "words"),
        *_grouped("positives", members, lambda m: _count(len(m[1].positives))),
        *_thirds(
            "lexical overlap",
            members,
            lambda m: m[1].overlap,
            lambda n: f"{100 * n:.0f} %",
            "of its terms",
        ),
        *_grouped("body system", members, lambda m: m[1].body_system or "not known"),
        *_grouped("family", members, lambda m: m[0].family or "not known"),
    ]
    if len(diagnoses) > 1:
        found += _grouped("task", members, lambda m: m[0].task)
    sizes: dict[str, list[int]] = {}
    for each in found:
        sizes.setdefault(each.by, []).append(each.queries)
    return [each for each in found if each.by == "family" or _telling(sizes[each.by])]


def _telling(sizes: Sequence[int]) -> bool:
    """Whether a slicing has several groups and at least one with more than a single query."""
    return len(sizes) > 1 and max(sizes) > 1


def _count(positives: int) -> str:
    return "1" if positives == 1 else "2 to 3" if positives <= 3 else "4 or more"


def _grouped(by: str, members: Sequence[_Member], value: Callable[[_Member], str]) -> list[Slice]:
    groups: dict[str, list[QueryFinding]] = {}
    for member in members:
        groups.setdefault(value(member), []).append(member[1])
    return [_slice(by, name, queries) for name, queries in sorted(groups.items())]


def _thirds(
    by: str,
    members: Sequence[_Member],
    value: Callable[[_Member], float],
    written: Callable[[float], str],
    unit: str,
) -> Iterator[Slice]:
    """Three groups of about equal size, named by the values at their ends."""
    values = np.array([value(member) for member in members], dtype=np.float64)
    low, high = np.quantile(values, [1 / 3, 2 / 3])
    for chosen in (values <= low, (values > low) & (values <= high), values > high):
        if chosen.any():
            least, most = written(values[chosen].min()), written(values[chosen].max())
            span = least if least == most else f"{least} to {most}"
            queries = [members[place][1] for place in np.flatnonzero(chosen).tolist()]
            yield _slice(by, f"{span} {unit}", queries)


def _slice(by: str, value: str, queries: Sequence[QueryFinding]) -> Slice:
    scores = np.array([query.score for query in queries])
    return Slice(
        by=by,
        value=value,
        queries=len(queries),
        score=float(scores.mean()),
        interval=mean_interval(scores) if len(queries) >= _FEW else None,
        hit=sum(query.hit for query in queries) / len(queries),
    )
