"""Options of commands that run models of the user's own, and what `--verbose` shows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from r2med.results.record import Result
    from r2med.retrieve.conditions import Conditions

Model = Annotated[
    list[str] | None,
    typer.Option("--model", help="A Python class as package.module:Class; may be repeated."),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let code that comes with a checkpoint run."),
]
Device = Annotated[
    str | None, typer.Option("--device", help="A torch device, e.g. cuda:0; the best by default.")
]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Show the first texts as the models saw them."),
]


def with_models(
    conditions: Conditions, *, trust_remote_code: bool, device: str | None
) -> Conditions:
    """The conditions under which models may run."""
    return replace(conditions, trust_remote_code=trust_remote_code, device=device)


def with_own_models(systems: Sequence[str] | None, models: Sequence[str] | None) -> list[str]:
    """All systems, those of --model among them; none at all is a UsageError."""
    named = [*(systems or ()), *(f"model:{target}" for target in models or ())]
    if not named:
        raise UsageError("no system is given. Name one, as in `r2med eval bm25`, or use --model.")
    return named


def seen_texts(result: Result) -> Iterator[str]:
    """Lines that show what each encoder of a system really saw, and how much was cut off."""
    for part, facts in result.record.facts.items():
        for side in ("documents", "queries", "generated"):
            told = facts.get(side)
            if isinstance(told, Mapping) and "first" in told:
                cut = told.get("truncated")
                share = "" if cut is None else f", {cut:.1%} truncated"
                yield f"{result.task} · {part} · first of {told['texts']:,} {side}{share}:"
                yield f"  {told['first']!r}"
