"""Compare protocols field by field, of systems and of printed figures.

A protocol is the settings of a registry entry. A work's protocol is known where the entry has it as
a preset; otherwise only the work's general statements are, and the rest stays unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa

from r2med.errors import UsageError
from r2med.results.published import METRIC, Printed, printed_figures
from r2med.systems.build import read_settings
from r2med.systems.registry import Entry, configure, find_entry, parts_of, spell_registered
from r2med.systems.spec import Unit, parse, units_of
from r2med.tables import Tabular, make_table

_LENGTHS = ("query_max_length", "document_max_length")
_NOT_PINNED = "not pinned"
UNKNOWN = "unknown"
#: Of a setting that a system cannot have.
ABSENT = "does not apply"


@dataclass(frozen=True)
class ProtocolComparison(Tabular):
    """Two or more protocols side by side."""

    names: tuple[str, ...]
    fields: Mapping[str, tuple[str, ...]]
    """Fields in which the protocols differ, with the value of each protocol. A value is `unknown`,
    or `does not apply` if the system cannot have the field."""
    equal: Mapping[str, str]
    """Fields whose known values are all the same, with that value."""
    unknown: Mapping[str, tuple[str, ...]]
    """Fields whose value is unknown, by protocol; fields that none of the protocols has are left
    out."""
    beside: tuple[tuple[str, ...], ...] = ()
    """For each system, the works whose printed figures it is comparable with."""
    unverified: tuple[str, ...] = ()
    """Settings of registered models that could not be verified, each after the model's name."""

    is_drawn = True

    def to_arrow(self) -> pa.Table:
        """One row per field that differs, one column per protocol."""
        columns = dict.fromkeys(("field", *self.names), str)
        rows = [
            {"field": field, **dict(zip(self.names, values, strict=True))}
            for field, values in self.fields.items()
        ]
        return make_table(columns, rows)

    def to_json(self) -> dict[str, Any]:
        """Everything."""
        return asdict(self)


def compare_protocols(*systems: str) -> ProtocolComparison:
    """Compare the settings of systems stage by stage, as `r2med compare --protocols` shows."""
    if len(systems) < 2:
        raise UsageError("--protocols compares two systems or more: e5 'e5[protocol=mteb]'.")
    texts = [str(spell_registered(parse(text))) for text in systems]
    specs = [parse(text) for text in texts]
    numbered = any(len(units_of(spec)) > 1 for spec in specs)
    protocols: list[dict[str, str]] = []
    for spec in specs:
        protocols.append({})
        for position, unit in enumerate(units_of(spec), start=1):
            entry, prefix = configure(unit), f"{position}. " if numbered else ""
            settings = ({"name": entry.name} if numbered else {}) | _in_words(_settings(entry))
            settings |= {"depth": str(unit.depth)} if unit.depth is not None else {}
            protocols[-1] |= {prefix + field: value for field, value in settings.items()}
    beside = tuple(works_beside(text) for text in texts)
    compared = _compare(texts, protocols, absent=ABSENT)
    return replace(compared, beside=beside, unverified=_list_unverified(*texts))


def compare_figures(system: str) -> ProtocolComparison:
    """Compare the protocols of a system's printed figures, and find fields that are unknown."""
    names, protocols = [], []
    for figure in printed_figures("full", METRIC).get(system, ()):
        entry, system_entry = _entry_of_figure(figure), find_entry(system)
        work_settings = {
            name: value for work in figure.works for name, value in work.protocol.items()
        }
        fields = _in_words(_settings(entry) if entry else work_settings)
        if system_entry is not None and system_entry.fields.get("checkpoint"):
            fields["checkpoint"] = str(system_entry.fields["checkpoint"])
        if figure.revision or fields.get("revision") == _NOT_PINNED:
            fields["revision"] = figure.revision or UNKNOWN
        name = "; ".join(work.name for work in figure.works)
        names.append(f"{name}: {figure.variant}" if figure.variant else name)
        protocols.append(fields)
    return replace(_compare(names, protocols), unverified=_list_unverified(system))


def printed_beside(system: str) -> tuple[Printed, ...]:
    """Return the printed figures whose protocol is known and equals that of a system."""
    spec, figures = parse(system), printed_figures("full", METRIC)
    unit = spec.fused[0]
    if spec.stages or len(spec.fused) > 1 or not isinstance(unit, Unit):
        of_pipeline = figures.get(system.replace("[generations=published]", ""), ())
        return tuple(figure for figure in of_pipeline if figure.works[0].id == "r2med")
    entry = find_entry(unit.name)
    if entry is None or unit.argument is not None or unit.depth is not None:
        return ()
    settings = _settings(configure(unit))
    return tuple(
        figure
        for figure in figures.get(entry.name, ())
        if (figure_entry := _entry_of_figure(figure)) is not None
        # A revision names files only.
        and {**_settings(figure_entry), "revision": ""} == {**settings, "revision": ""}
    )


def works_beside(system: str) -> tuple[str, ...]:
    """Return the works with a printed figure whose protocol equals that of a system."""
    return tuple(str(work) for figure in printed_beside(system) for work in figure.works)


def _list_unverified(*systems: str) -> tuple[str, ...]:
    models = [entry for system in systems for _, entry in parts_of(system) if entry]
    notes = [f"{model.name}: {model.unverified}" for model in models if model.unverified]
    return tuple(dict.fromkeys(notes))


def _compare(
    names: Sequence[str], protocols: Sequence[Mapping[str, str]], *, absent: str = UNKNOWN
) -> ProtocolComparison:
    fields = dict.fromkeys(field for protocol in protocols for field in protocol)
    values = {
        field: tuple(protocol.get(field, absent) for protocol in protocols) for field in fields
    }
    known_values = {field: set(row) - {UNKNOWN} for field, row in values.items()}
    return ProtocolComparison(
        names=tuple(names),
        fields={field: row for field, row in values.items() if len(known_values[field]) > 1},
        equal={
            field: next(iter(only_value))
            for field, only_value in known_values.items()
            if len(only_value) == 1
        },
        unknown={
            name: tuple(field for field, row in values.items() if row[index] == UNKNOWN)
            for index, name in enumerate(names)
        },
    )


def _entry_of_figure(figure: Printed) -> Entry | None:
    """Return the entry with the settings that a work used; None if a setting is not known."""
    entry = find_entry(figure.system)
    if entry is None or figure.variant:
        return None
    for work in figure.works:
        if work.id == "r2med" and entry.published_as:
            return entry
        if work.preset in entry.protocols:
            return entry.override({"protocol": work.preset})
    return None


def _settings(entry: Entry) -> dict[str, object]:
    """Return an entry's settings, with separate lengths for queries and documents."""
    settings = asdict(read_settings(entry))
    if "max_length" in settings and _LENGTHS[0] in settings:
        longest = settings.pop("max_length")
        settings |= {name: settings[name] or longest for name in _LENGTHS}
    return settings


def _in_words(settings: Mapping[str, object]) -> dict[str, str]:
    def describe(name: str, value: object) -> str:
        if name.endswith("max_length") and value == 0:
            return "the model's own"
        if isinstance(value, bool):
            return "yes" if value else "no"
        if name.endswith("instruction") and value:
            return repr(value)
        return str(value) or (_NOT_PINNED if name == "revision" else "none")

    return {name: describe(name, value) for name, value in settings.items()}
