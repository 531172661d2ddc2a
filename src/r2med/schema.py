"""Make dataclasses from JSON values and check the type of every value.

Stored files may come from other people or be damaged, so a value of the wrong type is an error that
names the field. Fields that the dataclass does not declare are ignored. The reader of each type is
built once, because a results folder can have tens of thousands of records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from r2med.errors import DamagedError

T = TypeVar("T")
Reader = Callable[[Any], Any]
"""Converts a JSON value to the declared type.

Raises _MismatchError if the value has another type.
"""

#: Levels of objects and lists in a record; deeper ones exhaust the stack of recursive readers.
_DEEPEST = 250
#: JSON has whole numbers of any length; tables and indexes store 64 bits.
_LARGEST_INTEGER = 2**63 - 1
_NAMES: dict[Any, str] = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
}


def read_values(record_type: type[T], values: object, path: object) -> T:
    """Return an instance of `record_type` with these JSON values.

    Raises:
        DamagedError: A field is missing or has another type; the message names `path` and field.
    """
    try:
        _check_depth(values)
        reader: Reader = _make_reader(cast(Any, record_type))
        record: T = reader(values)
    except _MismatchError as problem:
        raise DamagedError(f"{path}: {problem}.") from None
    return record


class _MismatchError(Exception):
    """A value does not have the declared type; `field` is the path to the value."""

    def __init__(self, finding: str, field: str = "") -> None:
        super().__init__(finding)
        self.finding = finding
        self.field = field

    def __str__(self) -> str:
        name = repr(self.field.removeprefix("."))
        return f"field {name} {self.finding}" if self.field else f"the record {self.finding}"

    def within(self, parent: str) -> _MismatchError:
        """Return the same error with `parent` before the path of the field."""
        return _MismatchError(self.finding, parent + self.field)


def _check_depth(value: object) -> None:
    """Reject a value whose objects and lists are nested too deeply, without recursion."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return
    raise _MismatchError(f"is nested more than {_DEEPEST} levels deep")


@cache
def _make_reader(hint: Any) -> Reader:
    origin = get_origin(hint)
    if hint is Any:
        return _check_texts
    if origin in (Union, UnionType):
        return _make_union_reader(hint)
    if is_dataclass(hint):
        return _make_dataclass_reader(hint)
    if origin is Literal:
        return _make_scalar_reader(hint, lambda value: value in get_args(hint))
    if origin is tuple:
        return _make_list_reader(hint)
    if origin is not None and issubclass(origin, Mapping):
        return _make_mapping_reader(hint)
    if hint is str:
        return _read_text
    if hint is float:
        return _read_number
    if hint is int:
        return _make_scalar_reader(int, _is_whole_number)
    return _make_scalar_reader(hint, lambda value: isinstance(value, hint))


def _make_scalar_reader(hint: Any, accepts: Callable[[Any], bool]) -> Reader:
    def read(value: Any) -> Any:
        if not accepts(value):
            raise _mismatch(hint, value)
        return value

    return read


def _read_number(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if _is_whole_number(value):
        return float(value)
    raise _mismatch(float, value)


def _is_whole_number(value: Any) -> bool:
    """Return whether a value is a whole number that tables and indexes can store."""
    return type(value) is int and -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise _mismatch(str, value)
    if not value.isascii():
        _check_unicode(value)
    return value


def _make_union_reader(hint: Any) -> Reader:
    accepts_none = NoneType in get_args(hint)
    readers = [
        _make_reader(alternative) for alternative in get_args(hint) if alternative is not NoneType
    ]

    def read(value: Any) -> Any:
        if value is None and accepts_none:
            return None
        if len(readers) == 1 and value is not None:
            return readers[0](value)
        for reader in readers:
            try:
                return reader(value)
            except _MismatchError:
                continue
        raise _mismatch(hint, value)

    return read


def _make_list_reader(hint: Any) -> Reader:
    read_item = _make_reader(get_args(hint)[0])

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise _mismatch(hint, value)
        items = []
        for item in value:
            try:
                items.append(read_item(item))
            except _MismatchError as problem:
                raise problem.within(f"[{len(items)}]") from None
        return tuple(items)

    return read


def _make_mapping_reader(hint: Any) -> Reader:
    read_item = _make_reader(get_args(hint)[1])

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _mismatch(hint, value)
        items = {}
        for key, item in value.items():
            try:
                items[_read_text(key)] = read_item(item)
            except _MismatchError as problem:
                raise problem.within(f".{key}") from None
        return items

    return read


def _make_dataclass_reader(record_type: Any) -> Reader:
    hints = get_type_hints(record_type)
    declared = [field for field in fields(record_type) if field.init]
    required = {
        field.name
        for field in declared
        if field.default is MISSING and field.default_factory is MISSING
    }
    readers: dict[str, Reader] = {}

    def read(value: Any) -> Any:
        if not isinstance(value, Mapping):
            raise _mismatch(record_type, value)
        if not readers:  # not built earlier, since a dataclass may contain itself
            readers.update({field.name: _make_reader(hints[field.name]) for field in declared})
        values = {}
        for name, reader in readers.items():
            if name in value:
                try:
                    values[name] = reader(value[name])
                except _MismatchError as problem:
                    raise problem.within(f".{name}") from None
            elif name in required:
                raise _MismatchError("is missing", f".{name}")
        return record_type(**values)

    return read


def _check_texts(value: Any) -> Any:
    """Check every text in a value of any type."""
    if isinstance(value, str):
        if not value.isascii():
            _check_unicode(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_texts(key)
            _check_texts(item)
    elif isinstance(value, list):
        for item in value:
            _check_texts(item)
    return value


def _check_unicode(text: str) -> None:
    """Reject texts that cannot be written as UTF-8, which JSON escapes can produce."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _MismatchError("has a text that is not valid Unicode") from None


def _mismatch(hint: Any, value: object) -> _MismatchError:
    value_text = repr(value)
    if len(value_text) > 60:
        value_text = f"{value_text[:57]}..."
    return _MismatchError(f"is {value_text}, expected {_describe_type(hint)}")


def _describe_type(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return " or ".join(_describe_type(alternative) for alternative in get_args(hint))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, get_args(hint)))
    if origin is tuple:
        return "a list"
    return _NAMES.get(hint, "an object")
