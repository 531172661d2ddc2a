"""Options of an evaluation, as plain values that can be sent to a worker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from r2med.remote.budget import Limits


@dataclass(frozen=True)
class RunOptions:
    """How systems run: device, batch size, limits of language models, prompts.

    Only `prompts` and `llm_url` can change a ranking; they are part of the identity of the stages
    that use them.

    Examples:
        >>> RunOptions(device="cpu", batch_tokens=2048).device
        'cpu'

    """

    trust_remote_code: bool = False
    """Whether code that comes with a checkpoint may run."""
    strict: bool = False
    """Whether a run file that names unknown queries or documents is an error."""
    device: str | None = None
    """A torch device such as `cuda:0`; None selects the best one available."""
    batch_tokens: int = 4096
    """Padded tokens per batch; halved automatically when memory runs out."""
    memory: int = 512 * 1024**2
    """Bytes that a search may use for scores and vectors at a time."""
    llm_url: str | None = None
    """An OpenAI-compatible server for language models; None uses the registry's address."""
    limits: Limits | None = None
    """Limits on the total use of models behind HTTP; None reads the environment."""
    fresh: bool = False
    """Whether cached answers of language models are ignored."""
    prompts: Path | None = None
    """A folder of prompts to use instead of the package's."""
