"""From values to HTML: one environment for the server, the static site and the report.

Every text is escaped, and control characters become visible marks, so that a document can never
become markup. Pages have no inline style and no inline script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from r2med.errors import plural as plural
from r2med.measure.significance import p_value
from r2med.report.console import visible
from r2med.report.table import task_label

#: What every page may load and run; as a header, and in pages that are files.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'"
)
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
    ("try", "Try it"),
    ("running", "Running"),
    ("audits", "Audits"),
    ("about", "About"),
)


Part = str | Sequence[str] | None
"""A part of an address: one value, several, or none."""


class Link(Protocol):
    """Where a page is, for those who write pages: a URL, or None where there is no such page."""

    def __call__(self, page: str, **parts: Part) -> str | None:
        """The address of a page with its parameters; those without a value are left out."""
        ...


def server_link(page: str, **parts: Part) -> str | None:
    """The address of a page of the server."""
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
    """A whole page; `title` says where one is, and `page` which part of the navigation."""
    return str(_environment().get_template(template).render(link=link, **values))


def static_file(name: str) -> bytes:
    """The content of a file that pages load."""
    return (files("r2med.explore") / "static" / name).read_bytes()


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("r2med.explore"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
        auto_reload=False,
    )
    environment.filters |= {
        "points": points,
        "signed": signed,
        "share": lambda value: f"{100 * value:.0f} %",
        "p": p_value,
        "plural": plural,
        "label": task_label,
        "breakable": breakable,
        "thousands": lambda value: f"{value:,}",
        "sentence": sentence,
    }
    environment.globals |= {
        "disclaimer": DISCLAIMER,
        "demo_note": DEMO,
        "navigation": NAVIGATION,
        "policy": POLICY,
    }
    return environment


def _shown(value: Any) -> Any:
    """Neutralise a text of unknown origin; markup was made here and stays."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def points(value: float | None, digits: int = 1) -> str:
    """A score of 0 to 1, times 100; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


def sentence(text: str) -> str:
    """A text that begins like one."""
    return text[:1].upper() + text[1:]


def signed(value: float | None, digits: int = 1) -> str:
    """A difference of two scores, times 100, with a real minus sign."""
    return "" if value is None else f"{100 * value:+.{digits}f}".replace("-", "−")


_JOINT = re.compile(r"([/|+:,\[\]_-]+)")


def breakable(text: str) -> Markup:
    """A name that may be broken after its joints, so that long ones fit a narrow screen."""
    parts = [str(escape(part)) for part in _JOINT.split(visible(text))]
    return Markup(
        "".join(f"{part}<wbr>" if _JOINT.fullmatch(part) else part for part in parts if part)
    )


@dataclass(frozen=True)
class Axis:
    """A horizontal axis in pixels; its ends stand inside, so that no dot or number is cut."""

    low: float
    high: float
    width: int = 180
    _edge = 14

    def at(self, value: float) -> float:
        """Where a value stands."""
        share = (value - self.low) / (self.high - self.low)
        return round(self._edge + (self.width - 2 * self._edge) * share, 1)

    @property
    def ticks(self) -> list[tuple[float, int]]:
        """Places with their numbers, × 100."""
        step = 0.1 if self.high - self.low <= 0.5 else 0.2
        count = int(round((self.high - self.low) / step, 6)) + 1
        values = [self.low + step * place for place in range(count)]
        return [(self.at(value), round(100 * value)) for value in values]


@dataclass(frozen=True)
class Bar:
    """A bar of a plot, in pixels, and what it stands for."""

    x: float
    y: float
    width: float
    height: float
    text: str
    side: str = ""
    """won, lost or even, where the bar is a difference."""
    query_id: str = ""


def level(value: float | None, most: float) -> int:
    """Which of ten shades stands for a value; -1 where there is none."""
    return -1 if value is None else min(9, int(10 * value / most)) if most > 0 else 0
