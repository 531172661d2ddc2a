"""Run-time settings of every stage: devices, workers, limits, caches, whom to tell.

They are no part of a system. Two can change a ranking, the prompts and the address of a language
model, and enter the identity of the stage that uses them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from r2med.remote.budget import Limits
    from r2med.remote.chat import Remote
    from r2med.retrieve.workers import Workers

Tell = Callable[[str], None]
#: Hears how far a long piece of work has come: what it is, done, total and the seconds so far.
Progress = Callable[[str, int, int, float], None]


def log(message: str) -> None:
    """Tell Python's log, which shows warnings on standard error unless a program says otherwise."""
    logging.getLogger("r2med").warning(message)


def unseen(what: str, done: int, total: int, seconds: float) -> None:
    """Show no progress."""


def itself(loaded: Any, tell: Tell) -> Any:
    """The opener of what works as it was loaded."""
    return loaded


@dataclass(frozen=True)
class Loadable:
    """What work needs in memory, such as a model; sent to a worker and loaded there once."""

    key: str
    """Two of one key load the same."""
    load: Callable[[Tell], Any]
    part: str = ""
    """Which part of it works: the two sides of an encoder share what is loaded."""
    opener: Callable[[Any, Tell], Any] = itself
    """From what was loaded to the part that works; sent with every piece."""
    identity: Mapping[str, object] | None = None
    """Of the part; it must be the same on every machine."""


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
    progress: Progress = field(default=unseen)
    """Hears how far encoding has come."""
    workers: Workers | None = None
    """Where models run; None is this process."""
    loadable: Loadable | None = None
    """How a worker builds the stage that has these conditions; None where it cannot."""
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

    def building(self, module: str, settings: object, name: str | None = None) -> Conditions:
        """These conditions for one stage, which workers can then build for themselves."""
        bare = Conditions(
            trust_remote_code=self.trust_remote_code,
            device=self.device,
            batch_tokens=self.batch_tokens,
            memory=self.memory,
        )
        recipe = (module, settings, name, bare)
        return replace(self, loadable=Loadable(repr(recipe), partial(_build, *recipe)))

    def close(self) -> None:
        """End connections and local servers; they are opened again when they are needed."""
        for remote in self.shared.values():
            remote.close()


def _build(
    module: str, settings: object, name: str | None, conditions: Conditions, tell: Tell
) -> Any:
    """The retriever, or the reranker of this name, that a module makes of settings."""
    named = () if name is None else (name,)
    return import_module(module).build(*named, settings, replace(conditions, tell=tell))
