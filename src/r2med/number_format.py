"""Format numbers for terminals, HTML pages, LaTeX and sentences."""

from __future__ import annotations

from collections.abc import Iterable

#: Written instead of a missing value.
MISSING = "–"


def format_points(value: float | None, digits: int = 2) -> str:
    """Format a score of 0 to 1 in points (times 100)."""
    return MISSING if value is None else f"{100 * value:.{digits}f}"


def format_difference(value: float | None, digits: int = 2) -> str:
    """Format a difference of two scores in points, with its sign."""
    return MISSING if value is None else f"{100 * value:+.{digits}f}"


def format_range(low: float, high: float, digits: int = 1) -> str:
    """Format an interval of a difference, as in `+1.2 to +7.6`."""
    return f"{format_difference(low, digits)} to {format_difference(high, digits)}"


def format_percent(share: float | None) -> str:
    """Format a share of 0 to 1 as a whole percentage."""
    return MISSING if share is None else f"{100 * share:.0f} %"


def format_p(value: float | None) -> str:
    """Format a p-value to three digits, without its leading zero."""
    if value is None:
        return MISSING
    return "<.001" if value < 0.001 else f"{value:.3f}".removeprefix("0")


def format_p_equation(value: float) -> str:
    """Format a p-value for a sentence, as in `p = .020`."""
    return "p < .001" if value < 0.001 else f"p = {format_p(value)}"


def format_dollars(amount: float | None) -> str:
    """Format an amount with two decimals, or two significant digits below ten cents."""
    if amount is None:
        return MISSING
    return f"${amount:,.2f}" if amount == 0 or amount >= 0.1 else f"${amount:.2g}"


def format_count(count: float, unit: str = "") -> str:
    """Format a large number in thousands, millions and so on, with one decimal."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= factor:
            return f"{count / factor:,.1f} {prefix}{unit}"
    return f"{count:.0f} {unit}".rstrip()


def join_words(words: Iterable[str]) -> str:
    """Join words as a sentence does: a, b and c."""
    *first_words, last = words
    return f"{', '.join(first_words)} and {last}" if first_words else last
