"""Describe the stages of a system as the fields that a record stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from r2med.paths import home_folder
from r2med.results.stage_record import AnswerCounts, GenerationsRecord, StageRecord, TextLimits
from r2med.settings import settings_identity
from r2med.systems.stages import (
    CandidateStage,
    Expanding,
    Fused,
    Reranking,
    Retrieval,
    RunFileStage,
    Stage,
)
from r2med.tasks.task import Task

Facts = Mapping[str, Mapping[str, Any]]


def describe_stage(stage: Stage, task: Task, facts: Facts) -> StageRecord:
    """Return the record of a stage and its inputs; `facts` are the reports of stages, by unit."""
    match stage:
        case Retrieval():
            record = StageRecord(
                type="retriever",
                name=stage.entry.name,
                unit=stage.name,
                system=stage.text,
                depth=stage.depth,
                backend=stage.entry.backend,
                settings=dict(stage.settings),
                limits=TextLimits(
                    query=_token_limit(stage.search_identity(task), "query"),
                    document=_token_limit(stage.search_identity(task), "document"),
                ),
            )
        case RunFileStage():
            record = StageRecord("run", "run", stage.name, stage.text, stage.depth)
        case CandidateStage():
            settings = settings_identity(stage.settings)
            record = StageRecord(
                "candidates", "candidates", stage.name, stage.text, stage.depth, settings=settings
            )
        case Fused():
            fusion = stage.fusion.on(task.suite)
            record = StageRecord(
                type="fusion",
                name=fusion.method,
                unit=stage.name,
                system=stage.text,
                depth=stage.depth,
                settings=settings_identity(fusion),
                inputs=tuple(describe_stage(member, task, facts) for member in stage.members),
            )
        case Expanding():
            record = StageRecord(
                type="expander",
                name=stage.entry.name,
                unit=stage.name,
                system=stage.text,
                depth=stage.depth,
                backend=stage.entry.backend,
                settings=settings_identity(stage.expander.method),
                llm=stage.expander.method.llm,
                generations=_describe_generations(facts.get(stage.name, {})),
                answers=_describe_answers(facts.get(stage.name, {})),
                inputs=(describe_stage(stage.first, task, facts),),
            )
        case Reranking():
            identity = {"settings": dict(stage.settings), **stage.reranker.identity}
            record = StageRecord(
                type="reranker",
                name=stage.entry.name,
                unit=stage.name,
                system=stage.text,
                depth=stage.reranked,
                backend=stage.entry.backend,
                settings={**stage.settings, "tail": stage.tail},
                llm=stage.llm,
                limits=TextLimits(pair=_token_limit(identity, "pair")),
                answers=_describe_answers(facts.get(stage.name, {})),
                trace=facts.get(stage.name, {}).get("trace"),
                inputs=(describe_stage(stage.first, task, facts),),
            )
    return replace(record, published_as=stage.published_as, deviations=stage.deviations)


def _describe_generations(facts: Mapping[str, Any]) -> GenerationsRecord:
    source = facts.get("generations_from")
    stored = facts.get("generations_kept") if source == "live" else source
    return GenerationsRecord(
        source="model" if source == "live" else "file",
        path=_path_in_home(Path(str(stored))) if stored else None,
    )


def _describe_answers(facts: Mapping[str, Any]) -> AnswerCounts | None:
    counts = facts.get("answer_counts")
    return AnswerCounts(**counts) if counts else None


def _path_in_home(path: Path) -> str | None:
    try:
        return path.resolve().relative_to(home_folder().resolve()).as_posix()
    except ValueError:
        return None


def _token_limit(identity: Mapping[str, Any], side: str) -> int | None:
    """Number of tokens that a model reads of the query or document (`side`).

    None if no limit is set here; the model may have one.
    """
    settings = {**identity.get("settings", {}), **identity}
    encoder = settings.get(f"{side}_encoder") or settings.get(side)
    if not isinstance(encoder, Mapping):
        encoder = {}
    limits = [
        settings.get(f"{side}_max_length"),
        settings.get("max_length"),
        encoder.get("max_length"),
        encoder.get("limit"),
    ]
    return next((limit for limit in limits if isinstance(limit, int) and limit > 0), None)
