"""Run a published system by its published protocol and hold it against its published figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from r2med.engine.evaluate import evaluate
from r2med.errors import R2MedError, UsageError
from r2med.measure import parse_metric
from r2med.results.reproduction import (
    PUBLISHED_GENERATIONS,
    Reproduced,
    Reproduction,
    find_published,
    held_against,
    runnable,
    tie_range,
)
from r2med.results.store import DEFAULT_FOLDER
from r2med.retrieve.conditions import Conditions
from r2med.systems.registry import parts_of
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
    parts = parts_of(text)
    unknown = dict.fromkeys(unit.name for unit, entry in parts if entry is None)
    generations = any(PUBLISHED_GENERATIONS in unit.options for unit, _ in parts)
    rows = []
    for item in tasks:
        place = item if isinstance(item, Path) else item.name
        begin(str(place))
        try:
            if unknown:
                raise UsageError(
                    f"{', '.join(unknown)}: not registered in this version, so it cannot be run. "
                    "`r2med info systems` lists names."
                )
            loaded = load_task(place, root=root)
            result = evaluate(text, loaded, results=results, conditions=conditions or Conditions())
            ties = tie_range(result, loaded.judgements, name)
            rows.append(held_against(result, published, name, ties=ties))
        except R2MedError as problem:
            value, fetch = published.figures.get(str(place), {}).get(name), f"r2med fetch {place}"
            wanted = f"`{fetch} --generations`" if generations else f"`{fetch}`"
            missing = str(problem).replace(f"`{fetch}`", wanted)
            rows.append(Reproduced(str(place), value, missing=missing))
    return Reproduction(text, published, name, tuple(rows))
