"""A regression gate: a condition such as `ndcg@10 drops by 1`, and whether two systems meet it."""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import Any

from r2med.errors import UsageError
from r2med.measure import parse_metric
from r2med.measure.significance import SIGNIFICANT, Difference
from r2med.results.compare import Comparison

_FORM = re.compile(r"(\S+) drops (?:by (\d+(?:\.\d+)?|\.\d+)(?: points?)?|(significantly))")
#: Points that are only rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Condition:
    """How far the first of two systems may fall behind the second."""

    metric: str
    points: float | None
    """The smallest drop that fails, in points (scores x 100); None is any significant drop."""

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read `METRIC drops by POINTS` or `METRIC drops significantly`."""
        words = _FORM.fullmatch(" ".join(text.split()))
        if words is None:
            raise UsageError(
                f"--fail-if {text!r}: this condition cannot be read. Expected 'METRIC drops by "
                "POINTS' or 'METRIC drops significantly', as in 'ndcg@10 drops by 1' (points are "
                "scores x 100)."
            )
        points = float(words[2]) if words[2] else None
        if points == 0 or points == math.inf:
            raise UsageError(f"--fail-if {text!r}: expected a number of points above 0.")
        return cls(str(parse_metric(words[1])), points)

    def __str__(self) -> str:
        how = "significantly" if self.points is None else f"by {self.points:g}"
        return f"{self.metric} drops {how}"

    def judge(self, comparison: Comparison) -> Verdict:
        """Whether the first system drops; on several tasks the mean of the tasks decides."""
        if len(comparison.systems) != 2:
            raise UsageError(
                f"--fail-if compares two systems, NEW and OLD; {len(comparison.systems)} are given."
            )
        tasks = comparison.tasks
        over = tasks[0] if len(tasks) == 1 else f"mean of {len(tasks)} tasks"
        return Verdict(self, comparison.systems, over, comparison.pairs[0].by_task)


@dataclass(frozen=True)
class Verdict:
    """What a condition found."""

    condition: Condition
    systems: tuple[str, ...]
    over: str
    difference: Difference

    @property
    def failed(self) -> bool:
        """Whether the first system fell as far as the condition says."""
        drop = -100 * self.difference.difference
        if self.condition.points is not None:
            return drop >= self.condition.points - _ROUNDING
        return drop > 0 and self.difference.p_randomisation < SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """The condition, its outcome and what it rests on; scores 0 to 1."""
        return {
            "condition": str(self.condition),
            "failed": self.failed,
            "new": self.systems[0],
            "old": self.systems[1],
            "over": self.over,
            **asdict(self.difference),
        }

    def __str__(self) -> str:
        """One line: the outcome, both scores, the difference and its p-value."""
        found = self.difference
        new, old = self.systems
        return (
            f"{'failed' if self.failed else 'passed'}: {self.condition}: {new} "
            f"{100 * found.mean_a:.2f}, {old} {100 * found.mean_b:.2f}, difference "
            f"{100 * found.difference:+.2f}, p = {found.p_randomisation:.3f} ({self.over})"
        )
