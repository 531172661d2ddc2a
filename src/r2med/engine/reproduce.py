"""Run a published system by its published protocol and hold it against its published figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from r2med.engine.evaluate import evaluate
from r2med.errors import R2MedError, UsageError
from r2med.measure import parse_metric
from r2med.results.reproduction import (
    Reproduced,
    Reproduction,
    check_names,
    find_published,
    held_against,
    runnable,
    takes_published,
    tie_range,
)
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Conditions
from r2med.tasks.load import load_task
from r2med.tasks.registry import resolve


def reproduce(
    system: str,
    task: str = "full",
    *,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    conditions: Conditions | None = None,
    begin: Callable[[str], None] = lambda task: None,
) -> Reproduction:
    """Ours, published, difference and verdict on each task; one that cannot run says why.

    `task` names tasks of one suite, or a folder that holds a contrast collection. `begin` hears the
    name of each task before it is run.
    """
    tasks = resolve(task)
    name = str(parse_metric(metric))
    # A folder of the user's own is held against the figures of the full suite.
    suites = {"full" if isinstance(item, Path) else item.suite for item in tasks}
    if len(suites) > 1:
        raise UsageError(
            f"--task names tasks of {' and '.join(sorted(suites))}: reproduce one suite at a time."
        )
    published = find_published(system, suites.pop())
    text = runnable(system)
    rows = []
    for item in tasks:
        place = item if isinstance(item, Path) else item.name
        begin(str(place))
        try:
            check_names(text)
            loaded = load_task(place, root=root)
            result = evaluate(text, loaded, results=results, conditions=conditions or Conditions())
            ties = tie_range(result, loaded.judgements, name)
            rows.append(held_against(result, published, name, ties=ties))
        except R2MedError as problem:
            value = published.value(str(place), name)
            fetch = f"`r2med fetch {place}`"
            with_texts = f"{fetch[:-1]} --generations`" if takes_published(text) else fetch
            missing = str(problem).replace(fetch, with_texts)
            rows.append(Reproduced(str(place), value, missing=missing))
    return Reproduction(text, published, name, tuple(rows))
