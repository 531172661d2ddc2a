"""Which rows of a leaderboard are shown: by kind, method, language model, first stage or name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from r2med.errors import UsageError, nearest
from r2med.results.published.printed import model_named
from r2med.results.standings import Standing
from r2med.systems.registry import KINDS, entries, registered
from r2med.systems.spec import parse, units_of


def chosen_rows(
    rows: Sequence[Standing],
    kind: str | None,
    method: str | None,
    llm: str | None,
    first_stage: str | None,
    only: Sequence[str],
) -> list[Standing]:
    """Rows that pass every filter; a value that no row has names those that some row has."""
    one_of(kind, KINDS, "--kind")
    kept = [row for row in rows if kind in (None, row.kind)]
    filters: list[tuple[str, str | None, Callable[[Standing], set[str]]]] = [
        ("--method", method, _methods),
        ("--llm", llm, _llms),
        ("--first-stage", first_stage, _first_stages),
    ]
    for option, wanted, words in filters:
        if wanted is not None:
            one_of(wanted, sorted({word for row in kept for word in words(row)}), option)
            kept = [row for row in kept if wanted in words(row)]
    if only:
        wanted_systems = {_named(text, kept) for text in only}
        kept = [row for row in kept if row.system in wanted_systems]
    return kept


def _named(text: str, rows: Sequence[Standing]) -> str:
    """The system that a label, a system's text or a work's spelling of a model names."""
    systems = {row.system: row.system for row in rows} | {row.name: row.system for row in rows}
    spellings = [text, model_named(text) or text]
    with suppress(UsageError):
        spellings.append(str(registered(parse(text))))
    for spelling in spellings:
        if spelling in systems:
            return systems[spelling]
    raise UsageError(f"--only {text}: no row of that name. {nearest(text, systems)}")


def _methods(row: Standing) -> set[str]:
    return {unit.name for unit in units_of(parse(row.system)) if _stage(unit.name) == "expander"}


def _llms(row: Standing) -> set[str]:
    return {
        unit.argument
        for unit in units_of(parse(row.system))
        if unit.argument and _stage(unit.name) in ("expander", "reranker")
    }


def _first_stages(row: Standing) -> set[str]:
    """The whole first stage, and the names of the retrievers in it."""
    if not row.first_stage:
        return set()
    units = units_of(parse(row.first_stage))
    return {row.first_stage, *(unit.name for unit in units if _stage(unit.name) != "expander")}


def _stage(name: str) -> str:
    entry = entries().get(name.lower())
    return entry.stage if entry else ""


def one_of(word: str | None, allowed: Sequence[Any], option: str) -> Any:
    """The word, if it is allowed; the error offers the nearest one that is."""
    if word is not None and word not in allowed:
        known = nearest(word, allowed) if allowed else "No row has any."
        raise UsageError(f"{option} {word!r} is not known. {known}")
    return word
