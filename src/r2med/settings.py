"""Settings of registry entries: read into typed values once, and the identity made of them.

A room declares what its entries may say as a frozen dataclass; `read` fills it from an entry's
fields and names what is wrong. Every field enters `identity_of` unless `setting` says otherwise, so
a setting that somebody adds changes the identity without further work. `systems.build` reads the
settings of every stage and puts them into its identity; what is built from them adds only what
settings cannot say, such as the content of files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from r2med.errors import UsageError, nearest

Identity = Literal["value", "content", "none"]
T = TypeVar("T")

_SHOWN = 60


def setting(
    *,
    default: object = dataclasses.MISSING,
    identity: Identity = "value",
    least: float | None = None,
    most: float | None = None,
    choices: Collection[str] = (),
) -> Any:
    """A field of settings with limits, or with another part in the identity.

    `identity="none"` is for what never changes a ranking: batch sizes, prices, keys.
    `identity="content"` is for a path or name that stands for files or a model: what is built adds
    what it really found there, so that a folder may move and a changed file is another identity.
    """
    declared = {"identity": identity, "least": least, "most": most, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=declared)


def read(settings: type[T], fields: Mapping[str, object], *, name: str = "") -> T:
    """The settings of an entry; texts, as options give them, become values of the field's type.

    A field that the class does not know, one that is missing and a value that cannot be are
    UsageErrors; `name` is the entry's and stands in them.
    """
    hints = get_type_hints(settings)
    declared = {field.name: field for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    for key in fields:
        if key not in declared:
            raise UsageError(f"{name}: there is no setting {key!r}. {nearest(key, declared)}")
    values: dict[str, object] = {}
    for key, field in declared.items():
        if key in fields:
            values[key] = _checked(field, hints[key], fields[key], name)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise UsageError(f"{name}: the setting {key!r} is missing.")
    return settings(**values)


def identity_of(settings: object) -> dict[str, object]:
    """All settings that may change a ranking, as JSON values."""
    return {
        field.name: _plain(getattr(settings, field.name))
        for field in dataclasses.fields(settings)  # type: ignore[arg-type]
        if field.metadata.get("identity", "value") == "value"
    }


def _checked(field: dataclasses.Field[Any], hint: object, value: object, name: str) -> object:
    limits = field.metadata
    choices: tuple[str, ...] = limits.get("choices", ())
    try:
        typed = _typed(hint, value)
        if choices and typed not in choices:
            raise ValueError
        for number in typed if isinstance(typed, tuple) else (typed,):
            _check_range(number, limits.get("least"), limits.get("most"))
    except ValueError:
        words = choices or _words(hint)
        hints = f" {nearest(str(value), words)}" if words else ""
        wanted = _wanted(hint, limits)
        raise UsageError(f"{_option(name, field.name, value)}: expected {wanted}.{hints}") from None
    return typed


def _typed(hint: object, value: object) -> object:
    """The value as the declared type; ValueError when it is none."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _first(get_args(hint), value)
    if origin is Literal:
        if value in get_args(hint):
            return value
        raise ValueError
    if origin is tuple:
        return tuple(_typed(get_args(hint)[0], item) for item in _items(hint, value))
    if hint is NoneType:
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


def _first(hints: tuple[object, ...], value: object) -> object:
    """The first of several types that the value can have; words come before numbers."""
    for hint in sorted(hints, key=lambda hint: not _is_word(hint)):
        try:
            return _typed(hint, value)
        except ValueError:
            continue
    raise ValueError


def _is_word(hint: Any) -> bool:
    return hint is NoneType or get_origin(hint) is Literal


def _items(hint: object, value: object) -> list[object]:
    """A list of the registry, or an option's text: numbers as in 0.3:0.7, or one text."""
    if isinstance(value, list | tuple):
        return list(value)
    if not isinstance(value, str):
        raise ValueError
    if get_args(hint)[0] is str:
        return [value]
    return [part for part in value.replace(",", ":").split(":") if part]


def _check_range(value: object, least: float | None, most: float | None) -> None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        low = least is not None and value < least
        high = most is not None and value > most
        if low or high:
            raise ValueError


def _wanted(hint: object, limits: Mapping[str, Any]) -> str:
    """What could stand there, in words."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(_wanted(part, limits) for part in get_args(hint))
    if origin is tuple:
        part = get_args(hint)[0]
        return "texts" if part is str else "numbers" + _range(limits) + ", as in 0.3:0.7"
    if limits.get("choices"):
        return "one of " + ", ".join(limits["choices"])
    if origin is Literal:
        words = [str(word) for word in get_args(hint)]
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)
    kinds = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "a text",
        NoneType: "none",
    }
    name = kinds[hint]  # type: ignore[index]
    return name + _range(limits) if hint in (int, float) else name


def _range(limits: Mapping[str, Any]) -> str:
    least, most = limits.get("least"), limits.get("most")
    return (f" from {least:g}" if least is not None else "") + (
        f" to {most:g}" if most is not None else ""
    )


def _words(hint: object) -> tuple[str, ...]:
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(
        str(word) for part in parts if get_origin(part) is Literal for word in get_args(part)
    )


def _option(name: str, key: str, value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    short = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return f"{name}[{key}={short}]"


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
