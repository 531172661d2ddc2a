"""What an address asks for, checked: a wrong or oversized parameter is one clean refusal."""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.datastructures import FormData, QueryParams

from r2med.errors import UsageError, nearest
from r2med.measure.metrics import parse_metric

#: Characters of a value; queries that are typed in may be longer.
LONGEST = 500
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Parameters:
    """The parameters of a request; each is read at most once and by its own rule."""

    def __init__(self, values: QueryParams | FormData) -> None:
        self._values = values

    def text(self, name: str, *, longest: int = LONGEST, lines: bool = False) -> str | None:
        """A text without control characters; None where it is absent or empty."""
        values = self.texts(name, longest=longest, lines=lines)
        if len(values) > 1:
            raise UsageError(f"{name} is given {len(values)} times, expected once.")
        return values[0] if values else None

    def texts(self, name: str, *, longest: int = LONGEST, lines: bool = False) -> tuple[str, ...]:
        """All values of a parameter that may be repeated, each once."""
        values = [value for value in self._values.getlist(name) if value]
        for value in values:
            if not isinstance(value, str):
                raise UsageError(f"{name} is a file, expected a text.")
            if len(value) > longest:
                raise UsageError(
                    f"{name} has {len(value):,} characters, expected at most {longest:,}."
                )
            if _CONTROL.search(re.sub(r"[\r\n\t]", "", value) if lines else value):
                raise UsageError(f"{name} holds a control character.")
        return tuple(dict.fromkeys(str(value) for value in values))

    def word(self, name: str, allowed: Collection[str], default: str | None = None) -> str | None:
        """One of the allowed words."""
        value = self.text(name)
        if value is None:
            return default
        if value not in allowed:
            raise UsageError(f"{name} {value[:60]!r} is not known. {nearest(value, allowed)}")
        return value

    def metric(self) -> str:
        """The metric shown."""
        return str(parse_metric(self.text("metric", longest=40) or "ndcg@10"))

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within bounds."""
        value = self.text(name, longest=12)
        if value is None:
            return default
        if not value.isascii() or not value.isdigit() or not least <= int(value) <= most:
            raise UsageError(
                f"{name} is {value!r}, expected a whole number from {least} to {most}."
            )
        return int(value)
