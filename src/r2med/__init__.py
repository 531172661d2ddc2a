"""Does a retrieval system understand medicine, or does it only match words?

r2med runs retrieval systems on R2MED and NanoR2MED, measures them, and says what a score means.
It is a research instrument, never a clinical decision system.

    import r2med
    task = r2med.load_task("demo/medqa-diag")
    result = r2med.evaluate("bm25", task)
    result.metrics["ndcg@10"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.engine.evaluate import evaluate
    from r2med.errors import R2MedError
    from r2med.measure import Scores, measure
    from r2med.results.record import Result
    from r2med.results.store import Store
    from r2med.retrieve.conditions import Conditions
    from r2med.runs import Run
    from r2med.systems.build import System
    from r2med.tasks.load import load_task
    from r2med.tasks.task import Corpus, Judgements, Queries, Task

#: Public names and where they live; imported on first use, so that `import r2med` stays light.
_HOMES = {
    "Conditions": "r2med.retrieve.conditions",
    "Corpus": "r2med.tasks.task",
    "Judgements": "r2med.tasks.task",
    "Queries": "r2med.tasks.task",
    "R2MedError": "r2med.errors",
    "Result": "r2med.results.record",
    "Run": "r2med.runs",
    "Scores": "r2med.measure",
    "Store": "r2med.results.store",
    "System": "r2med.systems.build",
    "Task": "r2med.tasks.task",
    "evaluate": "r2med.engine.evaluate",
    "load_task": "r2med.tasks.load",
    "measure": "r2med.measure",
}

__all__ = [
    "Conditions",
    "Corpus",
    "Judgements",
    "Queries",
    "R2MedError",
    "Result",
    "Run",
    "Scores",
    "Store",
    "System",
    "Task",
    "evaluate",
    "load_task",
    "measure",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'r2med' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
