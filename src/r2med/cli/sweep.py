"""Sweep files: systems, tasks and options of `r2med eval` in a TOML file.

    systems = ["bm25", "tuned-{k1}=bm25[k1={k1}]"]
    tasks = ["demo"]

    [values]
    k1 = [0.9, 1.2, 1.5]

    [options]
    metrics = "ndcg@10,recall@100"

A system is run once for every combination of the values that it names in braces. Options typed on
the command line take precedence over those of the file; systems of both are run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from r2med.errors import DataError, UsageError, nearest
from r2med.settings import read_toml

#: Key of the sweep in a command's context.
SWEEP = "r2med.sweep"


@dataclass(frozen=True)
class Sweep:
    """The content of a sweep file, with the values filled into the systems."""

    path: Path
    systems: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)


def read_sweep(path: Path) -> Sweep:
    """Read a sweep file."""
    content = read_toml(path)
    for key in content:
        if key not in ("systems", "tasks", "values", "options"):
            expected = nearest(key, ("systems", "tasks", "values", "options"))
            raise UsageError(f"{path}: {key!r} is not a known key. {expected}")
    values = _read_table(content, "values", path)
    systems = [
        filled
        for system in _read_strings(content, "systems", path)
        for filled in _fill_values(system, values, path)
    ]
    tasks = _read_strings(content, "tasks", path)
    return Sweep(path, tuple(systems), tuple(tasks), _read_table(content, "options", path))


def apply_sweep(context: Any, parameter: Any, path: Path | None) -> Path | None:
    """Make a sweep file's tasks and options the defaults of the command that is being parsed.

    This is the callback of `--from`, which is parsed before all other options.
    """
    if path is None or context.resilient_parsing:
        return path
    sweep = read_sweep(path)
    by_option = {option: param for param in context.command.params for option in param.opts}
    defaults: dict[str, object] = {}
    if sweep.tasks:
        defaults["task"] = ",".join(sweep.tasks)
    for name, value in sweep.options.items():
        param = by_option.get(f"--{name}")
        if param is None:
            options = [option[2:] for option in by_option if option.startswith("--")]
            raise UsageError(
                f"{path}: options.{name} is not an option of `{context.command_path}`. "
                f"{nearest(name, options)}"
            )
        if param is parameter:
            raise UsageError(f"{path}: options.from: a sweep file cannot name another one.")
        _check_option(name, value, param, path)
        defaults[param.name] = value if isinstance(value, bool | list) else str(value)
    context.default_map = {**(context.default_map or {}), **defaults}
    context.meta[SWEEP] = sweep
    return path


def current_sweep(context: Any) -> Sweep | None:
    """Return the sweep of this command line; None if it names no sweep file."""
    sweep: Sweep | None = context.meta.get(SWEEP)
    return sweep


def _check_option(name: str, value: object, param: Any, path: Path) -> None:
    if param.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{path}: options.{name} is {value!r}, expected true or false.")
    elif isinstance(value, bool | dict) or (isinstance(value, list) and not param.multiple):
        raise UsageError(
            f"{path}: options.{name} is {value!r}, expected one value, as on the command line."
        )


def _read_strings(content: Mapping[str, object], key: str, path: Path) -> Sequence[str]:
    value = content.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise DataError(f"{path}: {key} is {value!r}, expected a list of strings.")
    return value


def _read_table(content: Mapping[str, object], key: str, path: Path) -> Mapping[str, object]:
    value = content.get(key, {})
    if not isinstance(value, dict):
        raise DataError(f"{path}: {key} is {value!r}, expected a table, [{key}].")
    return value


def _fill_values(system: str, values: Mapping[str, object], path: Path) -> list[str]:
    """Return a spec for every combination of the values that the system names in braces."""
    filled = [system]
    for name in dict.fromkeys(re.findall(r"\{(\w+)\}", system)):
        choices = values.get(name)
        if not isinstance(choices, list) or not choices:
            raise UsageError(
                f"{path}: the system {system!r} uses {{{name}}}, but values.{name} is "
                f"{choices!r}, expected a list."
            )
        filled = [text.replace(f"{{{name}}}", str(value)) for text in filled for value in choices]
    return filled
