"""Conditions for continuous integration: `--fail-if "ndcg@10 drops by 1"`.

A condition is about the first system, NEW. It compares NEW with the second system, OLD, or with a
fixed limit of its score, its time per query or its price.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from shlex import quote
from statistics import fmean
from typing import Any, Literal

from r2med.errors import UsageError
from r2med.measure import parse_metric
from r2med.number_format import format_p_equation
from r2med.results.compare import compare_selection
from r2med.results.cost import cost_of
from r2med.results.published_data import find_other_data, mark_task
from r2med.results.record import Result
from r2med.results.select import Selection
from r2med.tasks.registry import in_suite_order

Relation = Literal["drops by", "drops significantly", "below", "above"]

_CONDITION = re.compile(
    r"(?P<quantity>\S+) (?P<relation>drops by|drops significantly|below|above)"
    r"(?: (?P<limit>\d+(?:\.\d+)?|\.\d+)(?: (?:points?|ms|USD))?)?"
    r"(?: on (?P<scope>any task|\S+))?"
)
#: Quantities of a system that are not metrics, and their units.
_COSTS = {"latency": "ms per query", "cost": "USD per 1,000 queries"}
_ANY_TASK = "any task"
#: Points that are only rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class GateOutcome:
    """The outcome of a condition: whether the check failed, and the values that decided it."""

    condition: str
    failed: bool
    scope: str
    """The task, or the name of the mean over several tasks."""
    description: str
    """The scores or costs that were compared, in words."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The compared values for `--json`: scores from 0 to 1, seconds, or US dollars."""

    def __str__(self) -> str:
        outcome = "failed" if self.failed else "passed"
        return f"{outcome}: {self.condition}: {self.description} ({self.scope})"

    def to_json(self) -> dict[str, Any]:
        """Return the outcome and the compared values as one JSON object."""
        outcome = {"condition": self.condition, "failed": self.failed, "over": self.scope}
        return outcome | dict(self.values)


@dataclass(frozen=True)
class Gate:
    """A condition under which a check fails."""

    quantity: str
    """A metric, `latency` or `cost`."""
    relation: Relation
    limit: float | None = None
    """In points (scores x 100), milliseconds per query, or US dollars per 1,000 queries."""
    scope: str | None = None
    """A task, `any task`, or None for the mean of the tasks."""

    @classmethod
    def parse(cls, text: str) -> Gate:
        """Read a condition such as `ndcg@10 below 40 on any task`.

        Raises:
            UsageError: The condition cannot be read.
        """
        words = _CONDITION.fullmatch(" ".join(text.split()))
        if words is None:
            raise UsageError(
                f"--fail-if {text!r}: this condition cannot be read. Expected 'METRIC drops by "
                "POINTS', 'METRIC drops significantly', 'METRIC below POINTS', 'latency above MS' "
                "or 'cost above USD', each optionally with 'on TASK' or 'on any task', as in "
                "'ndcg@10 drops by 1' (points are scores x 100)."
            )
        quantity, relation, scope = words["quantity"], words["relation"], words["scope"]
        limit = float(words["limit"]) if words["limit"] else None
        needs_limit = relation != "drops significantly"
        if needs_limit == (limit is None) or (relation == "drops by" and limit == 0):
            expected = "a number above 0" if needs_limit else "no number"
            raise UsageError(f"--fail-if {text!r}: expected {expected} after {relation!r}.")
        if (quantity in _COSTS) != (relation == "above"):
            raise UsageError(
                f"--fail-if {text!r}: 'above' is for latency and cost, 'below' and 'drops' are for "
                "metrics."
            )
        if quantity in _COSTS:
            return cls(quantity, "above", limit, scope)
        return cls(str(parse_metric(quantity)), relation, limit, scope)  # type: ignore[arg-type]

    def __str__(self) -> str:
        limit = "" if self.limit is None else f" {self.limit:g}"
        scope = f" on {self.scope}" if self.scope else ""
        return f"{self.quantity} {self.relation}{limit}{scope}"

    @property
    def needs_old(self) -> bool:
        """Whether the condition compares NEW with a second system."""
        return self.relation.startswith("drops")

    @property
    def metric(self) -> str:
        """The metric that results must have."""
        return "ndcg@10" if self.quantity in _COSTS else self.quantity

    def check(self, selection: Selection) -> list[GateOutcome]:
        """Check selected systems; a condition `on any task` gives one outcome per task."""
        expected = 2 if self.needs_old else 1
        if len(selection.systems) not in (expected, 2):
            raise UsageError(
                f"--fail-if compares two systems, NEW and OLD; {len(selection.systems)} are given."
            )
        if selection.left_out and self.scope is None:
            listed = "; ".join(f"{task}: {why}" for task, why in selection.left_out.items())
            raise UsageError(
                f"--fail-if needs results of both systems on the same tasks. {listed}.\n"
                "Evaluate the missing systems, or choose the tasks with --task."
            )
        _require_newest_versions(selection)
        _require_newest_data(selection)
        return [self._check(tasks, selection) for tasks in self._scopes(selection)]

    def _scopes(self, selection: Selection) -> list[tuple[str, ...]]:
        if self.scope is None:
            return [selection.tasks]
        if self.scope == _ANY_TASK:
            return [(task,) for task in selection.tasks]
        if self.scope not in selection.tasks:
            raise UsageError(
                f"--fail-if '{self}': {self.scope} is not among the compared tasks: "
                f"{', '.join(selection.tasks)}."
            )
        return [(self.scope,)]

    def _check(self, tasks: tuple[str, ...], selection: Selection) -> GateOutcome:
        outcome = self._decide(tasks, selection)
        stored = [selection.results(task)[0] for task in tasks]
        other_data = find_other_data(item for item in stored if isinstance(item, Result))
        if not other_data:
            return outcome
        scope = mark_task(outcome.scope, other_data)
        if len(tasks) > 1:
            scope = f"{scope}, not the published data of {', '.join(other_data)}"
        return replace(outcome, scope=scope, values={**outcome.values, "data_notes": other_data})

    def _decide(self, tasks: tuple[str, ...], selection: Selection) -> GateOutcome:
        scope = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        if self.needs_old:
            return self._check_drop(tasks, scope, selection)
        if self.relation == "below":
            return self._check_floor(tasks, scope, selection)
        return self._check_cost(tasks, scope, selection)

    def _check_drop(self, tasks: tuple[str, ...], scope: str, selection: Selection) -> GateOutcome:
        chosen = Selection(selection.systems, tasks, {}, selection.notices)
        comparison = compare_selection(chosen, self.metric)
        new, old = comparison.systems
        (verdict,) = comparison.verdicts
        means = verdict.difference
        if self.limit is None:
            failed = verdict.better == old
        else:
            failed = -100 * means.difference >= self.limit - _ROUNDING
        description = (
            f"{new} {100 * means.mean_a:.2f}, {old} {100 * means.mean_b:.2f}, difference "
            f"{100 * means.difference:+.2f}, {format_p_equation(means.p_randomisation)}"
        )
        values = {"new": new, "old": old, **asdict(means)}
        return GateOutcome(str(self), failed, scope, description, values)

    def _check_floor(self, tasks: tuple[str, ...], scope: str, selection: Selection) -> GateOutcome:
        assert self.limit is not None
        results = [selection.results(task)[0] for task in tasks]
        means = [fmean(result.scores.by_query(self.metric).values()) for result in results]
        mean, new = fmean(means), selection.systems[0].name
        failed = 100 * mean < self.limit - _ROUNDING
        values = {"new": new, "mean": mean}
        return GateOutcome(str(self), failed, scope, f"{new} {100 * mean:.2f}", values)

    def _check_cost(self, tasks: tuple[str, ...], scope: str, selection: Selection) -> GateOutcome:
        assert self.limit is not None
        new = selection.systems[0].name
        results = [selection.results(task)[0] for task in tasks]
        stored = [result for result in results if isinstance(result, Result)]
        if len(stored) < len(results):
            raise UsageError(
                f"--fail-if '{self}': {new} is a run file, which has no recorded cost."
            )
        cost = cost_of(stored)
        if self.quantity == "latency":
            value: float | None = 1000 * cost.seconds_per_query
        else:
            value = None if cost.money is None else 1000 * cost.money / cost.queries
        if value is None:
            raise UsageError(
                f"--fail-if '{self}': no cost of {new} is recorded. Local models have none; for a "
                "model behind a server, set its prices in the registry (docs/llms.md)."
            )
        unit = _COSTS[self.quantity]
        description = f"{new} {value:.4g} {unit}"
        values = {"new": new, self.quantity: value}
        return GateOutcome(str(self), value > self.limit, scope, description, values)


def _require_newest_versions(selection: Selection) -> None:
    """Raise UsageError if a newer version of a system has results on only some of the tasks.

    A check must not pass with the old weights because the new ones were not evaluated everywhere.
    """
    for system in selection.systems:
        newer = system.newer_version
        if newer is None:
            continue
        measured = ",".join(in_suite_order(sorted(newer.tasks)))
        lacking = ",".join(task for task in selection.tasks if task not in newer.tasks)
        command = f"Evaluate it: r2med eval {quote(newer.spec)} --task {quote(lacking)}\n"
        raise UsageError(
            f"--fail-if: a newer version of {system.name}, of {newer.created[:19]}, has results on "
            f"{measured} only.\n"
            f"{command if lacking else ''}Check it alone with --task {quote(measured)}."
        )


def _require_newest_data(selection: Selection) -> None:
    """Raise UsageError if a system has a newer result on other data than the data compared.

    A comparison uses the data that both systems have. A check must not pass because the new data
    has results of one system only.
    """
    for system in selection.systems:
        if system.version is None:
            continue
        for task in selection.tasks:
            used, newest = system.results[task], system.version.result(task)
            if newest is not None and newest.data != used.data:
                raise UsageError(
                    f"--fail-if: {system.name} has a newer result on {task}, of data "
                    f"{newest.data[:12]}, for which another system has none.\n"
                    f"Evaluate all systems on the same data: r2med eval ... --task {task}"
                )
