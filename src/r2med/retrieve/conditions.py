"""Run-time settings that never affect rankings, so they are no part of a system."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.remote.budget import Limits
    from r2med.remote.chat import Remote

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Progress:
    """How far a long piece of work has come."""

    what: str
    done: int
    total: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Texts per second so far; 0 before any time has passed."""
        return self.done / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the pace so far; None before there is a pace."""
        return (self.total - self.done) / self.per_second if self.per_second else None


def log(message: str) -> None:
    """Tell Python's log, which shows warnings on standard error unless a program says otherwise."""
    logging.getLogger("r2med").warning(message)


def _unseen(_: Progress) -> None:
    return None


@dataclass(frozen=True)
class Conditions:
    """What a caller allows and wants to hear; every engine is built with them."""

    trust_remote_code: bool = False
    """Whether code that comes with a checkpoint may run."""
    strict: bool = False
    """Whether a given run that names unknown queries or documents fails, instead of losing them."""
    device: str | None = None
    """A torch device such as `cuda:0`; None takes the best one there is."""
    batch_tokens: int = 4096
    """Padded tokens per batch; halved by itself when memory runs out."""
    memory: int = 512 * 1024**2
    """Bytes that a search may use for scores and vectors at a time."""
    llm_url: str | None = None
    """An OpenAI-compatible server to ask for language models; None asks where the registry says."""
    limits: Limits | None = None
    """What models behind HTTP may use in all; None is as the environment says."""
    fresh: bool = False
    """Whether language models are asked again for what they answered before."""
    prompts: Path | None = None
    """A folder of prompts to take instead of the package's; their content enters identities."""
    tell: Tell = field(default=log)
    """Hears what a reader of the scores should know."""
    progress: Callable[[Progress], None] = field(default=_unseen)
    """Hears how far encoding has come."""
    shared: dict[object, Remote] = field(default_factory=dict, repr=False, compare=False)
    """What copies of these conditions have in common; see `remote`."""

    @property
    def remote(self) -> Remote:
        """The models behind HTTP: copies with the same limits share one budget and its chats."""
        key = (self.limits, self.llm_url, self.fresh)
        if key not in self.shared:
            from r2med.remote.chat import Remote

            made = Remote(self.limits, url=self.llm_url, fresh=self.fresh, tell=self.tell)
            self.shared.setdefault(key, made)
        return self.shared[key]

    def close(self) -> None:
        """End connections and local servers; they are opened again when they are needed."""
        for remote in self.shared.values():
            remote.close()
