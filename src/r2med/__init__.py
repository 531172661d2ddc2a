"""Does a retrieval system understand medicine, or does it only match words?

r2med runs retrieval systems on R2MED and NanoR2MED, measures them, and explains the scores.
It is a research instrument, never a clinical decision system.

    import r2med
    task = r2med.load_task("demo/medqa-diag")
    result = r2med.evaluate("bm25", task)
    result.metrics["ndcg@10"]
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from r2med.offline import apply_environment

if TYPE_CHECKING:
    from r2med.errors import R2MedError
    from r2med.evaluation.evaluate import evaluate, evaluate_all
    from r2med.evaluation.reproduce import reproduce
    from r2med.execution.options import RunOptions
    from r2med.execution.resources import Resources
    from r2med.measure.scores import Scores
    from r2med.measure.scores import measure as score
    from r2med.results.compare import compare
    from r2med.results.diagnosis.diagnose import diagnose
    from r2med.results.evaluation import list_results
    from r2med.results.leaderboard import leaderboard
    from r2med.results.power import measure_power
    from r2med.results.record import Result
    from r2med.results.store import Store
    from r2med.runs import Run
    from r2med.systems.build import System
    from r2med.tasks.load import load_task
    from r2med.tasks.task import Corpus, Judgements, Queries, Task

apply_environment()

#: The one place that names the version.
__version__ = "0.1.0"

#: Public names and where they live; imported on first use, so that `import r2med` stays light.
_HOMES = {
    "Corpus": "r2med.tasks.task:Corpus",
    "Judgements": "r2med.tasks.task:Judgements",
    "Queries": "r2med.tasks.task:Queries",
    "R2MedError": "r2med.errors:R2MedError",
    "Resources": "r2med.execution.resources:Resources",
    "Result": "r2med.results.record:Result",
    "Run": "r2med.runs:Run",
    "RunOptions": "r2med.execution.options:RunOptions",
    "Scores": "r2med.measure.scores:Scores",
    "Store": "r2med.results.store:Store",
    "System": "r2med.systems.build:System",
    "Task": "r2med.tasks.task:Task",
    "compare": "r2med.results.compare:compare",
    "diagnose": "r2med.results.diagnosis.diagnose:diagnose",
    "evaluate": "r2med.evaluation.evaluate:evaluate",
    "evaluate_all": "r2med.evaluation.evaluate:evaluate_all",
    "measure_power": "r2med.results.power:measure_power",
    "leaderboard": "r2med.results.leaderboard:leaderboard",
    "list_results": "r2med.results.evaluation:list_results",
    "load_task": "r2med.tasks.load:load_task",
    "reproduce": "r2med.evaluation.reproduce:reproduce",
    "score": "r2med.measure.scores:measure",
}

__all__ = [
    "Corpus", "Judgements", "Queries", "R2MedError", "Resources", "Result", "Run", "RunOptions",
    "Scores", "Store", "System", "Task", "compare", "diagnose", "evaluate", "evaluate_all",
    "leaderboard", "list_results", "load_task", "measure_power", "reproduce", "score",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'r2med' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted(__all__)
