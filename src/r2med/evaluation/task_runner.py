"""Run systems on one task: take each result from the store, or run and measure the system.

The stages that a system builds on have separate results, so a stage that two systems share runs
once. The exception is a stage behind an expander, because it searches with the expander's texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from r2med.errors import DamagedError
from r2med.execution.resources import Resources, Warn
from r2med.measure.metrics import CUTOFFS, HEADLINE, Metric, parse_metric, stored_metrics
from r2med.measure.scores import Scores, ceiling, measure
from r2med.results.describe import describe_stage
from r2med.results.record import (
    Record,
    RerankRecord,
    Result,
    SafeguardRecord,
    SamplesRecord,
    SystemRecord,
    TaskRecord,
    result_key,
)
from r2med.results.store import Store, read_result
from r2med.runs import Run
from r2med.runs.run import TieOrder
from r2med.systems.build import System
from r2med.systems.output import (
    StageContext,
    StageCost,
    StageOutput,
    mark_reused,
    measure_step,
    run_member,
    seconds_by_step,
)
from r2med.systems.spec import Unit, map_units, parse
from r2med.systems.stages import (
    Expanding,
    Reranking,
    Retrieval,
    Stage,
    bind,
    check_strict,
    independent_stages,
    safeguards,
)
from r2med.tasks.task import Task

#: Documents of exact search that are compared with those of an approximate index.
_NEAREST = 100


@dataclass(frozen=True)
class PlannedResult:
    """A stage that is bound to a task, with the identity and key that its result will have."""

    stage: Stage
    identity: Mapping[str, object]
    ties: TieOrder
    key: str

    @classmethod
    def of(cls, stage: Stage, task: Task) -> PlannedResult:
        """Plan the result of a stage that is bound to the task."""
        identity, ties = stage.identity(task), stage.ties(task)
        return cls(stage, identity, ties, result_key(task.hash, identity, ties))


@dataclass(frozen=True)
class TaskRunner:
    """Returns results on one task, stored or newly run; the same stage is never run twice."""

    task: Task
    store: Store
    loading: StageCost
    warn: Warn
    """Callback for user-facing warnings, each of which is reported once."""
    force: bool = False
    strict: bool = False
    finished: dict[tuple[str, str], Result] = field(default_factory=dict)
    """Results by key and spec, because systems with one identity can have several specs."""
    runs: dict[str, Run] = field(default_factory=dict)
    """Runs that this object has made, by key, so that they need not be read back."""
    started: dict[str, Callable[[], list[StageOutput]]] = field(default_factory=dict)
    """Stages that workers already run, by key; calling the value waits for the output."""

    def start_on_workers(self, system: System) -> None:
        """Start the BM25 stages of a system on workers, unless they have a stored result."""
        task, workers = self.task, system.resources.workers
        if workers is None:
            return
        from r2med.execution.workers import SharedInput, StageSpec

        for leaf in independent_stages(bind(system.stage, task)):
            if not isinstance(leaf, Retrieval) or leaf.entry.backend != "bm25":
                continue
            planned = PlannedResult.of(leaf, task)
            stored = not self.force and self._folder(planned).exists()
            if planned.key not in self.started and not stored:
                self._discard_index(leaf)
                stage = StageSpec(leaf.text, system.resources.options, build_stage)
                shared_task = SharedInput(task.hash, task, f"{leaf.text} on {task.name}")
                self.started[planned.key] = workers.submit(stage, run_stage, shared_task)

    def plan(self, system: System) -> PlannedResult:
        """Plan the result of a system; raise if its model, server or file is missing."""
        return PlannedResult.of(bind(system.stage, self.task), self.task)

    def result(
        self, system: System, planned: PlannedResult, extra_metrics: Sequence[Metric]
    ) -> Result:
        """Return the result of a system, running the system if no result is stored.

        `extra_metrics` are measured besides the usual ones.
        """
        result = self._result(planned, system.resources, extra_metrics)
        stored, spec = result.record.system, planned.stage.text
        if system.label in (None, stored.label) and spec in (stored.spec, *stored.other_specs):
            return result
        return self.store.update_names(result, label=system.label, spec=spec)

    def _result(
        self, planned: PlannedResult, resources: Resources, extra_metrics: Sequence[Metric]
    ) -> Result:
        stage, address = planned.stage, (planned.key, planned.stage.text)
        if isinstance(stage, Expanding):
            for notice in stage.generations(self.task).notices:
                self.warn(notice)
        stored = self.finished.get(address) or self._read_stored(planned)
        run_again = self.force or resources.options.fresh
        reusable = stored if address in self.finished or not run_again else None
        if reusable is not None and (self.strict or resources.options.strict):
            check_strict(stage, self.task)
        if reusable is None:
            result = self._run(planned, stored, resources, extra_metrics)
        elif all(str(metric) in reusable.metrics for metric in extra_metrics):
            result = reusable
        else:
            result = self._add_metrics(planned, reusable, extra_metrics)
        self.finished[address] = result
        return result

    def _run(
        self,
        planned: PlannedResult,
        stored: Result | None,
        resources: Resources,
        extra_metrics: Sequence[Metric],
    ) -> Result:
        """Run a stage, measure the run and store the result.

        If there is a stored result, the new one keeps its label and metrics.
        """
        if wait_for_output := self.started.pop(planned.key, None):
            [output] = wait_for_output()
        else:
            self._discard_index(planned.stage)
            with resources.ignore_caches() if self.force else nullcontext():
                output = planned.stage.run(self._context(resources))
        self.runs[planned.key] = output.run
        with self.store.lock_folder(self._folder(planned)):
            stored = self._read_stored(planned) or stored  # another process may have added metrics
            record, scores = self._measure(planned, output, stored, extra_metrics)
            if name := _approximate_retriever(planned.stage):
                loss = self._index_loss(planned.stage, output.run, scores, resources)
                facts = {**record.facts, name: {**record.facts[name], "loss": loss}}
                record = replace(record, facts=facts)
            return self.store.write(record, output.run, scores, key=planned.key)

    def _add_metrics(
        self, planned: PlannedResult, stored: Result, extra_metrics: Sequence[Metric]
    ) -> Result:
        """Measure the run of a stored result by more metrics, and store the result again."""
        with self.store.lock_folder(self._folder(planned)):
            stored = self._read_stored(planned) or stored  # another process may have added metrics
            output = StageOutput(stored.run, stored.record.facts, stored.record.costs)
            record, scores = self._measure(planned, output, stored, extra_metrics)
            unchanged = ("seconds", "costs", "facts", "created", "samples")
            record = replace(record, **{name: getattr(stored.record, name) for name in unchanged})
            return self.store.write(record, stored.run, scores, key=planned.key)

    def _discard_index(self, stage: Stage) -> None:
        """Delete the index that BM25 has cached, if everything is to be computed again."""
        if self.force and isinstance(stage, Retrieval):
            discard_index = getattr(stage.retriever, "discard_index", None)
            if discard_index is not None:
                discard_index(self.task)

    def _context(self, resources: Resources) -> StageContext:
        strict = self.strict or resources.options.strict
        run = partial(self._run_member, resources)
        return StageContext(self.task, run, warn=self.warn, strict=strict)

    def _run_member(self, resources: Resources, stage: Stage, context: StageContext) -> StageOutput:
        """Return the output of a stage that another stage uses; it has a separate result."""
        planned = PlannedResult.of(stage, self.task)
        was_finished = (planned.key, stage.text) in self.finished
        result = self._result(planned, resources, ())
        costs = tuple(cost for cost in result.record.costs if cost.part)
        if was_finished or result.reused:
            costs = mark_reused(costs)
        run = self.runs.get(planned.key)
        if run is None:
            run = result.run
        return StageOutput(run, result.record.facts, costs)

    def _folder(self, planned: PlannedResult) -> Path:
        spec = planned.stage.text
        return self.store.folder(self.task.name, self.task.suite, spec, planned.key)

    def _read_stored(self, planned: PlannedResult) -> Result | None:
        folder = self._folder(planned)
        try:
            return read_result(folder) if folder.exists() else None
        except DamagedError as problem:
            self.warn(f"{problem} The system is run again.")
            return None

    def _measure(
        self,
        planned: PlannedResult,
        output: StageOutput,
        stored: Result | None,
        extra_metrics: Sequence[Metric],
    ) -> tuple[Record, Scores]:
        """Measure a run; return its record and scores.

        If there is a stored result, the new record keeps its names and metrics.
        """
        task, stage, run = self.task, planned.stage, output.run
        metrics = _metrics_of(stored, extra_metrics)
        reranking, safeguard = None, None
        with measure_step("measure") as measuring:
            scores = measure(run, task.judgements, metrics, ties=planned.ties)
            if isinstance(stage, Reranking):
                depth = stage.reranked
                best = ceiling(run, task.judgements, metrics, depth=depth, ties=planned.ties)
                reranking = RerankRecord(stage.first.text, depth, stage.tail, best.means())
            samples = [
                measure(sample_run, task.judgements, metrics, ties=planned.ties).means()
                for sample_run in output.sample_runs
            ]
            if added := safeguards(stage, task):
                is_retrieved = [added.get(query) != document for query, document in _pairs(run)]
                retrieved = run.take(np.flatnonzero(is_retrieved))
                without = measure(retrieved, task.judgements, metrics, ties=planned.ties)
                safeguard = SafeguardRecord(len(added), without.means())
        costs = (self.loading, *output.costs, measuring.cost())
        record = Record(
            task=TaskRecord(
                name=task.name,
                suite=task.suite,
                hash=task.hash,
                documents=len(task.corpus),
                queries=len(task.queries),
                judged_queries=len(scores),
                notices=task.notices,
                differences=task.differences,
                folder=_data_folder(task, self.store.root) if task.suite is None else None,
            ),
            system=SystemRecord(
                spec=stage.text,
                identity=planned.identity,
                depth=stage.depth,
                ties=planned.ties,
                published_as=stage.published_as,
                deviations=stage.deviations,
                stage=describe_stage(stage, task, output.facts),
            ),
            metrics=scores.means(),
            micro={f"recall@{cutoff}": scores.micro_recall(cutoff) for cutoff in CUTOFFS},
            seconds={step: round(spent, 6) for step, spent in seconds_by_step(costs).items()},
            costs=tuple(replace(cost, seconds=round(cost.seconds, 6)) for cost in costs),
            facts=output.facts,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            reranking=reranking,
            safeguard=safeguard,
            samples=SamplesRecord.of(samples),
        )
        if stored:
            names = stored.record.system
            system = replace(
                record.system, spec=names.spec, label=names.label, other_specs=names.other_specs
            )
            record = replace(record, system=system)
        return record, scores

    def _index_loss(
        self, stage: Stage, run: Run, scores: Scores, resources: Resources
    ) -> dict[str, object]:
        """Return how much an approximate index loses against exact search by the same system."""
        from r2med.measure.significance import compare_columns
        from r2med.retrieve.dense.milvus import SETTINGS

        def remove_index(unit: Unit) -> Unit:
            options = tuple(option for option in unit.options if option[0] not in SETTINGS)
            return replace(unit, options=options)

        exact_spec = map_units(parse(stage.text), remove_index)
        exact = self.plan(System.from_spec(exact_spec, resources))
        result = self._result(exact, resources, ())
        metric = HEADLINE[0]
        comparison = compare_columns(scores[metric], result.scores.at(scores.query_ids)[metric])
        exact_pairs = set(_pairs(result.run.truncate(_NEAREST)))
        index_pairs = set(_pairs(run.truncate(_NEAREST)))
        recall = len(exact_pairs & index_pairs) / max(1, len(exact_pairs))
        return {
            "exact": exact.stage.text,
            f"recall_of_exact_{_NEAREST}": recall,
            "metric": metric,
            "difference": comparison.difference,
            "low": comparison.interval.low,
            "high": comparison.interval.high,
        }


def build_stage(spec: str, resources: Resources) -> Stage:
    """Build the stage of a spec in a worker."""
    return System.from_spec(spec, resources).stage


def run_stage(stage: Stage, task: Task) -> Iterator[StageOutput]:
    """Run a retriever in a worker."""
    yield stage.run(StageContext(task, run_member))


def _metrics_of(stored: Result | None, extra_metrics: Sequence[Metric]) -> list[Metric]:
    """Return the metrics that every result has, the extra ones, and those of a stored result."""
    earlier = [parse_metric(name) for name in stored.metrics] if stored else []
    return list(dict.fromkeys([*stored_metrics(), *extra_metrics, *earlier]))


def _data_folder(task: Task, root: Path) -> str | None:
    """Return the data folder, relative to the results folder, so that both can be moved."""
    if not task.source.is_dir():
        return None
    split = f"#{task.split}" if task.split and task.name.endswith(f"#{task.split}") else ""
    return os.path.relpath(task.source.resolve(), root.resolve()) + split


def _approximate_retriever(stage: Stage) -> str | None:
    """Return the name of a stage's retriever if its index is approximate, otherwise None."""
    match stage:
        case Retrieval(name=name, retriever=retriever):
            return name if getattr(retriever, "approximate", False) else None
        case Expanding(first=first):
            return _approximate_retriever(first)
    return None


def _pairs(run: Run) -> list[tuple[str, str]]:
    """Return the query id and document id of every entry of a run."""
    table = run.to_table()
    return list(zip(table["query_id"].to_pylist(), table["document_id"].to_pylist(), strict=True))
