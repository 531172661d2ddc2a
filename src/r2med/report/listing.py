"""The list of stored results on a terminal."""

from __future__ import annotations

from r2med.report.table import Cell, Column, Grid, Paper, SystemName, age, file_size, points
from r2med.results.evaluation import Listing, size

_OLDER = (
    "older: stored by an older version that did not record all settings; tables and comparisons "
    "leave these out. `r2med eval` runs them again."
)


def draw(listing: Listing, out: Paper) -> None:
    """One row per result, then what sets apart those of one name."""
    rows: list[list[Cell]] = [
        [
            result.key,
            SystemName(result.task),
            SystemName(result.name),
            points(result.metrics.get("ndcg@10")),
            file_size(size(result)),
            age(result.record.created) + (" (older)" if result.record.older else ""),
        ]
        for result in listing.results
    ]
    right = ("nDCG@10", "size", "age")
    titles = ("key", "task", "system", *right)
    columns = [Column(title, right=title in right, fixed=title == "key") for title in titles]
    out.print(Grid(columns, rows))
    for note in listing.notes:
        out.print(note)
    if any(result.record.older for result in listing.results):
        out.print(_OLDER)
