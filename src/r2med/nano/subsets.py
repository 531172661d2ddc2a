"""Which candidate subsets lie beside a task's data, and which role each plays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

from r2med.retrieve.given.candidates import find_subset, split_of
from r2med.runs import Run
from r2med.tasks.location import NANO_CONFIGS, split_files
from r2med.tasks.task import Task

Role = Literal["bm25", "dense", "reranking_hybrid"]
ROLES: tuple[Role, ...] = get_args(Role)
TITLES: dict[Role, str] = {
    "bm25": "BM25",
    "dense": "Dense",
    "reranking_hybrid": "Hybrid",
}


def read_subsets(task: Task) -> Iterator[tuple[Role, str, Run]]:
    """Role, configuration and lists of every subset there; the hybrid's with its safeguards."""
    for config in subset_names(task):
        role: Role = (
            "bm25"
            if config == "bm25"
            else "reranking_hybrid"
            if config == "reranking_hybrid"
            else "dense"
        )
        yield role, config, find_subset(task, config).read(safeguard=True)


def subset_names(task: Task) -> list[str]:
    """The configurations of a folder that are candidates of this task, in published order."""
    if not (task.source / "corpus").is_dir():
        return []
    split = split_of(task)
    found = sorted(
        folder.name
        for folder in task.source.iterdir()
        if folder.is_dir() and folder.name not in NANO_CONFIGS
        if split_files(task.source, folder.name, split)
    )
    return sorted(found, key=lambda name: (name == "reranking_hybrid", name != "bm25"))
