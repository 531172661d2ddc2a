"""Decide which of two systems is better, and describe the decision in a sentence.

Every table, page and report uses `decide`, so a pair has the same verdict everywhere. A verdict has
two p-values: that of the pair alone, and the one corrected over a named family of tests. Only the
corrected one makes a difference significant, and only then does a system beat another one; the
sentence always shows both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from r2med.measure.intervals import TIE, Column
from r2med.measure.power import POWER, detectable_difference
from r2med.measure.significance import (
    Difference,
    Heterogeneity,
    TaskDifference,
    is_significant,
)
from r2med.number_format import (
    format_p,
    format_p_equation,
    format_percent,
    format_points,
    format_range,
    join_words,
)

#: Below this share of judged documents among the first ten, verdicts are worded with caution.
LOW_COVERAGE = 0.10

_NOT_SIGNIFICANT = "which is not significant after the correction"

Strength = Literal["corrected", "alone", "none"]
"""The significance of a difference: after the family's correction, only for the pair alone, or
none."""


@dataclass(frozen=True)
class Family:
    """The tests that one correction covers."""

    tests: int
    name: str
    """The words after "corrected over", such as `all 6 pairs compared`."""


#: One planned comparison: nothing to correct for.
SINGLE_TEST = Family(1, "this pair")


def all_pairs(systems: int) -> Family:
    """The family of all pairs of some systems."""
    tests = systems * (systems - 1) // 2
    return Family(tests, f"all {tests} pairs compared") if tests > 1 else SINGLE_TEST


@dataclass(frozen=True)
class StoredPairs:
    """The number of pairs of stored systems, and one pair's p-value corrected over all of them."""

    tests: int
    p_corrected: float


@dataclass(frozen=True)
class JudgedCoverage:
    """The share of judged documents of two systems, and their difference on condensed lists."""

    judged_a: float
    """Mean Judged@10 of A."""
    judged_b: float
    condensed: Difference | None = None
    """The difference on condensed lists (without unjudged documents); None if not measured."""

    @property
    def is_low(self) -> bool:
        """Whether the share of judged documents of one of the systems is below `LOW_COVERAGE`."""
        return min(self.judged_a, self.judged_b) < LOW_COVERAGE


@dataclass(frozen=True)
class Verdict:
    """Which of two systems is better, on which tasks, and how certain that is."""

    a: str
    b: str
    difference: Difference
    """The difference of the means over the tasks, A minus B."""
    tasks: tuple[TaskDifference, ...]
    p_corrected: float
    family: Family
    heterogeneity: Heterogeneity | None = None
    """How much the difference varies between the tasks; None for a single task."""
    coverage: JudgedCoverage | None = None
    """The share of judged documents; None if Judged@10 was not measured."""
    skipped: int = 0
    """Number of queries without judgements; they are not scored."""
    columns: tuple[Column, ...] = field(default=(), repr=False, compare=False)
    """The differences of all queries, one column per task; empty if they are not available."""

    @cached_property
    def detectable(self) -> float | None:
        """The smallest true difference that these queries detect with 80 % power."""
        return detectable_difference(self.columns) if self.columns else None

    def correct_over(self, stored: StoredPairs | None) -> Verdict:
        """Return the verdict corrected over all stored pairs; unchanged if this is the only one."""
        if stored is None or stored.tests == 1:
            return self
        return replace(
            self,
            p_corrected=max(stored.p_corrected, self.difference.p_randomisation),
            family=Family(stored.tests, f"all {stored.tests} pairs stored here"),
        )

    @property
    def strength(self) -> Strength:
        """Whether the difference is significant after correction, for the pair alone, or not."""
        if self.is_tie:
            return "none"
        if is_significant(self.p_corrected):
            return "corrected"
        return "alone" if is_significant(self.difference.p_randomisation) else "none"

    @property
    def is_significant(self) -> bool:
        """Whether the difference is significant after correction over the family."""
        return self.strength == "corrected"

    @property
    def is_tie(self) -> bool:
        """Whether both systems have the same mean."""
        return abs(self.difference.difference) <= TIE

    @property
    def better(self) -> str | None:
        """The system with the significantly higher mean; None if neither is significant."""
        return self._leader if self.is_significant else None

    @property
    def opposing_tasks(self) -> tuple[TaskDifference, ...]:
        """Tasks on which the system with the lower mean is significantly better."""
        sign = -1 if self.difference.difference > 0 else 1
        return tuple(
            task
            for task in self.tasks
            if len(self.tasks) > 1
            and sign * task.difference.difference > 0
            and is_significant(task.p_holm)
        )

    @property
    def sentence(self) -> str:
        """The verdict in one sentence, with the difference, its interval and both p-values."""
        if self.is_tie:
            return (
                f"{self.a} and {self.b} have the same mean{self._scope}, "
                f"{format_points(self.difference.mean_a, 1)}."
            )
        points = f"{format_points(abs(self.difference.difference), 1)} points"
        certainty = f"({self._range}; {self._p_values})"
        if self.strength == "none":
            return (
                f"No significant difference between {self.a} and {self.b}{self._scope}: "
                f"{self._leader} is {points} higher {certainty}{self._exceptions}."
                f"{self._detectable_sentence}"
            )
        if self.coverage and self.coverage.is_low:
            caution = f", {_NOT_SIGNIFICANT}" if self.strength == "alone" else ""
            return (
                f"{self._leader} scores higher than {self._trailer} on the judged documents by "
                f"{points}{self._scope} {certainty}{caution}{self._exceptions}."
            )
        if self.strength == "alone":
            return (
                f"{self._leader} is {points} higher than {self._trailer}{self._scope} "
                f"{certainty}, {_NOT_SIGNIFICANT}{self._exceptions}."
            )
        return (
            f"{self._leader} beats {self._trailer} by {points}{self._scope} "
            f"{certainty}{self._exceptions}."
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Sentences to show below the verdict, on tasks, judged shares and skipped queries."""
        remarks = []
        if self.heterogeneity:
            remarks.append(describe_heterogeneity(self.heterogeneity))
        if self.coverage:
            remarks.append(self._coverage_remark(self.coverage))
        if self.skipped:
            remarks.append(describe_skipped(self.skipped))
        return tuple(remarks)

    @property
    def text(self) -> str:
        """The sentence and its remarks."""
        return " ".join([self.sentence, *self.remarks])

    def to_json(self) -> dict[str, Any]:
        """The decision, both p-values and their family; scores are fractions (0 to 1)."""
        return {
            "better": self.better,
            "strength": self.strength,
            "p": self.difference.p_randomisation,
            "p_corrected": self.p_corrected,
            "family": asdict(self.family),
            "heterogeneity": asdict(self.heterogeneity) if self.heterogeneity else None,
            "coverage": asdict(self.coverage) if self.coverage else None,
            "skipped_queries": self.skipped,
            "opposing_tasks": [task.task for task in self.opposing_tasks],
            "sentence": self.sentence,
            "remarks": list(self.remarks),
        }

    @property
    def _detectable_sentence(self) -> str:
        if not self.columns:
            return ""
        if self.detectable is None:
            return f" These queries detect no difference with {format_percent(POWER)} power."
        return (
            f" With {format_percent(POWER)} power these queries detect a true difference of "
            f"{format_points(self.detectable, 1)} points."
        )

    @property
    def _leader(self) -> str:
        return self.a if self.difference.difference > 0 else self.b

    @property
    def _trailer(self) -> str:
        return self.b if self.difference.difference > 0 else self.a

    @property
    def _scope(self) -> str:
        if not self.tasks:
            return ""
        if len(self.tasks) == 1:
            return f" on {self.tasks[0].task}"
        return f" on these {len(self.tasks)} tasks"

    @property
    def _range(self) -> str:
        """The interval of the difference, as the higher mean minus the lower one."""
        interval = self.difference.interval
        if self._leader == self.a:
            return format_range(interval.low, interval.high)
        return format_range(-interval.high, -interval.low)

    @property
    def _p_values(self) -> str:
        alone = format_p_equation(self.difference.p_randomisation)
        if self.family.tests == 1:
            return alone
        corrected = format_p(self.p_corrected)
        return f"{alone} for this pair alone, {corrected} corrected over {self.family.name}"

    @property
    def _exceptions(self) -> str:
        """The end of the sentence that lists the tasks on which the lower system is better.

        Only significant differences are listed; the text is empty if there are none.
        """
        if not self.opposing_tasks:
            return ""
        exceptions = [
            f"{task.task} ({format_points(abs(task.difference.difference), 1)} points, "
            f"{format_p_equation(task.p_holm or 0.0)})"
            for task in self.opposing_tasks
        ]
        return f"; {self._trailer} is better on {join_words(exceptions)}"

    def _coverage_remark(self, coverage: JudgedCoverage) -> str:
        judged = (
            f"Judged@10: {self.a} {_format_judged(coverage.judged_a)}, "
            f"{self.b} {_format_judged(coverage.judged_b)}."
        )
        if not coverage.is_low:
            return judged
        remark = f"{judged} Below {format_percent(LOW_COVERAGE)}, unjudged documents may decide"
        if coverage.condensed is None:
            return f"{remark}."
        condensed = coverage.condensed
        higher = self.a if condensed.difference >= 0 else self.b
        return (
            f"{remark}; on judged documents only (condensed lists) {higher} is "
            f"{format_points(abs(condensed.difference), 1)} points higher "
            f"({format_p_equation(condensed.p_randomisation)})."
        )


def _format_judged(share: float) -> str:
    """Format a share as a percentage, with a decimal if rounding would hide a low share."""
    text = format_percent(share)
    is_hidden = share < LOW_COVERAGE and text == format_percent(LOW_COVERAGE)
    return f"{100 * share:.1f} %" if is_hidden else text


def decide(
    a: str,
    b: str,
    difference: Difference,
    *,
    tasks: Sequence[TaskDifference] = (),
    p_corrected: float | None = None,
    family: Family = SINGLE_TEST,
    heterogeneity: Heterogeneity | None = None,
    coverage: JudgedCoverage | None = None,
    skipped: int = 0,
    columns: Sequence[Column] = (),
) -> Verdict:
    """Decide whether system `a` or `b` is better.

    Without `p_corrected` the pair is the only test and needs no correction.
    """
    corrected = difference.p_randomisation if p_corrected is None else p_corrected
    return Verdict(
        a,
        b,
        difference,
        tuple(tasks),
        corrected,
        family,
        heterogeneity,
        coverage,
        skipped,
        tuple(columns),
    )


def decide_row(line: TaskDifference) -> Verdict:
    """Decide one row of a pair's table.

    The p-value of a task is corrected over the tasks; a mean is a single test.
    """
    return decide("A", "B", line.difference, tasks=[line], p_corrected=line.p_holm)


def describe_heterogeneity(heterogeneity: Heterogeneity) -> str:
    """A sentence that says how much the tasks disagree.

    It includes the p-value that holds if the tasks are a random sample of tasks.
    """
    spread = (
        f"Heterogeneity of the tasks: Q = {heterogeneity.q:.1f} "
        f"({format_p_equation(heterogeneity.p_q)}), I² = {format_percent(heterogeneity.i_squared)}"
    )
    if heterogeneity.p_random_tasks is None:
        return f"{spread}."
    random = format_p_equation(heterogeneity.p_random_tasks)
    return f"{spread}; {random} if the tasks are a random sample of tasks."


def describe_skipped(skipped: int) -> str:
    """A sentence that says how many queries have no judgements."""
    if skipped == 1:
        return "1 query has no judgements and is not scored."
    return f"{skipped:,} queries have no judgements and are not scored."
