"""Printed figures: R2MED's result files, NanoR2MED's profiles and everything reported since.

`figures.csv` has one row per system and task of R2MED; an empty cell was not published. NanoR2MED's
figures are those of its candidate profiles, kept in the task manifest. `later.tsv` has the figures
of other works, and `models.toml` maps its rows to systems; rows without an entry there are returned
unchanged, never dropped.

Figures of one system that agree at two decimals are one `Printed` with several works; figures that
differ are separate, in the order of `works.toml`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, cast

from r2med.settings import read_packaged_toml
from r2med.systems.registry import SystemKind
from r2med.tasks.registry import find_suite

#: Collections of another benchmark, run for contrast; never part of a mean.
CONTRAST = ("NFCorpus",)
#: All that later works report.
METRIC = "ndcg@10"

_NANO_RUNS_AS = {"bm25": ("bm25-nano",), "harrier_oss_v1_270m": ("harrier",)}
_NANO_METRICS = {"ndcg_at_10": "ndcg@10", "hit_at_10": "hit@10", "recall_at_100": "recall@100"}
_RERANKED = re.compile(r"rerank (?P<first>.+) top(?P<depth>\d+)")
#: Half of the last digit that counts when two works are compared: two decimals of 100.
_EQUAL = 0.5e-4 + 1e-9


@dataclass(frozen=True)
class Publication:
    """A paper, page or repository that reports figures; works.toml describes each field."""

    id: str
    name: str
    short: str
    revision: str
    table: str = ""
    date: str = ""
    """Date of publication, such as 2025-08; empty if unknown."""
    preset: str = ""
    protocol: Mapping[str, str] = field(default_factory=dict, hash=False)
    averages: Mapping[str, float] = field(default_factory=dict, hash=False)
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.revision}, {self.table}" if self.table else self.revision
        return f"{self.name} ({where})"


@dataclass(frozen=True)
class Printed:
    """One system's figures by task and metric (0 to 1), and the works that print these figures."""

    system: str
    kind: SystemKind
    works: tuple[Publication, ...]
    decimals: int
    """Decimals of the published figures; measured figures are rounded to them before comparing."""
    figures: dict[str, dict[str, float]] = field(default_factory=dict, hash=False)
    origins: dict[str, str] = field(default_factory=dict, hash=False)
    """The place where the figure was printed, by task."""
    runs_as: tuple[str, ...] = ()
    """Other names under which the system can be run."""
    revision: str = ""
    """Revision of the checkpoint; empty if the work does not give it."""
    variant: str = ""
    """How the model was run, where the work reports it in more than one way."""

    def values(self, metric: str) -> dict[str, float]:
        """Return the printed figures of one metric, by task of the suite."""
        in_suite = {task: figures for task, figures in self.figures.items() if task not in CONTRAST}
        return {task: figures[metric] for task, figures in in_suite.items() if metric in figures}


@cache
def published_systems(suite: str) -> Mapping[str, Printed]:
    """Return the systems that were published with a suite, by spec; empty for the demo suite."""
    systems: dict[str, Printed] = {}
    if suite == "full":
        for row in csv.DictReader(_text("figures.csv").splitlines()):
            system_kind, spec = cast(SystemKind, row.pop("kind")), row.pop("system")
            task, origin = row.pop("task"), row.pop("origin")
            work = replace(works()["r2med"], revision=origin)
            system = systems.setdefault(spec, Printed(spec, system_kind, (work,), decimals=5))
            system.figures[task] = {metric: float(value) for metric, value in row.items() if value}
            system.origins[task] = origin
    elif suite == "nano":
        work = works()["nano"]
        for entry in find_suite("nano").entries:
            for profile in entry.candidates.values():
                config = str(profile["config"])
                spec, other_names = f"candidates:{config}", _NANO_RUNS_AS.get(config, ())
                system = Printed(spec, "base", (work,), decimals=10, runs_as=other_names)
                system = systems.setdefault(spec, system)
                system.figures[entry.name] = {
                    our_name: float(profile[published_name])
                    for published_name, our_name in _NANO_METRICS.items()
                }
                system.origins[entry.name] = work.revision
    return MappingProxyType(systems)


def is_micro(suite: str | None, metric: str) -> bool:
    """Whether a suite publishes this metric over all positives at once (micro average)."""
    return suite == "nano" and metric.startswith("recall@")


@cache
def printed_figures(suite: str, metric: str) -> Mapping[str, tuple[Printed, ...]]:
    """Return the figures of every system on a suite; the first ones of a system decide its rank.

    Equal figures on the same tasks are one `Printed`, with all works that print them.
    """
    rows = [
        published for published in published_systems(suite).values() if published.values(metric)
    ]
    if suite == "full" and metric == METRIC:
        rows += later_rows()[0]
    grouped: dict[str, list[Printed]] = {}
    for row in rows:
        merged, values = grouped.setdefault(row.system, []), row.values(metric)
        for index, candidate in enumerate(merged):
            merged_values = candidate.values(metric)
            alike = merged_values.keys() == values.keys() and all(
                abs(value - merged_values[task]) <= _EQUAL for task, value in values.items()
            )
            if alike and not row.variant and not candidate.variant:
                merged[index] = replace(candidate, works=(*candidate.works, *row.works))
                break
        else:
            merged.append(row)
    return MappingProxyType({system: tuple(merged) for system, merged in grouped.items()})


@cache
def works() -> Mapping[str, Publication]:
    """All works by id, in order of precedence for ranks."""
    return MappingProxyType(
        {
            id: Publication(id, **facts)
            for id, facts in read_packaged_toml("results/figures/works.toml").items()
        }
    )


@cache
def later_rows() -> tuple[tuple[Printed, ...], tuple[str, ...]]:
    """The rows of later.tsv, and descriptions of rows whose model or work is unknown."""
    return read_rows(_text("later.tsv").splitlines(), _aliases())


def read_rows(
    lines: Iterable[str], aliases: Mapping[str, tuple[str, str]]
) -> tuple[tuple[Printed, ...], tuple[str, ...]]:
    """Parse rows and sort them by work; `aliases` maps names in papers to our name and variant."""
    by_source = {work.source: work for work in works().values() if work.source}
    order = list(works())
    rows, unmapped = [], []
    for row in csv.DictReader(lines, delimiter="\t"):
        work = by_source.get(row["source"])
        system = _system_of(row["stage"], row["system"], aliases)
        if work is None or system is None:
            unmapped.append(f"{row['system']} ({row['source']}, {row['stage']})")
            continue
        text, system_kind, variant = system
        cells = {task.name: row[task.name.lower()] for task in find_suite("full").entries}
        printed = Printed(
            text,
            system_kind,
            (work,),
            decimals=2 + max(len(cell.partition(".")[2]) for cell in cells.values()),
            figures={task: {METRIC: float(cell) / 100} for task, cell in cells.items()},
            origins=dict.fromkeys(cells, str(work)),
            revision=row["system"].partition("@")[2],
            variant=variant,
        )
        rows.append(printed)
    rows.sort(key=lambda printed: order.index(printed.works[0].id))
    return tuple(rows), tuple(unmapped)


def model_named(spelling: str) -> str | None:
    """Return our name of a model for any name that papers use; None if the model is unknown."""
    lowered = spelling.lower()
    for alias, (unit, _) in _aliases().items():
        if alias.lower() == lowered and ":" not in unit:
            return unit
    return spelling if spelling in models() else None


@cache
def models() -> Mapping[str, Mapping[str, Any]]:
    """What models.toml says of each model, by name."""
    facts: dict[str, Mapping[str, Any]] = read_packaged_toml("results/figures/models.toml")[
        "models"
    ]
    return MappingProxyType(facts)


def _system_of(
    stage: str, spelling: str, aliases: Mapping[str, tuple[str, str]]
) -> tuple[str, SystemKind, str] | None:
    """Return the system, its kind and its variant; None if a part has no known name."""
    if stage in ("retriever", "first stage"):
        model, variant = aliases.get(spelling.partition("@")[0], ("", ""))
        return (model, "base", variant) if model else None
    if stage == "HyDE/search":
        expander, _, retriever = spelling.rpartition(" + ")
        units = [aliases.get(part, ("", ""))[0] for part in (expander, retriever)]
        return (" | ".join(units), "gar", "") if all(units) else None
    if reranked := _RERANKED.fullmatch(stage):
        first = aliases.get(reranked["first"], ("", ""))[0]
        model, variant = aliases.get(spelling, ("", ""))
        text = f"{first} | {model}@{reranked['depth']}"
        return (text, "reranker", variant) if first and model else None
    return None


@cache
def _aliases() -> Mapping[str, tuple[str, str]]:
    """Map each name in papers for a model or expander to our name and the variant they ran."""
    expanders = read_packaged_toml("results/figures/models.toml")["expanders"]
    units = {spelling: (unit, "") for spelling, unit in expanders.items()}
    for model, facts in models().items():
        units |= dict.fromkeys(facts.get("names", ()), (model, ""))
        units |= {spelling: (model, how) for spelling, how in facts.get("variants", {}).items()}
    return MappingProxyType(units)


def _text(name: str) -> str:
    return (files("r2med.results") / "figures" / name).read_text(encoding="utf-8")
