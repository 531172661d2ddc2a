"""How much a system's score depends on wording: of its instruction, and of the queries.

The same system runs under paraphrased instructions and on reworded queries. The corpus does not
change, so cached embeddings of documents are reused and only queries are encoded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from r2med.errors import UsageError
from r2med.evaluation.evaluate import evaluate
from r2med.evaluation.rewording import PARAPHRASES, Rewording
from r2med.execution.resources import Resources
from r2med.measure.intervals import TIE, Column
from r2med.measure.significance import compare_columns
from r2med.results.record import Result
from r2med.results.store import DEFAULT_FOLDER
from r2med.settings import read_packaged_toml
from r2med.systems.registry import configure, find_entry
from r2med.systems.spec import Spec, Unit, map_units, parse, units_of
from r2med.tables import Tabular, make_table
from r2med.tasks.task import Task

VariationType = Literal["original", "instruction", "wording"]
#: Below the results folder: results under other wordings, which no leaderboard shows.
VARIATIONS_FOLDER = "sensitivity"
#: The sentence of an instruction that paraphrases replace.
_SENTENCES = ("Given a {kind}, {purpose}.", "Given a {kind}, {purpose}")


@dataclass(frozen=True)
class VariationScore:
    """The score of a system under one wording."""

    type: VariationType
    name: str
    """`original`, or the paraphrased instruction, or the name of the rewording."""
    score: float
    changed_queries: int
    """Number of queries whose score differs from their score under the original wording."""
    difference: float | None = None
    """The score minus the other system's score under the same wording; None without one."""
    p: float | None = None
    """p-value of `difference`, computed for this wording alone."""


@dataclass(frozen=True, eq=False)
class Sensitivity(Tabular):
    """Scores of one system on one task under several wordings."""

    system: str
    task: str
    metric: str
    queries: int
    scores: tuple[VariationScore, ...]
    stability: float
    """Standard deviation of a query's score over all wordings, averaged over the queries."""
    unstable_queries: tuple[tuple[str, float], ...]
    """At most ten query ids with the largest standard deviations, largest first."""
    against: str | None = None
    rejected: int = 0
    """Reworded queries that were not used because their meaning changed."""

    is_drawn = True

    @property
    def original(self) -> VariationScore:
        """The score under the original wording."""
        return self.scores[0]

    def of_type(self, variation_type: VariationType) -> list[VariationScore]:
        """The scores of one type of variation."""
        return [score for score in self.scores if score.type == variation_type]

    @property
    def spread(self) -> float:
        """Largest minus smallest score over all wordings."""
        values = [score.score for score in self.scores]
        return max(values) - min(values)

    @property
    def changes_sign(self) -> bool:
        """Whether the other system is better under some wordings and worse under others."""
        differences = [s.difference for s in self.scores if s.difference is not None]
        return any(d > TIE for d in differences) and any(d < -TIE for d in differences)

    def to_arrow(self) -> pa.Table:
        """One row per wording; scores are 0 to 1."""
        columns = {
            "type": str,
            "name": str,
            "score": float,
            "changed_queries": int,
            "difference": float,
            "p": float,
        }
        return make_table(columns, [asdict(score) for score in self.scores])

    def to_json(self) -> dict[str, Any]:
        """Return all fields as JSON values; scores are 0 to 1."""
        more = {"spread": self.spread, "changes_sign": self.changes_sign}
        return {**asdict(self), **more}


def measure_sensitivity(
    system: str,
    task: Task,
    *,
    against: str | None = None,
    instructions: Sequence[str] | None = None,
    rewordings: Sequence[Rewording] = (),
    metric: str = "ndcg@10",
    results: str | Path = DEFAULT_FOLDER,
    resources: Resources | None = None,
) -> Sensitivity:
    """Run a system under other wordings of its instruction and of the queries.

    Args:
        system: A spec. Instructions are replaced in each of its encoders that has one.
        task: A loaded task.
        against: Another system, run under the same wordings, to see whether the better one changes.
        instructions: Paraphrases with `{kind}` and `{purpose}`; the eight of the package if None.
        rewordings: Other wordings of the queries.
        metric: The metric.
        results: The results folder.
        resources: The options, budget and models to use.

    Raises:
        UsageError: Neither system has an instruction and no rewordings are given.
    """
    resources = resources or Resources()
    spec = parse(system)
    rival = None if against is None else parse(against)
    paraphrases = (
        read_packaged_toml(PARAPHRASES)["instructions"]["paraphrases"]
        if instructions is None
        else instructions
    )
    specs = [s for s in (spec, rival) if s is not None]
    if not any(map(_has_instruction, specs)):
        if not rewordings:
            raise UsageError(
                f"{' and '.join(map(str, specs))}: no stage has an instruction to paraphrase. Give "
                "other wordings of the queries: --reworded FILE or --reword-with LLM."
            )
        paraphrases = ()

    def run(chosen: Spec, on: Task) -> Result:
        is_original = on is task and chosen in specs
        folder = Path(results) if is_original else Path(results) / VARIATIONS_FOLDER
        return evaluate(
            str(chosen), on, results=folder, metrics=[metric], resources=resources, progress=False
        )

    variations: list[tuple[VariationType, str, str | None, Task]] = [
        ("original", "original", None, task),
        *(("instruction", text, text, task) for text in paraphrases),
        *(("wording", reworded.name, None, reworded.apply(task)) for reworded in rewordings),
    ]
    measured: list[Column] = []
    scores: list[VariationScore] = []
    query_ids = None
    for variation_type, name, paraphrase, on in variations:
        result = run(_reword_instruction(spec, paraphrase), on)
        query_ids = result.scores.query_ids if query_ids is None else query_ids
        column = result.scores.at(query_ids)[metric]
        measured.append(column)
        score = VariationScore(
            variation_type, name, float(column.mean()), _count_changed(column, measured[0])
        )
        if rival is not None:
            rival_column = run(_reword_instruction(rival, paraphrase), on).scores.at(query_ids)[
                metric
            ]
            compared = compare_columns(column, rival_column)
            score = replace(score, difference=compared.difference, p=compared.p_randomisation)
        scores.append(score)
    deviations = np.std(np.array(measured), axis=0)
    assert query_ids is not None
    names = query_ids.to_pylist()
    order = [index for index in np.argsort(-deviations, kind="stable") if deviations[index] > TIE]
    return Sensitivity(
        system=str(spec),
        task=task.name,
        metric=metric,
        queries=len(names),
        scores=tuple(scores),
        stability=float(deviations.mean()),
        unstable_queries=tuple((names[index], float(deviations[index])) for index in order[:10]),
        against=None if rival is None else str(rival),
        rejected=sum(reworded.rejected for reworded in rewordings),
    )


def _count_changed(column: Column, original: Column) -> int:
    return int((np.abs(column - original) > TIE).sum())


def _has_instruction(spec: Spec) -> bool:
    return any(_instruction_of(unit) for unit in units_of(spec))


def _instruction_of(unit: Unit) -> str:
    """Return the query instruction of a unit; empty if it has none."""
    if find_entry(unit.name) is None:
        return ""
    return str(configure(unit).fields.get("query_instruction", ""))


def _reword_instruction(spec: Spec, paraphrase: str | None) -> Spec:
    """Return the spec with the paraphrase in every instruction; None changes nothing."""
    if paraphrase is None:
        return spec

    def change(unit: Unit) -> Unit:
        template = _instruction_of(unit)
        if not template:
            return unit
        sentence = next((text for text in _SENTENCES if text in template), None)
        if sentence is None:
            reworded = f"{paraphrase}: "
        else:
            ending = "." if sentence.endswith(".") else ""
            reworded = template.replace(sentence, f"{paraphrase}{ending}")
        options = {**dict(unit.options), "query_instruction": reworded}
        return replace(unit, options=tuple(sorted(options.items())))

    return map_units(spec, change)
