"""In which order unjudged documents fill a pool: as published, by chance, or hardest first.

The published order is the head of the corpus file. Where a file lists its sources one after the
other, its head holds little that resembles the queries, and the task becomes easier than its
source; the two other orders are there to see by how much.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from r2med.errors import UsageError
from r2med.nano.recipe import Recipe
from r2med.runs import Run
from r2med.tasks.task import Task


def fill_order(
    task: Task, recipe: Recipe, *, judged: int, avoid: set[int], hard: Run | None
) -> Iterator[int]:
    """Documents, by their place among the corpus's distinct ids, in the recipe's order."""
    if recipe.fill == "random":
        order = _by_chance(task, recipe.seed)
    elif recipe.fill == "hard":
        if hard is None:
            raise UsageError("--fill hard needs a ranking of the source task to draw from.")
        order = _hardest_first(task, hard)
    else:
        order = _head(task, max(3 * recipe.documents, recipe.documents + judged))
    return (document for document in order if document not in avoid)


def _head(task: Task, rows: int) -> Iterator[int]:
    """The corpus in source order, no further than the published number of rows."""
    yield from task.corpus.codes[:rows].tolist()


def _by_chance(task: Task, seed: int) -> Iterator[int]:
    """By a hash of seed and id: a smaller pool is a part of a larger one, in any corpus order."""
    keys = [
        hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=16).digest()
        for name in task.corpus.document_ids.to_pylist()
    ]
    yield from sorted(range(len(keys)), key=keys.__getitem__)


def _hardest_first(task: Task, hard: Run) -> Iterator[int]:
    """Rank by rank over the queries in file order; what no list holds follows in source order."""
    known = {name: place for place, name in enumerate(task.corpus.document_ids.to_pylist())}
    names = [known.get(name, -1) for name in hard.document_ids.to_pylist()]
    for entry in np.lexsort((hard.query_rows, hard.ranks)).tolist():
        yield names[int(hard.documents[entry])]
    yield from task.corpus.codes.tolist()
