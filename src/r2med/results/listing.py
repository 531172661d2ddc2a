"""What lies in a results folder, as a table: keys, scores, sizes, ages, and shared names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from r2med.results.lookup import shared_names
from r2med.results.record import Result
from r2med.results.reproduction import other_data
from r2med.tabular import Tabular, table_of

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = {
    "key": str,
    "system": str,
    "spec": str,
    "task": str,
    "suite": str,
    "ndcg@10": float,
    "bytes": int,
    "created": str,
    "older": bool,
    "result": str,
}


@dataclass(frozen=True, eq=False)
class Listing(Tabular):
    """Stored results, one row each."""

    results: Sequence[Result]

    drawn_by = "r2med.report.listing"

    @property
    def notes(self) -> list[str]:
        """What sets apart results of one name on the same data, and which are of other data."""
        stale = Counter(each.task for each in self.results if each.suite and other_data(each))
        other = [
            f"{task}: {count} result(s) listed ran on other data than the task has now."
            for task, count in stale.items()
        ]
        return [*shared_names(self.results), *other]

    def to_arrow(self) -> pa.Table:
        """One row per result."""
        return table_of(_COLUMNS, self.to_json())

    def to_json(self) -> list[dict[str, Any]]:
        """One record per result; scores 0 to 1."""
        return [
            {
                "key": result.key,
                "system": result.name,
                "spec": result.system,
                "task": result.task,
                "suite": result.suite,
                "ndcg@10": result.metrics.get("ndcg@10"),
                "bytes": size(result),
                "created": result.record.created,
                "older": result.record.older,
                "result": str(result.folder),
            }
            for result in self.results
        ]


def size(result: Result) -> int:
    """The bytes of a result's files."""
    return sum(file.stat().st_size for file in result.folder.iterdir())
