"""Stored results built from plain values: for each query, the rank of its one positive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from r2med.errors import UsageError
from r2med.measure import measure
from r2med.results.record import Record, Result, SystemRecord, TaskRecord
from r2med.results.stage_record import StageRecord, StageType
from r2med.results.store import Store
from r2med.runs import Run
from r2med.systems.output import StageCost
from r2med.systems.registry import first_stage, kind_of, members_of, parts_of
from r2med.systems.spec import parse
from r2med.tasks.registry import find_task
from r2med.tasks.task import Judgements
from tests.building import judgements_of

DEPTH = 10


def run_of(ranks: Mapping[str, int]) -> Run:
    """Ten documents a query, the positive at the given rank; rank 0 leaves it out."""
    return Run.from_lists(
        {
            query: [
                ("positive" if place == rank else f"other{place}", float(DEPTH - place))
                for place in range(1, DEPTH + 1)
            ]
            for query, rank in ranks.items()
        }
    )


def judgements_for(ranks: Mapping[str, int]) -> Judgements:
    return judgements_of({query: {"positive": 1} for query in ranks})


def store(
    root: Path,
    system: str,
    task: str,
    ranks: Mapping[str, int],
    *,
    data: str | None = None,
    created: str = "2026-01-01T00:00:00+00:00",
    differences: tuple[str, ...] = (),
    costs: tuple[StageCost, ...] = (),
    suite: str | None = "registered",
    identity: Mapping[str, object] | None = None,
    label: str | None = None,
) -> Result:
    """Keep a result of a registered task, with that task's counts unless others are given."""
    return store_run(
        root,
        system,
        task,
        run_of(ranks),
        judgements_for(ranks),
        data=data,
        created=created,
        differences=differences,
        costs=costs,
        suite=suite,
        identity=identity,
        label=label,
    )


def store_run(
    root: Path,
    system: str,
    task: str,
    run: Run,
    judgements: Judgements,
    *,
    data: str | None = None,
    created: str = "2026-01-01T00:00:00+00:00",
    differences: tuple[str, ...] = (),
    costs: tuple[StageCost, ...] = (),
    suite: str | None = "registered",
    identity: Mapping[str, object] | None = None,
    label: str | None = None,
) -> Result:
    """Keep any run as a result."""
    entry = find_task(task) if suite else None
    counts = entry.counts if entry else {}
    scores = measure(run, judgements)
    record = Record(
        task=TaskRecord(
            name=entry.name if entry else task,
            suite=entry.suite if entry else None,
            hash=data or (entry and entry.data) or "data",
            documents=counts.get("documents", 1),
            queries=counts.get("queries", len(run)),
            judged_queries=len(scores),
            notices=(),
            differences=differences,
        ),
        system=SystemRecord(
            system,
            identity or {"name": system},
            DEPTH,
            "trec",
            None,
            (),
            stage_record(system),
            label,
        ),
        metrics=scores.means(),
        micro={f"recall@{cutoff}": scores.micro_recall(cutoff) for cutoff in (1, 10, 100)},
        seconds={"load": 5.0, "index": 1.0, "search": 0.5, "measure": 5.0},
        facts={},
        created=created,
        costs=costs,
    )
    return Store(root).write(record, run, scores)


def stage_record(spec: str) -> StageRecord:
    """The stages that a spec names, without building the system."""
    try:
        parsed = parse(spec)
    except UsageError:
        return StageRecord("retriever", spec, spec, spec, DEPTH)
    kind = kind_of(parsed)
    if kind == "base" and len(parsed.fused) == 1:
        [(unit, entry), *_] = parts_of(spec)
        name = entry.name if entry else unit.name
        backend = entry.backend if entry else None
        return StageRecord("retriever", name, str(unit), spec, DEPTH, backend)
    if kind == "base":
        inputs = tuple(stage_record(str(member)) for member in members_of(parsed))
        return StageRecord("fusion", "rrf", "rrf", spec, DEPTH, inputs=inputs)
    below = stage_record(str(first_stage(parsed, kind)))
    [(unit, entry), *_] = parts_of(
        str(parsed.stages[-1] if kind == "reranker" else parsed.fused[0])
    )
    name = entry.name if entry else unit.name
    llm = unit.argument if entry and entry.argument == "llm" else None
    stage_type: StageType = "reranker" if kind == "reranker" else "expander"
    depth = unit.depth or DEPTH
    backend = entry.backend if entry else None
    return StageRecord(stage_type, name, str(unit), spec, depth, backend, llm=llm, inputs=(below,))


def ranks(*values: int) -> dict[str, int]:
    return {f"q{place:03}": value for place, value in enumerate(values)}
