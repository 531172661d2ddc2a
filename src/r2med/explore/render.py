"""From values to HTML: one environment for the server, the static site and the report.

Every text is escaped, and control characters become visible marks, so that a document can never
become markup. Pages have no inline style and no inline script.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from r2med.report.console import visible
from r2med.report.table import p_value, task_label
from r2med.report.table import plural as plural

DISCLAIMER = "A research instrument, never a clinical decision system."
DEMO = "Demo suite: original text, made to try things out. Not comparable with published figures."
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
    }
    environment.globals |= {
        "disclaimer": DISCLAIMER,
        "demo_note": DEMO,
        "navigation": NAVIGATION,
    }
    return environment


def _shown(value: Any) -> Any:
    """Neutralise a text of unknown origin; markup was made here and stays."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def points(value: float | None, digits: int = 1) -> str:
    """A score of 0 to 1, times 100; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.{digits}f}"


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


def level(value: float | None, most: float) -> int:
    """Which of ten shades stands for a value; -1 where there is none."""
    return -1 if value is None else min(9, int(10 * value / most)) if most > 0 else 0
