"""The evaluation of systems on one task: stored results are reused, for members of a system too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DamagedError
from r2med.measure import Metric, Run, Scores, TieOrder, measure
from r2med.measure.ceiling import ceiling
from r2med.measure.names import CUTOFFS, stored_metrics
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
from r2med.retrieve.conditions import Conditions
from r2med.systems.stages import Reranking, notices, safeguards
from r2med.systems.work import Ledger, Part, StageCost, Work
from r2med.tasks.task import Task


@dataclass(frozen=True)
class Evaluation:
    """One task and all that was evaluated on it so far, so that nothing is run twice."""

    task: Task
    store: Store
    loading: Ledger
    tell: Callable[[str], None]
    force: bool = False
    done: dict[str, Result] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def result(self, part: Part, conditions: Conditions, *, extra: Sequence[Metric] = ()) -> Result:
        """The stored result of a part, or the result of running it now."""
        self._tell_once(notices(part.stage, self.task))
        identity, ties = part.stage.identity(self.task), part.stage.ties(self.task)
        key = result_key(self.task.hash, identity, ties)
        known = self.done.get(key) or self._stored(part, key)
        if known and all(str(metric) in known.metrics for metric in extra):
            return known
        ledger = Ledger(list(self.loading.costs))
        work = Work(self.task, ledger, self._member, conditions)
        run = known.run if known else part.stage.run(work)
        record, scores = self._measured(part, run, extra, ledger)
        if known:
            record = replace(
                record,
                seconds=known.seconds,
                stages=known.record.stages,
                facts=known.record.facts,
                created=known.record.created,
            )
        self.done[key] = self.store.write(record, run, scores)
        return self.done[key]

    def _tell_once(self, messages: Sequence[str]) -> None:
        for message in messages:
            if message not in self.told:
                self.told.add(message)
                self.tell(message)

    def _member(self, part: Part, work: Work) -> Run:
        """A member's run, by its own result; what it cost belongs to the whole system."""
        before = len(self.done)
        result = self.result(part, work.conditions)
        costs = [StageCost(**cost) for cost in result.record.stages if cost["part"]]
        told = Ledger(costs, dict(result.record.facts))
        work.ledger.include(told, reused=result.reused or len(self.done) == before)
        return result.run

    def _stored(self, part: Part, key: str) -> Result | None:
        folder = self.store.place(self.task.name, self.task.suite, part.text, key)
        if self.force or not folder.exists():
            return None
        try:
            return read_result(folder)
        except DamagedError as problem:
            self.tell(f"{problem} It is run again.")
            return None

    def _measured(
        self, part: Part, run: Run, extra: Sequence[Metric], ledger: Ledger
    ) -> tuple[Record, Scores]:
        wanted = list(dict.fromkeys([*stored_metrics(), *extra]))
        ties = part.stage.ties(self.task)
        with ledger.stage("measure"):
            scores = measure(run, self.task.judgements, wanted, ties=ties)
            reranking = self._reranking(part, run, wanted, ties)
            safeguard = self._safeguard(part, run, wanted, ties)
        record = self._record(part, scores, ledger)
        return replace(record, reranking=reranking, safeguard=safeguard), scores

    def _reranking(
        self, part: Part, run: Run, wanted: Sequence[Metric], ties: TieOrder
    ) -> RerankRecord | None:
        stage = part.stage
        if not isinstance(stage, Reranking):
            return None
        best = ceiling(run, self.task.judgements, wanted, depth=stage.reranked, ties=ties)
        return RerankRecord(stage.first.text, stage.reranked, stage.tail, best.means())

    def _safeguard(
        self, part: Part, run: Run, wanted: Sequence[Metric], ties: TieOrder
    ) -> SafeguardRecord | None:
        added = safeguards(part.stage, self.task)
        if not added:
            return None
        without = measure(_without(run, added), self.task.judgements, wanted, ties=ties)
        return SafeguardRecord(len(added), without.means())

    def _record(self, part: Part, scores: Scores, ledger: Ledger) -> Record:
        task = self.task
        return Record(
            task=TaskRecord(
                name=task.name,
                suite=task.suite,
                hash=task.hash,
                documents=len(task.corpus),
                queries=len(task.queries),
                judged_queries=len(scores),
                notices=task.notices,
            ),
            system=SystemRecord(
                spec=part.text,
                identity=part.stage.identity(task),
                depth=part.stage.depth,
                ties=part.stage.ties(task),
                published_as=part.published_as,
                deviations=part.deviations,
            ),
            metrics=scores.means(),
            micro={f"recall@{cutoff}": scores.micro_recall(cutoff) for cutoff in CUTOFFS},
            seconds={stage: round(spent, 6) for stage, spent in ledger.seconds.items()},
            stages=tuple(asdict(_rounded(cost)) for cost in ledger.costs),
            facts=ledger.facts,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def _rounded(cost: StageCost) -> StageCost:
    return replace(cost, seconds=round(cost.seconds, 6))


def _without(run: Run, left_out: Mapping[str, str]) -> Run:
    """The run without one document of some queries."""
    table = run.to_table().select(["query_id", "document_id"])
    unwanted = pa.array([left_out.get(query) for query in run.query_ids.to_pylist()])
    here = unwanted.cast(pa.large_string()).take(pa.array(run.query_rows))
    same = pc.equal(table["document_id"].combine_chunks(), here).fill_null(False)
    kept = ~same.to_numpy(zero_copy_only=False)
    lengths = np.bincount(run.query_rows[kept], minlength=len(run))
    return Run(
        query_ids=run.query_ids,
        document_ids=run.document_ids,
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        documents=run.documents[kept],
        scores=run.scores[kept],
    )
