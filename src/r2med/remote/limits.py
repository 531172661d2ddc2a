"""How much a run may use and how hard it may push a server."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from r2med.errors import R2MedError, UsageError


class LimitError(R2MedError):
    """A run's own limit of tokens or money; everything that arrived is kept."""


@dataclass(frozen=True)
class Limits:
    """Limits of one open chat or encoder; None is no limit."""

    tokens: int | None = None
    """Prompt and completion tokens together."""
    money: float | None = None
    """US dollars; needs a known price."""
    concurrency: int | None = None
    """Requests under way at once; None adapts to what the server bears."""
    timeout: float = 600.0
    """Seconds for one answer."""
    attempts: int = 6
    """Times one request is tried before it counts as failed."""
    backoff: float = 0.5
    """Seconds before the first retry; doubled each time, and varied."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= least:
                raise UsageError(f"the limit of {name} is {value}, expected {least} or more.")

    @classmethod
    def from_environment(cls) -> Limits:
        """`R2MED_LLM_TOKENS`, `_MONEY`, `_CONCURRENCY`, `_TIMEOUT`, `_ATTEMPTS`, where set."""
        limits = cls()
        for name, read in _READ.items():
            variable = f"R2MED_LLM_{name.upper()}"
            text = os.environ.get(variable)
            if not text:
                continue
            try:
                limits = replace(limits, **{name: read(text)})
            except ValueError:
                raise UsageError(f"{variable}={text!r}: expected a number.") from None
        return limits


_LEAST = {"tokens": 1, "money": 0.0, "concurrency": 1, "timeout": 0.001, "attempts": 1}
_READ = {"tokens": int, "money": float, "concurrency": int, "timeout": float, "attempts": int}
