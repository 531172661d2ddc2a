"""The parts of a diagnosis (all tasks, a task, a query, a positive), and slices of the queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.measure.aspects import AspectScores
from r2med.measure.intervals import Interval, mean_interval
from r2med.results.diagnosis.causes import CAUSES, PositiveFinding
from r2med.results.published_data import mark_task
from r2med.tables import Tabular, make_table, table_columns

Label = Literal["positive", "not relevant", "unjudged"]


def label_of(grade: int | None) -> Label:
    """Return the label of a grade; None means not judged."""
    if grade is None:
        return "unjudged"
    return "positive" if grade > 0 else "not relevant"


@dataclass(frozen=True)
class RankedFinding:
    """One document of the top 10."""

    rank: int
    document_id: str
    label: Label
    coverage: float
    shared: tuple[str, ...]
    """Query words that the document has, the rarest first."""
    answers: tuple[str, ...]
    """Answers of the other queries for which the document is a positive."""


@dataclass(frozen=True)
class QueryFinding:
    """The finding on one query: its score, its positives, and its top 10."""

    query_id: str
    text: str
    score: float
    words: int
    answer: str | None
    body_system: str | None
    overlap: float
    """The highest coverage of the query by one of its positives."""
    positives: tuple[PositiveFinding, ...]
    top: tuple[RankedFinding, ...]

    @property
    def missed(self) -> tuple[PositiveFinding, ...]:
        """Positives that are not in the top 10, in the order of their ranks."""
        return tuple(positive for positive in self.positives if positive.cause is not None)

    @property
    def outcome(self) -> str:
        """Which of the positives are in the top 10: all, some or none found."""
        if not self.missed:
            return "all found"
        return "none found" if len(self.missed) == len(self.positives) else "some found"

    @property
    def cause(self) -> str | None:
        """The most frequent cause among the missed positives; the earlier in `CAUSES` on a tie."""
        counts = Counter(positive.cause for positive in self.missed)
        order = list(CAUSES)
        return min(counts, key=lambda name: (-counts[name], order.index(str(name))), default=None)

    @property
    def holes(self) -> int:
        """Number of unjudged documents in the top 10."""
        return sum(document.label == "unjudged" for document in self.top)

    def to_json(self) -> dict[str, Any]:
        """All fields, with the outcome, the main cause and the number of holes."""
        derived = {"outcome": self.outcome, "cause": self.cause, "holes": self.holes}
        return {**asdict(self), **derived}


@dataclass(frozen=True)
class TaskDiagnosis:
    """The diagnosis of one system on one task; `open` lists what cannot be detected, and why."""

    system: str
    task: str
    suite: str | None
    family: str | None
    data: str
    metric: str
    depth: int
    """Length of the longest list of the run."""
    queries: tuple[QueryFinding, ...]
    open: tuple[str, ...]
    aspects: AspectScores | None = None
    """Scores over aspects, if the judgements name them."""
    data_note: str = ""
    """How the data differs from the published data of the task; empty if it does not."""

    @property
    def task_title(self) -> str:
        """The name of the task, marked if its data is not the published one."""
        return mark_task(self.task, [self.task] if self.data_note else [])

    @property
    def causes(self) -> dict[str, int]:
        """Number of missed positives by cause, in the order of `CAUSES`, without zeros."""
        counts = Counter(positive.cause for query in self.queries for positive in query.missed)
        return {name: counts[name] for name in CAUSES if counts[name]}

    @property
    def positives(self) -> int:
        """Number of positives, over all queries."""
        return sum(len(query.positives) for query in self.queries)

    @property
    def out_of_reach(self) -> int:
        """Number of positives missing from the lists, so that no reranker could help."""
        return sum(positive.rank is None for query in self.queries for positive in query.positives)

    @property
    def holes(self) -> int:
        """Number of unjudged documents in the top 10 of all queries."""
        return sum(query.holes for query in self.queries)

    @property
    def looked_at(self) -> int:
        """Number of documents in the top 10 of all queries."""
        return sum(len(query.top) for query in self.queries)

    def to_json(self) -> dict[str, Any]:
        """All fields of the task and its queries."""
        facts = ["task", "suite", "family", "data", "data_note", "metric", "depth", "positives"]
        facts += ["out_of_reach", "holes", "looked_at"]
        return {
            **{name: getattr(self, name) for name in facts},
            "missed": self.causes,
            "open": list(self.open),
            "aspects": self.aspects.to_json() if self.aspects else None,
            "queries": [query.to_json() for query in self.queries],
        }


@dataclass(frozen=True, eq=False)
class Diagnosis(Tabular):
    """One system on one or more tasks."""

    system: str
    tasks: tuple[TaskDiagnosis, ...]

    is_drawn = True

    @property
    def causes(self) -> dict[str, int]:
        """Number of missed positives by cause over all tasks, in the order of `CAUSES`."""
        counts = sum((Counter(task.causes) for task in self.tasks), Counter[str]())
        return {name: counts[name] for name in CAUSES if counts[name]}

    @property
    def slices(self) -> list[Slice]:
        """Scores of groups of queries, such as those of similar length.

        A slicing is left out unless it has several groups, one of them of several queries.
        """
        tasks = [task for task in self.tasks for _ in task.queries]
        queries = [query for task in self.tasks for query in task.queries]
        counts = [len(query.positives) for query in queries]
        numbers = ["1" if n == 1 else "2 to 3" if n <= 3 else "4 or more" for n in counts]
        shares = [100 * query.overlap for query in queries]
        slicings: dict[str, Iterable[tuple[int, str]]] = {
            "query length": _thirds([query.words for query in queries], "{:.0f}", "words"),
            "positives": [(0, number) for number in numbers],
            "lexical overlap": _thirds(shares, "{:.0f} %", "of its terms"),
            "body system": [(0, query.body_system or "not known") for query in queries],
            "family": [(0, task.family or "not known") for task in tasks],
            "task": [(0, task.task) for task in tasks],
        }
        slices = []
        for by, names in slicings.items():
            groups: dict[tuple[int, str], list[QueryFinding]] = {}
            for name, query in zip(names, queries, strict=True):
                groups.setdefault(name, []).append(query)
            if len(groups) == 1 or max(map(len, groups.values())) == 1:
                continue
            for (_, value), members in sorted(groups.items()):
                scores = np.array([query.score for query in members])
                interval = mean_interval(scores) if len(members) >= _FEW else None
                hit = sum(query.outcome != "none found" for query in members) / len(members)
                slices.append(Slice(by, value, len(members), float(scores.mean()), interval, hit))
        return slices

    def to_arrow(self) -> pa.Table:
        """One row per positive; the columns of its query are repeated."""
        columns: dict[str, type] = {"system": str, "task": str, "family": str, "holes": int}
        columns |= {"outcome": str, "query_cause": str, self.tasks[0].metric: float}
        columns |= {**table_columns(QueryFinding), **table_columns(PositiveFinding)}
        rows = []
        for task in self.tasks:
            for query in task.queries:
                shared_columns = {
                    **vars(task),
                    **vars(query),
                    task.metric: query.score,
                    "holes": query.holes,
                }
                shared_columns |= {"outcome": query.outcome, "query_cause": query.cause}
                rows += [{**shared_columns, **vars(positive)} for positive in query.positives]
        return make_table(columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Everything: causes with their meanings, tasks, queries, positives and slices."""
        return {
            "system": self.system,
            "causes": {cause.name: cause.meaning for cause in CAUSES.values()},
            "tasks": [task.to_json() for task in self.tasks],
            "slices": [asdict(slice_) for slice_ in self.slices],
        }


#: Too few queries for an interval that means anything.
_FEW = 5


@dataclass(frozen=True)
class Slice:
    """A group of the queries, with their mean score."""

    by: str
    value: str
    queries: int
    score: float
    interval: Interval | None
    """The interval of the score; None for fewer than five queries."""
    hit: float


def _thirds(numbers: Sequence[float], written: str, unit: str) -> list[tuple[int, str]]:
    """Return the third that each number falls into, and the range of that third in words."""
    values = np.array(numbers, dtype=np.float64)
    thirds = np.searchsorted(np.quantile(values, [1 / 3, 2 / 3]), values).tolist()
    names = {}
    for third in set(thirds):
        members = [
            number
            for number, other_third in zip(numbers, thirds, strict=True)
            if other_third == third
        ]
        span = " to ".join(
            dict.fromkeys(written.format(end) for end in (min(members), max(members)))
        )
        names[third] = f"{span} {unit.removesuffix('s') if span == '1' else unit}"
    return [(third, names[third]) for third in thirds]
