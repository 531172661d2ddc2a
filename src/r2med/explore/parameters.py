"""The parameters of the explorer's requests."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.datastructures import FormData, QueryParams

from r2med.errors import UsageError, nearest
from r2med.measure.metrics import parse_metric

#: Characters of a parameter; a typed query may be longer.
_LONGEST_VALUE = 500
#: Control characters except line ends and tabs.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class Parameters:
    """The parameters of a request, each validated when it is read."""

    def __init__(self, values: QueryParams | FormData) -> None:
        self._values = values

    def text(self, name: str, *, longest: int = _LONGEST_VALUE) -> str | None:
        """Return a parameter as text without control characters; None if it is absent or empty."""
        values = self.texts(name, longest=longest)
        if len(values) > 1:
            raise UsageError(f"{name} is given {len(values)} times, expected once.")
        return values[0] if values else None

    def texts(self, name: str, *, longest: int = _LONGEST_VALUE) -> tuple[str, ...]:
        """Return all values of a parameter that may be repeated, without duplicates."""
        values = [value for value in self._values.getlist(name) if value]
        for value in values:
            if not isinstance(value, str):
                raise UsageError(f"{name} is a file, expected a text.")
            if len(value) > longest:
                raise UsageError(f"{name} has {len(value):,} characters, at most {longest:,} fit.")
            if _CONTROL.search(value):
                raise UsageError(f"{name} contains a control character.")
        return tuple(dict.fromkeys(str(value) for value in values))

    def word(self, name: str, allowed: Collection[str]) -> str | None:
        """Return a parameter whose value must be one of the allowed words; None if it is absent."""
        value = self.text(name)
        if value is not None and value not in allowed:
            raise UsageError(f"We don't know the {name} {value[:60]!r}. {nearest(value, allowed)}")
        return value

    def words(self, name: str, allowed: Collection[str], *, most: int) -> tuple[str, ...]:
        """Return the values of a repeated parameter: at most `most`, each an allowed word."""
        values = self.texts(name)
        if len(values) > most:
            raise UsageError(f"{name} is given {len(values)} times, expected at most {most}.")
        for value in values:
            if value not in allowed:
                problem = f"We don't know the {name} {value[:60]!r}."
                raise UsageError(f"{problem} {nearest(value, allowed)}")
        return values

    def metric(self) -> str:
        """Return the metric to show."""
        return str(parse_metric(self.text("metric", longest=40) or "ndcg@10"))
