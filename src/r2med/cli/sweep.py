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
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

from typer import Context

from r2med.cli.options import is_typed
from r2med.errors import DataError, MissingError, UsageError, nearest

_LISTS = ("systems", "tasks")
_KEYS = (*_LISTS, "values", "options")


def with_sweep(
    context: Context, path: Path, command: Callable[..., None], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a command with those of a file; what the command line says comes first.

    Systems of both are taken, the file's first.
    """
    settings = _read(path)
    values = {**arguments, "sweep": None}
    systems = [
        text for system in settings["systems"] for text in _filled(system, settings["values"], path)
    ]
    values["systems"] = [*systems, *(values["systems"] or [])] or None
    if settings["tasks"] and not is_typed(context, "task"):
        values["task"] = ",".join(settings["tasks"])
    known = _options(context, command)
    for option, value in settings["options"].items():
        if option not in known:
            raise UsageError(f"{path}: options.{option} is not known. {nearest(option, known)}")
        name, kind = known[option]
        if not is_typed(context, name):
            values[name] = _typed(value, kind, f"{path}: options.{option}")
    context.params.update(values)
    return values


def _options(context: Context, command: Callable[..., None]) -> dict[str, tuple[str, Any]]:
    """The parameter and its type by the long name of every option that a file may set."""
    hints = get_type_hints(command)
    return {
        option.removeprefix("--"): (str(each.name), hints[str(each.name)])
        for each in context.command.params
        for option in getattr(each, "opts", ())
        if option.startswith("--") and each.name in hints and each.name not in ("sweep", "task")
    }


def _typed(value: object, hint: Any, where: str) -> Any:
    """A value of the file as the command's parameter is declared."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not NoneType]
    kind = kinds[0]
    if get_origin(kind) is list and isinstance(value, list):
        return [str(each) for each in value]
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(kind) is None and type(value) is kind:
        return value
    names = {bool: "true or false", int: "a whole number", float: "a number"}
    expected = names.get(kind, "a list of texts" if get_origin(kind) is list else "a text")
    raise UsageError(f"{where} is {value!r}, expected {expected}.")


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
    named = list(dict.fromkeys(re.findall(r"\{(\w+)\}", system)))
    for name in named:
        if name not in values:
            raise UsageError(
                f"{path}: systems holds {{{name}}}, in {system!r}, which is not among [values]. "
                f"{nearest(name, values)}"
            )
        if not isinstance(values[name], list) or not values[name]:
            raise DataError(f"{path}: values.{name} is {values[name]!r}, expected a list.")
    texts = []
    for row in product(*(values[name] for name in named)):
        text = system
        for name, value in zip(named, row, strict=True):
            text = text.replace(f"{{{name}}}", str(value))
        texts.append(text)
    return texts
