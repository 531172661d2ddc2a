"""Which failures of a server pass by themselves, and how long to wait for that."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

#: Answers that another attempt may turn into success.
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 522, 524, 529})
#: Answers that mean "less at a time"; so does an attempt that ran out of time.
CONGESTED = frozenset({408, 429, 503, 504, 529})
#: The longest wait that a server may ask for; more is a failure that says so.
LONGEST_WAIT = 600.0
_LONGEST_BACKOFF = 60.0


def asked_wait(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Seconds that `Retry-After` (a number or an HTTP date) or `Retry-After-Ms` asks to wait."""
    milliseconds = _number(headers.get("Retry-After-Ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("Retry-After")
    if asked is None:
        return None
    seconds = _number(asked)
    if seconds is not None:
        return seconds
    try:
        moment = parsedate_to_datetime(asked)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


def backoff(attempt: int, first: float) -> float:
    """Seconds before the attempt after this one (from 1), varied so that clients do not march."""
    longest = min(_LONGEST_BACKOFF, first * 2.0 ** (attempt - 1))
    return longest * random.uniform(0.5, 1.0)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < float("inf") else None
