"""Typed settings of registry entries, and the identity derived from them.

A package declares the settings of its entries as a frozen dataclass; `parse_settings` fills it from
an entry's fields and reports invalid values. Every field enters `settings_identity` unless
`setting` excludes it, so a new setting changes the identity without further code.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from r2med.errors import DataError, UsageError, nearest

Identity = Literal["value", "content", "none"]
T = TypeVar("T")

_MOST_CHARACTERS = 60


@cache
def read_packaged_toml(path: str) -> dict[str, Any]:
    """Read a TOML file of this package."""
    return read_toml(Path(__file__).parent / path)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; DataError if it is not valid."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise DataError(f"{path}: this is not TOML in UTF-8: {problem}.") from None


def setting(
    *,
    default: object = dataclasses.MISSING,
    identity: Identity = "value",
    least: float | None = None,
    most: float | None = None,
) -> Any:
    """Declare a field of settings with limits, or with another role in the identity.

    `identity="none"` is for settings that never change a ranking: batch sizes, prices, keys.
    `identity="content"` is for the path or name of files or a model: the stage adds the hash of the
    content to the identity instead, so that a folder may move and a changed file is noticed.
    """
    metadata = {"identity": identity, "least": least, "most": most}
    return dataclasses.field(default=default, metadata=metadata)


def parse_settings(settings: type[T], fields: Mapping[str, object], *, name: str = "") -> T:
    """Make a `settings` object from an entry's fields; texts are converted to declared types.

    Unknown and missing fields and invalid values are UsageErrors. `name` is the name of the entry
    in error messages.
    """
    hints = get_type_hints(settings)
    known_fields = {field.name: field for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    for key in fields:
        if key not in known_fields:
            raise UsageError(
                f"{name}: the setting {key!r} does not exist. {nearest(key, known_fields)}"
            )
    values: dict[str, object] = {}
    for key, field in known_fields.items():
        if key in fields:
            values[key] = _check_value(field, hints[key], fields[key], name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{name}: the setting {key!r} is missing.")
    return settings(**values)


def settings_identity(settings: object) -> dict[str, object]:
    """Return all settings that can change a ranking, as JSON values."""
    values = {
        field.name: getattr(settings, field.name)
        for field in dataclasses.fields(settings)  # type: ignore[arg-type]
        if field.metadata.get("identity", "value") == "value"
    }
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items()
    }


def _check_value(field: dataclasses.Field[Any], hint: object, value: object, name: str) -> object:
    least, most = field.metadata.get("least"), field.metadata.get("most")
    try:
        typed = _convert(hint, value)
        values = typed if isinstance(typed, tuple) else (typed,)
        numbers = [item for item in values if type(item) in (int, float)]
        if least is not None and any(number < least for number in numbers):
            raise ValueError
        if most is not None and any(number > most for number in numbers):
            raise ValueError
    except ValueError:
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if len(text) > _MOST_CHARACTERS:
            text = f"{text[:_MOST_CHARACTERS]}..."
        limits = "" if least is None else f" from {least:g}"
        limits += "" if most is None else f" to {most:g}"
        expected = " or ".join(_describe_type(part, limits) for part in _alternatives(hint))
        raise UsageError(f"{name}[{field.name}={text}]: expected {expected}.") from None
    return typed


def _alternatives(hint: object) -> tuple[Any, ...]:
    """Return the types of a union; for any other type, the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _convert(hint: object, value: object) -> object:
    """Convert a value to the declared type; ValueError if that is not possible."""
    # Every branch that does not return ends at the last line, which raises ValueError.
    origin, types = get_origin(hint), _alternatives(hint)
    if len(types) > 1:
        # `none` and the words of a Literal come first, since every value is also a text.
        words = [
            type_hint
            for type_hint in types
            if type_hint is NoneType or get_origin(type_hint) is Literal
        ]
        for type_hint in (*words, *types):
            with suppress(ValueError):
                return _convert(type_hint, value)
    elif origin is Literal:
        if value in get_args(hint):
            return value
    elif origin is tuple:
        type_hint, items = get_args(hint)[0], value
        if isinstance(value, str):  # from an option: numbers as in 0.3:0.7, or one text
            parts = [part for part in value.replace(",", ":").split(":") if part]
            items = [value] if type_hint is str else parts
        if isinstance(items, list | tuple):
            return tuple(_convert(type_hint, item) for item in items)
    elif hint is NoneType:
        if value in (None, "", "none"):
            return None
    elif hint is bool:
        if isinstance(value, str):
            value = {"true": True, "false": False}.get(value.lower())
        if isinstance(value, bool):
            return value
    elif hint is int and not isinstance(value, bool | float):
        return int(str(value))
    elif hint is float and not isinstance(value, bool):
        number = float(str(value))
        if math.isfinite(number):
            return number
    elif hint is str and isinstance(value, str):
        return value
    raise ValueError


def _describe_type(hint: Any, limits: str) -> str:
    """Describe the expected type for an error message."""
    if get_origin(hint) is tuple:
        return "texts" if get_args(hint)[0] is str else f"numbers{limits}, as in 0.3:0.7"
    if get_origin(hint) is Literal:
        words = ", ".join(map(str, get_args(hint)))
        return f"one of {words}" if len(get_args(hint)) > 1 else words
    numbers = {int: f"a whole number{limits}", float: f"a number{limits}"}
    return {**numbers, bool: "true or false", str: "a text", NoneType: "none"}[hint]
