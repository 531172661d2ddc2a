"""Options of every command that may ask a language model, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.retrieve.conditions import Conditions

_PANEL = "Language models"

LlmUrl = Annotated[
    str | None,
    typer.Option(help="An OpenAI-compatible server to ask.", rich_help_panel=_PANEL),
]
Prompts = Annotated[
    Path | None,
    typer.Option(help="Folder of prompts of your own.", rich_help_panel=_PANEL),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Ask again for what was answered before.", rich_help_panel=_PANEL),
]
MaxTokens = Annotated[
    int | None,
    typer.Option(help="Stop before more tokens are used in all.", rich_help_panel=_PANEL),
]
MaxCost = Annotated[
    float | None,
    typer.Option(help="Stop before more US dollars are spent.", rich_help_panel=_PANEL),
]
Concurrency = Annotated[
    int | None,
    typer.Option(help="Requests at once; adapts itself by default.", rich_help_panel=_PANEL),
]


def with_llm(
    conditions: Conditions,
    *,
    llm_url: str | None = None,
    prompts: Path | None = None,
    fresh: bool = False,
    max_tokens: int | None = None,
    max_cost: float | None = None,
    concurrency: int | None = None,
) -> Conditions:
    """The conditions with these options, and with what the environment says of limits."""
    from dataclasses import replace

    from r2med.errors import MissingError
    from r2med.remote.limits import Limits

    if prompts is not None and not prompts.is_dir():
        raise MissingError(f"--prompts {prompts}: there is no such folder.")
    given = {"tokens": max_tokens, "money": max_cost, "concurrency": concurrency}
    told = {name: value for name, value in given.items() if value is not None}
    limits = replace(Limits.from_environment(), **told)  # type: ignore[arg-type]
    return replace(conditions, llm_url=llm_url, prompts=prompts, fresh=fresh, limits=limits)
