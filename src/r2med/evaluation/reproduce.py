"""Reproduction: a published system run by its published protocol, its figures beside the printed.

*equal*: ours rounds to the published digits. *close*: within half a point of 100. *different*:
beyond that. A verdict on other data than the published is marked as such.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from r2med.errors import R2MedError, UsageError, nearest
from r2med.evaluation.evaluate import evaluate
from r2med.execution.resources import Resources
from r2med.measure import parse_metric
from r2med.results.protocols import printed_beside
from r2med.results.published import METRIC, Printed, published_systems
from r2med.results.published_data import describe_other_data
from r2med.results.record import Result
from r2med.results.standings import Bounds, measured_value, tie_range
from r2med.results.store import DEFAULT_FOLDER
from r2med.systems.registry import find_entry, parts_of, spell_registered
from r2med.systems.spec import Unit, map_units, parse
from r2med.tables import Tabular, make_table, table_columns
from r2med.tasks.load import load_task
from r2med.tasks.registry import resolve

Verdict = Literal["equal", "close", "different"]

#: Scores are 0 to 1: half a point of the 100 in which they are published.
CLOSE = 0.005
_NOISE = 1e-9
#: The option that says where a published system's inputs come from, and changes nothing else.
_PUBLISHED_GENERATIONS = ("generations", "published")


def reproduce(
    system: str,
    task: str = "full",
    *,
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    root: str | Path | None = None,
    resources: Resources | None = None,
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
    generations = any(_PUBLISHED_GENERATIONS in unit.options for unit, _ in parts_of(text))
    rows = []
    for item in tasks:
        place = item if isinstance(item, Path) else item.name
        begin(str(place))
        try:
            loaded = load_task(place, root=root)
            result = evaluate(text, loaded, results=results, resources=resources or Resources())
            ties = tie_range(result, loaded.judgements, name)
            rows.append(held_against(result, published, name, ties=ties))
        except R2MedError as problem:
            value, fetch = published.figures.get(str(place), {}).get(name), f"r2med fetch {place}"
            wanted = f"`{fetch} --generations`" if generations else f"`{fetch}`"
            missing = str(problem).replace(f"`{fetch}`", wanted)
            rows.append(Reproduced(str(place), value, missing=missing))
    return Reproduction(text, published, name, tuple(rows))


@dataclass(frozen=True, eq=False)
class Reproduction(Tabular):
    """A published system run here, task by task."""

    system: str
    """The text that ran."""
    published: Printed
    metric: str
    tasks: tuple[Reproduced, ...]

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per task, values 0 to 1."""
        more = {"verdict": str, "difference": float, "reasons": str, "origin": str}
        rows = [{**row, "reasons": "; ".join(row["reasons"])} for row in self.to_json()["tasks"]]
        return make_table(table_columns(Reproduced) | more, rows)

    def to_json(self) -> dict[str, Any]:
        """Everything, values 0 to 1."""
        origins = self.published.origins
        rows = [
            {**asdict(row), "difference": row.difference, "origin": origins.get(row.task)}
            for row in self.tasks
        ]
        named = {"system": self.system, "published_as": self.published.system}
        return {**named, "metric": self.metric, "tasks": rows}


@dataclass(frozen=True)
class Reproduced:
    """One task: what was published, what came out here, and why they may differ."""

    task: str
    published: float | None
    ours: float | None = None
    verdict: Verdict | None = None
    queries: int = 0
    tie_bounds: Bounds | None = None
    """Ours with equal scores in the worst and in the best order."""
    reasons: tuple[str, ...] = ()
    missing: str | None = None
    """Why there is no figure of ours, and which command gets what is missing."""

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        if self.ours is None or self.published is None:
            return None
        return self.ours - self.published


def find_published(text: str, suite: str) -> Printed:
    """The published system that a text runs; the error says why there is none."""

    def as_published(unit: Unit) -> Unit:
        options = tuple(each for each in unit.options if each != _PUBLISHED_GENERATIONS)
        return replace(unit, options=options)

    known, spec = published_systems(suite), spell_registered(parse(text))
    name = str(map_units(spec, as_published))
    for system in known.values():
        if name == system.system or name in system.runs_as:
            return system
    if suite == "full" and (printed := printed_beside(name)):
        figures = {task: {METRIC: value} for task, value in printed[0].values(METRIC).items()}
        origins = dict.fromkeys(figures, "; ".join(map(str, printed[0].works)))
        return replace(printed[0], system=name, figures=figures, origins=origins)
    if not known:
        raise UsageError(
            f"Nothing is published for the {suite} suite, so there is nothing to meet."
        )
    plain = str(map_units(spec, lambda unit: replace(unit, options=())))
    if plain != name and plain in known:
        raise UsageError(
            f"{spec}: options change the published protocol of {plain}; reproduce it as it was: "
            f"r2med reproduce '{plain}'."
        )
    alike = [each for each in known if each.count("|") == name.count("|")]
    raise UsageError(
        f"No figures of {suite} are published for {name!r}. {nearest(name, alike)}\n"
        "`r2med leaderboard` lists the published systems, with --suite nano those of Nano, which "
        "--task nano reproduces."
    )


def runnable(text: str) -> str:
    """The text that runs the published protocol: expanders take their published generations."""

    def reading_published(unit: Unit) -> Unit:
        entry = find_entry(unit.name)
        takes = entry is not None and "generations" in entry.fields
        if not takes or any(key == "generations" for key, _ in unit.options):
            return unit
        return replace(unit, options=tuple(sorted([*unit.options, _PUBLISHED_GENERATIONS])))

    return str(map_units(parse(text), reading_published))


def held_against(
    result: Result, published: Printed, metric: str, *, ties: Bounds | None
) -> Reproduced:
    """Hold a result against the published figures of its task."""
    names = {task.lower(): task for task in published.figures}
    task = result.task  # a folder of the user's own may hold a contrast collection, in any case
    task = task if result.suite else names.get(task.lower(), task)
    wanted = published.figures.get(task, {}).get(metric)
    ours, data = measured_value(result, metric), describe_other_data(result)
    judged = None
    if wanted is not None and ours is not None:
        judged = verdict(ours, wanted, published.decimals)
    reasons = [data] if data else []  # equal figures need no explanation, unless by chance
    if judged in ("close", "different"):
        if ties and wanted is not None and ties[0] - _NOISE <= wanted <= ties[1] + _NOISE:
            low, high = (f"{100 * bound:.2f}" for bound in ties)
            reasons.append(
                f"the order of equal scores alone moves {result.task} from {low} to {high}"
            )
        for _, entry in parts_of(result.system):
            reasons += [f"{entry.name}: {text}" for text in entry.deviations] if entry else []
    return Reproduced(
        task=result.task,
        published=wanted,
        ours=ours,
        verdict=judged,
        queries=result.record.task.judged_queries,
        tie_bounds=ties,
        reasons=tuple(reasons),
    )


def verdict(ours: float, published: float, decimals: int) -> Verdict:
    """Equal when ours rounds to the published digits, whichever way a last 5 was rounded."""
    gap = abs(ours - published)
    if gap <= 0.5 * 10.0**-decimals + _NOISE:
        return "equal"
    return "close" if gap <= CLOSE + _NOISE else "different"
