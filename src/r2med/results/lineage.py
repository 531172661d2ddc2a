"""What a system is built upon: its kind, and the first stage it must be held against."""

from __future__ import annotations

from typing import Literal

from r2med.systems.registry import entries
from r2med.systems.spec import Spec, Unit

Kind = Literal["base", "gar", "reranker"]
KINDS: tuple[Kind, ...] = ("base", "gar", "reranker")
KIND_TITLES: dict[Kind, str] = {
    "base": "retrieval alone",
    "gar": "expansion",
    "reranker": "reranking",
}


def kind_of(spec: Spec) -> Kind:
    """What the outermost stage is: a reranker at the end, an expander in front, or neither."""
    if spec.stages and _stage(spec.stages[-1]) == "reranker":
        return "reranker"
    if spec.stages and len(spec.fused) == 1 and _stage(spec.fused[0]) == "expander":
        return "gar"
    return "base"


def first_stage(spec: Spec, kind: Kind) -> Spec | None:
    """The system without its outermost stage; None where there is nothing below it."""
    if kind == "base" or not spec.stages:
        return None
    if kind == "reranker":
        return _flat(Spec(spec.fused, spec.stages[:-1]))
    return _flat(Spec((spec.stages[0],), spec.stages[1:]))


def _flat(spec: Spec) -> Spec:
    """Drop parentheses that say nothing, so that equal systems have equal texts."""
    alone = spec.fused[0] if len(spec.fused) == 1 else None
    return Spec(alone.fused, alone.stages + spec.stages) if isinstance(alone, Spec) else spec


def _stage(part: Unit | Spec) -> str | None:
    known = entries().get(part.name.lower()) if isinstance(part, Unit) else None
    return known.stage if known else None
