"""One task and the systems evaluated on it: each is stored already, or it is run and measured.

Members of a system are results of their own, so that whatever two systems share is run once; only
what stands behind an expander is not, since it searches with the expander's texts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from r2med.errors import DamagedError
from r2med.measure.metrics import CUTOFFS, HEADLINE, Metric, parse_metric, stored_metrics
from r2med.measure.scores import Scores, ceiling, measure
from r2med.measure.significance import compare_columns
from r2med.results.record import (
    Record,
    RerankRecord,
    Result,
    SafeguardRecord,
    SystemRecord,
    TaskRecord,
    result_key,
)
from r2med.results.store import Store, read_result
from r2med.retrieve.conditions import Conditions, Loadable, Tell, itself
from r2med.runs import Run
from r2med.runs.run import TieOrder
from r2med.systems.build import System
from r2med.systems.spec import Unit, mapped, parse
from r2med.systems.stages import (
    Expanding,
    Reranking,
    Retrieval,
    Stage,
    bind,
    leaves,
    safeguards,
    sources,
)
from r2med.systems.work import Ledger, StageCost, Work, run_member
from r2med.tasks.task import Task

if TYPE_CHECKING:
    from r2med.retrieve.workers import Workers

#: Documents of exact search that an approximate index should find.
_NEAREST = 100


@dataclass(frozen=True)
class Cell:
    """One part of a system on one task, and what decides its outcome: computed once."""

    part: Stage
    identity: Mapping[str, object]
    ties: TieOrder
    key: str

    @classmethod
    def of(cls, part: Stage, task: Task) -> Cell:
        """The cell of a part that is bound to the task."""
        identity, ties = part.identity(task), part.ties(task)
        return cls(part, identity, ties, result_key(task.hash, identity, ties))


@dataclass(frozen=True)
class Cells:
    """The results on one task, stored before or made now; nothing is run twice."""

    task: Task
    store: Store
    loading: Ledger
    tell: Tell
    """Hears what a reader of the scores should know, each message once."""
    force: bool = False
    done: dict[tuple[str, str], Result] = field(default_factory=dict)
    """By key and system text: systems of one identity can have several texts."""
    ahead: dict[str, Callable[[], list[tuple[Run, Ledger]]]] = field(default_factory=dict)
    """By key: runs that workers have begun; call one to wait for it."""

    def begin(self, part: Stage, workers: Workers) -> None:
        """Let workers run what a system needs no model for, while others go on here."""
        task = self.task
        for leaf in leaves(bind(part, task)):
            if isinstance(leaf, Retrieval) and leaf.entry.engine == "bm25":
                cell = Cell.of(leaf, task)
                if cell.key not in self.ahead and (self.force or not self._folder(cell).exists()):
                    source = Loadable(f"task {task.hash}", partial(itself, task))
                    name = f"{leaf.text} on {task.name}"
                    self.ahead[cell.key] = workers.submit(source, partial(ran, leaf.text), name)

    def cell(self, system: System) -> Cell:
        """The cell of a system; what it names must be there, a model, a server or a file."""
        return Cell.of(bind(system.stage, self.task), self.task)

    def result(self, system: System, cell: Cell, extra: Sequence[Metric]) -> Result:
        """The result of a system in its cell, with the stored metrics and some more."""
        result = self._result(cell, system.conditions, extra)
        if system.label in (None, result.record.system.label):
            return result
        return self.store.relabel(result, system.label)

    def _result(self, cell: Cell, conditions: Conditions, extra: Sequence[Metric]) -> Result:
        part, place = cell.part, (cell.key, cell.part.text)
        notices = part.bound(self.task).notices if isinstance(part, Expanding) else ()
        kept = self.done.get(place) or self._stored(cell)
        known = kept if place in self.done or not self.force else None
        for message in (*notices, *(_changed(known, sources(part)) if known else ())):
            self.tell(message)
        if known is None or not all(str(metric) in known.metrics for metric in extra):
            known = self._made(cell, kept, known, conditions, extra)
        self.done[place] = known
        return known

    def _made(
        self,
        cell: Cell,
        kept: Result | None,
        known: Result | None,
        conditions: Conditions,
        extra: Sequence[Metric],
    ) -> Result:
        """Run a system, or take the run of a known result; measure and store it.

        The label and the metrics of the one kept before stay, so that results stay comparable.
        """
        ledger = Ledger(list(self.loading.costs))
        if known:
            run = known.run
        elif begun := self.ahead.pop(cell.key, None):
            [(run, spent)] = begun()
            ledger.include(spent, reused=False)
        else:
            run = cell.part.run(Work(self.task, ledger, self._member, conditions))
        metrics = [*stored_metrics(), *extra, *map(parse_metric, kept.metrics if kept else ())]
        label = kept.record.system.label if kept else None
        record, scores = self._measured(cell, run, list(dict.fromkeys(metrics)), ledger, label)
        if known:
            same = ("seconds", "stages", "facts", "created", "sources")
            record = replace(record, **{name: getattr(known.record, name) for name in same})
        elif name := _approximate(cell.part):
            loss = self._index_loss(cell.part, run, scores, conditions)
            facts = {**record.facts, name: {**record.facts[name], "loss": loss}}
            record = replace(record, facts=facts)
        return self.store.write(record, run, scores)

    def _member(self, part: Stage, work: Work) -> Run:
        """A member's run, by the result of that member; its costs belong to the whole system."""
        before = len(self.done)
        result = self._result(Cell.of(part, self.task), work.conditions, ())
        costs = [StageCost(**cost) for cost in result.record.stages if cost["part"]]
        reused = result.reused or len(self.done) == before
        work.ledger.include(Ledger(costs, dict(result.record.facts)), reused=reused)
        return result.run

    def _folder(self, cell: Cell) -> Path:
        return self.store.place(self.task.name, self.task.suite, cell.part.text, cell.key)

    def _stored(self, cell: Cell) -> Result | None:
        folder = self._folder(cell)
        try:
            return read_result(folder) if folder.exists() else None
        except DamagedError as problem:
            self.tell(f"{problem} It is run again.")
            return None

    def _measured(
        self, cell: Cell, run: Run, metrics: Sequence[Metric], ledger: Ledger, label: str | None
    ) -> tuple[Record, Scores]:
        task, stage = self.task, cell.part
        reranking, safeguard = None, None
        with ledger.stage("measure"):
            scores = measure(run, task.judgements, metrics, ties=cell.ties)
            if isinstance(stage, Reranking):
                depth = stage.reranked
                best = ceiling(run, task.judgements, metrics, depth=depth, ties=cell.ties)
                reranking = RerankRecord(stage.first.text, depth, stage.tail, best.means())
            if added := safeguards(stage, task):
                kept = [added.get(query) != document for query, document in _pairs(run)]
                rest = run.take(np.flatnonzero(kept))
                without = measure(rest, task.judgements, metrics, ties=cell.ties)
                safeguard = SafeguardRecord(len(added), without.means())
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
                identity=cell.identity,
                depth=stage.depth,
                ties=cell.ties,
                published_as=stage.published_as,
                deviations=stage.deviations,
                label=label,
            ),
            metrics=scores.means(),
            micro={f"recall@{cutoff}": scores.micro_recall(cutoff) for cutoff in CUTOFFS},
            seconds={stage: round(spent, 6) for stage, spent in ledger.seconds.items()},
            stages=tuple(
                asdict(replace(cost, seconds=round(cost.seconds, 6))) for cost in ledger.costs
            ),
            facts=ledger.facts,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            reranking=reranking,
            safeguard=safeguard,
            sources=sources(stage),
        )
        return record, scores

    def _index_loss(
        self, part: Stage, run: Run, scores: Scores, conditions: Conditions
    ) -> dict[str, object]:
        """What an approximate index cost, against the result of the same system without it."""
        from r2med.retrieve.dense.milvus import SETTINGS

        def without(unit: Unit) -> Unit:
            kept = tuple(option for option in unit.options if option[0] not in SETTINGS)
            return replace(unit, options=kept)

        exact_spec = mapped(parse(part.text), without)
        exact = self.cell(System.from_spec(exact_spec, conditions))
        result = self._result(exact, conditions, ())
        metric = HEADLINE[0]
        found = compare_columns(scores[metric], result.scores.at(scores.query_ids)[metric])
        nearest, listed = (set(_pairs(each.truncated(_NEAREST))) for each in (result.run, run))
        return {
            "exact": exact.part.text,
            f"recall_of_exact_{_NEAREST}": len(nearest & listed) / max(1, len(nearest)),
            "metric": metric,
            "difference": found.difference,
            "low": found.interval.low,
            "high": found.interval.high,
        }


def ran(text: str, task: Task, name: str) -> Iterator[tuple[Run, Ledger]]:
    """The run of a retriever, and what it cost; `name` is what messages call it."""
    ledger = Ledger()
    yield System.from_spec(text).stage.run(Work(task, ledger, run_member)), ledger


def _changed(stored: Result, sources: Mapping[str, str]) -> list[str]:
    """A note for each class of the user's own that is not what it was when a result was stored."""
    before = stored.record.sources
    return [
        f"{name}: its source has changed since results were stored, but its `identity` is the "
        "same, so what is stored is shown. If the change matters, give it another `identity`; "
        "if not, --force stores the results anew and ends this note."
        for name, source in sources.items()
        if before.get(name, source) != source
    ]


def _data_folder(task: Task, root: Path) -> str | None:
    """Where the data lies, seen from the results folder, so that both may move together."""
    if not task.source.is_dir():
        return None
    split = f"#{task.split}" if task.split and task.name.endswith(f"#{task.split}") else ""
    return os.path.relpath(task.source.resolve(), root.resolve()) + split


def _approximate(stage: Stage) -> str | None:
    """The name of the retriever of a stage whose index may miss what exact search finds."""
    match stage:
        case Retrieval(name=name, retriever=retriever):
            return name if getattr(retriever, "approximate", False) else None
        case Expanding(first=first):
            return _approximate(first)
    return None


def _pairs(run: Run) -> list[tuple[str, str]]:
    """The query and the document of every entry."""
    table = run.to_table()
    return list(zip(table["query_id"].to_pylist(), table["document_id"].to_pylist(), strict=True))
