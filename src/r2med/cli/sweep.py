"""Evaluations from a TOML file: systems, tasks, options, and values that a sweep goes through.

systems = ["bm25", "tuned {k1}=bm25[k1={k1}]"]
tasks = ["demo"]

[values]
k1 = [0.9, 1.2, 1.5]

[options]
metrics = "ndcg@10,recall@100"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from typer import Context

from r2med.cli.app import usage_message
from r2med.cli.options import is_typed
from r2med.errors import DataError, MissingError, UsageError, nearest

_LISTS = ("systems", "tasks")
_KEYS = (*_LISTS, "values", "options")


def with_sweep(context: Context, path: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a command with those of a file; what the command line says comes first.

    Systems of both are taken, the file's first. Options are read as the command line's are.
    """
    settings = _read(path)
    values = {**arguments, "sweep": None}
    systems = [
        text for system in settings["systems"] for text in _filled(system, settings["values"], path)
    ]
    values["systems"] = [*systems, *(values["systems"] or [])] or None
    if settings["tasks"] and not is_typed(context, "task"):
        values["task"] = ",".join(settings["tasks"])
    known = [name[2:] for each in context.command.params for name in each.opts if name[:2] == "--"]
    words: list[str] = []
    for option, value in settings["options"].items():
        if option not in known or option in ("from", "task"):
            raise UsageError(f"{path}: options.{option} is not known. {nearest(option, known)}")
        if isinstance(value, bool):
            words += [f"--{option}"] * value
        else:
            several = value if isinstance(value, list) else [value]
            words += [f"--{option}={each}" for each in several]
    try:
        with context.command.make_context(context.command_path, words) as read:
            for name, value in read.params.items():
                if is_typed(read, name) and not is_typed(context, name):
                    values[name] = value
    except Exception as problem:
        if (why := usage_message(problem)) is None:
            raise
        raise UsageError(f"{path}: {why}") from None
    context.params.update(values)
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MissingError(f"--from {path}: there is no such file.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DataError(f"{path}: not readable as TOML ({problem}).") from None
    for key in raw:
        if key not in _KEYS:
            raise UsageError(f"{path}: {key!r} is not known. {nearest(key, _KEYS)}")
    for key in _KEYS:
        value = raw.setdefault(key, [] if key in _LISTS else {})
        if key in _LISTS and isinstance(value, str):
            raw[key] = [value]
        elif key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise DataError(f"{path}: {key} is {value!r}, expected a list of texts.")
        elif not isinstance(value, dict):
            raise DataError(f"{path}: {key} is {value!r}, expected a table, [{key}].")
    return raw


def _filled(system: str, values: Mapping[str, Any], path: Path) -> list[str]:
    """The system once for every combination of the values that it names in braces."""
    texts = [system]
    for name in dict.fromkeys(re.findall(r"\{(\w+)\}", system)):
        if name not in values:
            raise UsageError(
                f"{path}: systems holds {{{name}}}, in {system!r}, which is not among [values]. "
                f"{nearest(name, values)}"
            )
        if not isinstance(values[name], list) or not values[name]:
            raise DataError(f"{path}: values.{name} is {values[name]!r}, expected a list.")
        texts = [
            text.replace(f"{{{name}}}", str(value)) for text in texts for value in values[name]
        ]
    return texts
