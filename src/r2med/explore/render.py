"""Renders HTML from templates: one environment for the server, the static site and the report.

Every text is escaped, and control characters become visible marks, so that a document can never
become markup. Pages have no inline style and no inline script.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import ceil, floor
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import jinja2
import numpy as np
from markupsafe import Markup, escape
from numpy.typing import NDArray

from r2med.errors import plural as plural
from r2med.explore.sharing import without_folders
from r2med.measure.intervals import mean_interval
from r2med.number_format import format_difference, format_p, format_percent, format_points
from r2med.report.console import visible
from r2med.report.table import task_label
from r2med.serve.headers import POLICY

DISCLAIMER = "A research instrument, never a clinical decision system."
DEMO = "Demo suite: original text, made to try things out. Not comparable with published figures."
#: Files that pages load, by the type they are sent as.
STATIC = {
    "explore.css": "text/css",
    "explore.js": "text/javascript",
    "theme.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
#: Where the pages of the navigation lead, by name.
NAVIGATION = (
    ("leaderboard", "Leaderboard"),
    ("tasks", "Tasks"),
    ("compare", "Compare"),
    ("answers", "Answers"),
    ("try", "Try it"),
    ("running", "Running"),
    ("audits", "Audits"),
    ("about", "About"),
)


Part = str | Sequence[str] | None
"""A part of an address: one value, several, or none."""


class Link(Protocol):
    """A function that returns the URL of a page; None if the page does not exist."""

    def __call__(self, page: str, **parts: Part) -> str | None:
        """Return the address of a page; parameters without a value are left out."""
        ...


@dataclass(frozen=True)
class LabelledLink:
    """A `Link` for pages with added judgements; every page shows the label `judgements`."""

    link: Link
    judgements: str

    def __call__(self, page: str, **parts: Part) -> str | None:
        """Return the address of a page."""
        return self.link(page, **parts)


def link_below(root_path: str = "") -> Link:
    """Return a function that makes addresses of a server below a root path."""

    def link(page: str, **parts: Part) -> str | None:
        return root_path + server_link(page, **parts)

    return link


def server_link(page: str, **parts: Part) -> str:
    """Return the address of a page of the server."""
    values = {name: value for name, value in parts.items() if value}
    path = f"/{page}"
    if page in ("task", "query", "document"):
        path = f"/task/{quote(str(values.pop('task')), safe='/')}"
        if page != "task":
            path += f"/{page}/{quote(str(values.pop(page)), safe='')}"
    elif page == "leaderboard" and not values:
        return "/"
    elif page in ("plot", "static"):
        path = f"/{page}/{quote(str(values.pop('name')), safe='')}"
    return f"{path}?{urlencode(values, doseq=True)}" if values else path


def render(template: str, link: Link, **values: Any) -> str:
    """Render a page from a template; `values` include `title`, and `page`, its navigation entry."""
    return str(_environment().get_template(template).render(link=link, **values))


def static_file(name: str) -> bytes:
    """Return the content of a style sheet, script or image that pages load."""
    return (files("r2med.explore") / "static" / name).read_bytes()


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("r2med.explore"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_neutralise,
        auto_reload=False,
    )
    environment.filters |= {
        "points": points,
        "signed": format_signed,
        "share": format_percent,
        "p": format_p,
        "plural": plural,
        "label": task_label,
        "anchor": anchor,
        "breakable": breakable,
        "thousands": lambda value: f"{value:,}",
        "sentence": sentence,
        "inline_code": inline_code,
        "without_folders": without_folders,
    }
    environment.globals |= {
        "disclaimer": DISCLAIMER,
        "demo_note": DEMO,
        "navigation": NAVIGATION,
        "policy": POLICY,
    }
    return environment


def _neutralise(value: Any) -> Any:
    """Make control characters in a text visible; `Markup` and other values stay unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def points(value: float | None, digits: int = 1) -> str:
    """Format a score of 0 to 1 as points (times 100); a dash if it is missing."""
    return format_points(value, digits)


def sentence(text: str) -> str:
    """Return the text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def format_signed(value: float | None, digits: int = 1) -> str:
    """Format a difference of two scores in points (times 100), with a real minus sign."""
    return "" if value is None else format_difference(value, digits).replace("-", "−")


_CODE = re.compile(r"`([^`]+)`")


def inline_code(text: str) -> Markup:
    """Return a message as HTML in which `commands` between backticks are code."""
    parts = _CODE.split(visible(text))
    html_parts = [
        f"<code>{escape(part)}</code>" if index % 2 else str(escape(part))
        for index, part in enumerate(parts)
    ]
    return Markup("".join(html_parts))


def anchor(document_id: str) -> str:
    """Return the HTML id of a document on a page that shows several documents."""
    return f"d-{hashlib.sha256(document_id.encode()).hexdigest()[:12]}"


_JOINT = re.compile(r"([/|+:,\[\]_-]+)")


def breakable(text: str) -> Markup:
    """Return a name as HTML that may wrap after punctuation, so that it fits a narrow screen."""
    parts = [str(escape(part)) for part in _JOINT.split(visible(text))]
    return Markup(
        "".join(f"{part}<wbr>" if _JOINT.fullmatch(part) else part for part in parts if part)
    )


#: Distances between the ticks of an axis of differences.
_STEPS = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5)


@dataclass(frozen=True)
class Axis:
    """A horizontal axis in percent of its cell, with margins so that no dot is cut."""

    low: float
    high: float
    _edge = 5.0

    @classmethod
    def around(cls, means: Sequence[float], scores: Iterable[NDArray[np.float64]] = ()) -> Axis:
        """Return an axis around all values and intervals; its ends are multiples of 10 points."""
        intervals = [mean_interval(values) for values in scores]
        values = [*means, *(end for i in intervals for end in (i.low, i.high))]
        low, high = min(values, default=0.0), max(values, default=1.0)
        return cls(max(0.0, floor(10 * low) / 10), min(1.0, (floor(10 * high) + 1) / 10))

    @classmethod
    def around_zero(cls, reach: float) -> Axis:
        """Return an axis of differences from `-reach` to `reach`, with zero in the middle."""
        step = next(step for step in _STEPS if 3 * step >= reach or step == _STEPS[-1])
        end = step * ceil(reach / step - 1e-9)
        return cls(-end, end)

    def at(self, value: float) -> float:
        """Return the position of a value, in percent of the width."""
        share = (value - self.low) / (self.high - self.low)
        return round(self._edge + (100 - 2 * self._edge) * share, 2)

    @property
    def ticks(self) -> list[tuple[float, int]]:
        """Return ticks: the position in percent, and the value in points (times 100)."""
        if self.low < 0:
            step = next(step for step in _STEPS if 3 * step >= self.high or step == _STEPS[-1])
        else:
            step = 0.1 if self.high - self.low <= 0.5 else 0.2
        count = int(round((self.high - self.low) / step, 6)) + 1
        values = [self.low + step * index for index in range(count)]
        return [(self.at(value), round(100 * value)) for value in values]


@dataclass(frozen=True)
class Bar:
    """A bar of a plot: position and size in pixels, and its tooltip."""

    x: float
    y: float
    width: float
    height: float
    text: str
    side: str = ""
    """If the bar shows a difference: won, lost or even."""
    query_id: str = ""
