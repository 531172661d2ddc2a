"""Protocols side by side: the fields that differ, what is equal, and what nobody says."""

from __future__ import annotations

from rich.text import Text

from r2med.report.table import Cell, Column, Grid, Paper, SystemName
from r2med.results.protocols import UNKNOWN, ProtocolComparison

#: Of a protocol of which no more is known, that is what is said.
_FEW = 2
#: Values of settings that nobody made; where all agree on them, they are not listed.
_UNSET = ("none", "no", "0", "not pinned")


def draw(
    compared: ProtocolComparison, out: Paper, *, title: str = "protocols, field by field"
) -> None:
    """Print a row per field that differs, then what is equal and what is unknown."""
    out.print(title, style="bold")
    names = [Column(SystemName(name), right=False) for name in compared.names]
    rows: list[list[Cell]] = [
        [_field(field), *map(_value, values)] for field, values in compared.fields.items()
    ]
    if rows:
        out.print(Grid([Column("field", right=False), *names], rows))
    else:
        out.print("No known setting differs.")
    equal = [
        f"{_field(field)}: {value}"
        for field, value in compared.equal.items()
        if value not in _UNSET
    ]
    if equal:
        out.print(f"Equal where known. {'; '.join(equal)}.", style="dim")
    for name, fields in compared.unknown.items():
        known = [field for field in (*compared.fields, *compared.equal) if field not in fields]
        some = ", ".join(map(_field, fields))
        what = some if len(known) > _FEW else f"everything but {', '.join(map(_field, known))}"
        if fields:
            out.print(f"Unknown of {name}: {what.removesuffix(' but ')}.")
    for text in compared.unverified:
        out.print(f"Not verified of {text}.")
    for name, works in zip(compared.names, compared.beside, strict=False):
        beside = "; ".join(works) or "no printed figure: none is known to have this protocol"
        out.print(f"{name} may be set beside {beside}.", style="dim")


def _field(name: str) -> str:
    return name.replace("_", " ")


def _value(text: str) -> Cell:
    return Text(text, style="yellow") if text == UNKNOWN else SystemName(text)
