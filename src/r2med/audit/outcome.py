"""The outcome of a leakage audit, as cards read it: one small JSON a task in the results folder.

`<results>/audit/<task>.json` holds schema, task, data (the task's hash), against (the training
data), and how many queries and positives were checked and overlap.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from r2med.atomic import atomic_file
from r2med.errors import DamagedError

SCHEMA = 1


@dataclass(frozen=True)
class Outcome:
    """How much of a task was found in some training data."""

    task: str
    data: str
    against: str
    queries_checked: int
    queries_overlapping: int
    positives_checked: int
    positives_overlapping: int

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.queries_overlapping or self.positives_overlapping)


def outcome_file(results: Path, task: str) -> Path:
    """Where the outcome of a task's audit lies."""
    return results / "audit" / f"{re.sub(r'[^A-Za-z0-9._=-]+', '-', task).strip('-.')}.json"


def write_outcome(results: Path, outcome: Outcome) -> None:
    """Keep an outcome for the cards."""
    with atomic_file(outcome_file(results, outcome.task)) as draft:
        told = {"schema": SCHEMA, **asdict(outcome)}
        draft.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def read_outcome(results: Path, task: str) -> Outcome | None:
    """The stored outcome; None where no audit has run."""
    path = outcome_file(results, task)
    if not path.is_file():
        return None
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        if told.pop("schema") != SCHEMA:
            raise ValueError("unknown schema")
        return Outcome(**told)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise DamagedError(f"{path}: not a readable audit outcome ({problem}).") from problem
