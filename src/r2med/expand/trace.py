"""What an agent did, step by step: its words, its searches, and what it was given to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from r2med.errors import DataError

StepKind = Literal["thought", "search", "passages", "reminder", "answer"]
Stop = Literal["answer", "turns", "tokens", "silence"]

_KINDS = ("thought", "search", "passages", "reminder", "answer")


@dataclass(frozen=True)
class Step:
    """One step; `documents` are the ids of the passages that were read."""

    kind: StepKind
    text: str
    documents: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """An agent's steps in order, why it stopped, and how often its tags could not be read."""

    steps: tuple[Step, ...]
    stop: Stop
    malformed: int = 0
    tokens: int = 0

    @property
    def searches(self) -> tuple[str, ...]:
        """What it searched for."""
        return tuple(step.text for step in self.steps if step.kind == "search")

    def to_json(self) -> dict[str, object]:
        """Plain values, as stored."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: object, where: str) -> Trace:
        """Read what `to_json` gave; anything else is a DataError that says where."""
        try:
            assert isinstance(value, Mapping)
            steps = tuple(
                Step(row["kind"], str(row["text"]), tuple(map(str, row["documents"])))
                for row in value["steps"]
            )
            assert all(step.kind in _KINDS for step in steps)
            return cls(steps, value["stop"], int(value["malformed"]), int(value["tokens"]))
        except (AssertionError, KeyError, TypeError, ValueError) as problem:
            raise DataError(
                f"{where}: this is no trace of an agent ({problem!r}).\n"
                "Each holds steps, stop, malformed and tokens; see docs/generation.md."
            ) from None
