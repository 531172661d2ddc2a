"""How the identities of two systems differ, for messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from r2med.results.record import Result

#: Differences that a message names, and characters of each value.
_LISTED = 3
_LONGEST = 24


def describe_difference(first: Result, second: Result) -> str:
    """One sentence on the settings in which two results' systems differ."""
    differing = find_differences(first, second)
    values = [f"{name} ({a} and {b})" for name, (a, b) in differing.items()]
    return f"They differ in {', '.join(values) or 'the order of ties'}."


def find_differences(first: Result, second: Result) -> dict[str, tuple[str, str]]:
    """Return the first settings in which two systems differ, with the values of both systems.

    A setting is named by the end of its path. If several settings differ in the same way, such as
    the checkpoint of both sides of a retriever, only one is listed.
    """
    first_values = dict(flatten(first.record.system.identity))
    second_values = dict(flatten(second.record.system.identity))
    differing: dict[tuple[str, str, str], str] = {}
    for path in first_values | second_values:
        if first_values.get(path) != second_values.get(path):
            name = path.rpartition(".")[2]
            values = _shorten(first_values, path), _shorten(second_values, path)
            differing.setdefault((name, *values), path)
    names = [name for name, _, _ in differing]
    return {
        name if names.count(name) == 1 else path: (first_value, second_value)
        for (name, first_value, second_value), path in list(differing.items())[:_LISTED]
    }


def _shorten(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "none"
    text = json.dumps(values[name], ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]}..."


def flatten(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the single values of an identity, with paths such as `first.retriever.depth`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from flatten(item, f"{path}[{index}]")
    else:
        yield path, value
