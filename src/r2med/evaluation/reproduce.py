"""Reproduce published systems by their published protocol, and compare the figures.

*equal*: our figure rounds to the published digits. *close*: within half a point of 100.
*different*: further away. Verdicts on data other than the published data are marked.
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

ReproductionVerdict = Literal["equal", "close", "different"]

#: Half a point of 100, on the scale 0 to 1.
CLOSE = 0.005
#: Tolerance for rounding errors of floating-point numbers.
_NOISE = 1e-9
#: The option that reads published generations; it does not change the published protocol.
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
    """Run a published system on each task and compare its figures with the published ones.

    Args:
        system: The spec of a published system.
        task: Tasks of one suite, or a folder with a contrast collection.
        metric: The metric to compare.
        results: The results folder.
        root: A folder with data of registered tasks in the reference layout.
        resources: Callbacks, and options for running.
        begin: Called with the name of each task before it is run.

    Returns:
        One row per task; a task that cannot run has the reason instead of a figure.

    """
    tasks = resolve(task)
    metric_name = str(parse_metric(metric))
    # The results of a local folder are compared with the figures of the full suite.
    suites = {"full" if isinstance(item, Path) else item.suite for item in tasks}
    if len(suites) > 1:
        raise UsageError(
            f"--task names tasks of {' and '.join(sorted(suites))}: reproduce one suite at a time."
        )
    published = find_published(system, suites.pop())
    spec = use_published_generations(system)
    needs_generations = any(_PUBLISHED_GENERATIONS in unit.options for unit, _ in parts_of(spec))
    rows = []
    for item in tasks:
        task_name = item if isinstance(item, Path) else item.name
        begin(str(task_name))
        try:
            loaded = load_task(task_name, root=root)
            result = evaluate(spec, loaded, results=results, resources=resources or Resources())
            ties = tie_range(result, loaded.judgements, metric_name)
            rows.append(compare_with_published(result, published, metric_name, ties=ties))
        except R2MedError as problem:
            value = published.figures.get(str(task_name), {}).get(metric_name)
            missing = str(problem)
            if needs_generations:
                fetch = f"r2med fetch {task_name}"
                missing = missing.replace(f"`{fetch}`", f"`{fetch} --generations`")
            rows.append(Reproduced(str(task_name), value, missing=missing))
    return Reproduction(spec, published, metric_name, tuple(rows))


@dataclass(frozen=True, eq=False)
class Reproduction(Tabular):
    """The figures of a published system and of our run of it, task by task."""

    system: str
    """The spec that ran."""
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
        """Return all fields as JSON values; figures are 0 to 1."""
        origins = self.published.origins
        rows = [
            {**asdict(row), "difference": row.difference, "origin": origins.get(row.task)}
            for row in self.tasks
        ]
        return {
            "system": self.system,
            "published_as": self.published.system,
            "metric": self.metric,
            "tasks": rows,
        }


@dataclass(frozen=True)
class Reproduced:
    """One task: the published figure, our figure, and why they may differ."""

    task: str
    published: float | None
    ours: float | None = None
    verdict: ReproductionVerdict | None = None
    queries: int = 0
    tie_bounds: Bounds | None = None
    """Our figure with tied documents in the worst and in the best order."""
    reasons: tuple[str, ...] = ()
    missing: str | None = None
    """Why the system could not run, with the command that helps; None if it ran."""

    @property
    def difference(self) -> float | None:
        """Our figure minus the published one; None if either is missing."""
        if self.ours is None or self.published is None:
            return None
        return self.ours - self.published


def find_published(system_spec: str, suite: str) -> Printed:
    """Return the published system with this spec; a UsageError says why there is none."""

    def remove_generations(unit: Unit) -> Unit:
        options = tuple(option for option in unit.options if option != _PUBLISHED_GENERATIONS)
        return replace(unit, options=options)

    published, spec = published_systems(suite), spell_registered(parse(system_spec))
    name = str(map_units(spec, remove_generations))
    for system in published.values():
        if name == system.system or name in system.runs_as:
            return system
    if suite == "full" and (printed := printed_beside(name)):
        figures = {task: {METRIC: value} for task, value in printed[0].values(METRIC).items()}
        origins = dict.fromkeys(figures, "; ".join(map(str, printed[0].works)))
        return replace(printed[0], system=name, figures=figures, origins=origins)
    if not published:
        raise UsageError(f"No figures are published for the {suite} suite.")
    without_options = str(map_units(spec, lambda unit: replace(unit, options=())))
    if without_options != name and without_options in published:
        raise UsageError(
            f"{spec}: options change the published protocol of {without_options}. Reproduce it "
            f"without options: r2med reproduce '{without_options}'."
        )
    similar = [system for system in published if system.count("|") == name.count("|")]
    raise UsageError(
        f"No figures of {suite} are published for {name!r}. {nearest(name, similar)}\n"
        "`r2med leaderboard` lists the published systems. `r2med leaderboard --suite nano` lists "
        "those of Nano, which --task nano reproduces."
    )


def use_published_generations(system_spec: str) -> str:
    """Return the spec with every expander set to read its published generations."""

    def add_option(unit: Unit) -> Unit:
        entry = find_entry(unit.name)
        is_expander = entry is not None and "generations" in entry.fields
        if not is_expander or any(key == "generations" for key, _ in unit.options):
            return unit
        return replace(unit, options=tuple(sorted([*unit.options, _PUBLISHED_GENERATIONS])))

    return str(map_units(parse(system_spec), add_option))


def compare_with_published(
    result: Result, published: Printed, metric: str, *, ties: Bounds | None
) -> Reproduced:
    """Compare a result with the published figure of its task."""
    task = result.task
    if not result.suite:  # the folder of a contrast collection may spell the task in another case
        names = {name.lower(): name for name in published.figures}
        task = names.get(task.lower(), task)
    published_value = published.figures.get(task, {}).get(metric)
    our_value = measured_value(result, metric)
    verdict: ReproductionVerdict | None = None
    if published_value is not None and our_value is not None:
        verdict = judge_difference(our_value, published_value, published.decimals)
    other_data = describe_other_data(result)
    reasons = [other_data] if other_data else []
    if published_value is not None and verdict in ("close", "different"):
        if ties and ties[0] - _NOISE <= published_value <= ties[1] + _NOISE:
            low, high = (f"{100 * bound:.2f}" for bound in ties)
            reasons.append(
                f"the order of equal scores alone moves {result.task} from {low} to {high}"
            )
        for _, entry in parts_of(result.system):
            if entry:
                reasons += [f"{entry.name}: {deviation}" for deviation in entry.deviations]
    return Reproduced(
        task=result.task,
        published=published_value,
        ours=our_value,
        verdict=verdict,
        queries=result.record.task.judged_queries,
        tie_bounds=ties,
        reasons=tuple(reasons),
    )


def judge_difference(our_value: float, published: float, decimals: int) -> ReproductionVerdict:
    """Return how close two figures are; `equal` if ours rounds to the published digits.

    A final 5 may round up or down.
    """
    gap = abs(our_value - published)
    if gap <= 0.5 * 10.0**-decimals + _NOISE:
        return "equal"
    return "close" if gap <= CLOSE + _NOISE else "different"
