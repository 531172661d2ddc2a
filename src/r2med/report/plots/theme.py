"""One look for all plots, on light and dark paper, and how a chart becomes a file.

SVG is for pages, PNG at twice the size for slides; nothing is fetched from the network.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from r2med.atomic import atomic_file
from r2med.errors import MissingError, UsageError

ThemeName = Literal["light", "dark"]
THEMES: tuple[ThemeName, ...] = ("light", "dark")
ENDINGS = (".svg", ".pdf", ".png")
_LIBRARIES = {"altair": "altair", "vl_convert": "vl-convert-python"}
_SCALE = 2.0
_FONT = "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for."""

    name: ThemeName
    paper: str
    ink: str
    muted: str
    grid: str
    series: tuple[str, ...]
    """For things side by side; their lightness differs, and shapes go with them."""
    ramp: tuple[str, ...]
    """From none to much."""
    low_ink: str
    """Text on the low end of the ramp, and on its high end."""
    high_ink: str

    def config(self) -> dict[str, Any]:
        """What Vega-Lite calls a config."""
        text = {"labelColor": self.ink, "titleColor": self.ink, "labelFontSize": 12}
        return {
            "background": self.paper,
            "font": _FONT,
            "padding": 16,
            "view": {"stroke": None},
            "title": {
                "anchor": "start",
                "color": self.ink,
                "fontSize": 16,
                "fontWeight": 600,
                "subtitleColor": self.muted,
                "subtitleFontSize": 12,
                "subtitlePadding": 4,
                "offset": 14,
            },
            "axis": {
                **text,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "titleColor": self.muted,
                "domainColor": self.muted,
                "tickColor": self.muted,
                "gridColor": self.grid,
                "labelLimit": 320,
            },
            "legend": {
                **text,
                "titleFontSize": 12,
                "orient": "top",
                "titleFontWeight": "normal",
                "labelLimit": 320,
                "symbolSize": 90,
            },
            "header": {"labelColor": self.ink, "labelFontSize": 13, "labelFontWeight": 600},
        }


_LIGHT = Theme(
    name="light",
    paper="#ffffff",
    ink="#1b1f24",
    muted="#57606a",
    grid="#e4e7eb",
    series=("#0f6e6e", "#c8621f", "#3f74b5", "#7a4ea3", "#8a6d00", "#b03060"),
    ramp=("#f4f9f9", "#b4dbd8", "#68b0ab", "#1f7f7b", "#0a4547"),
    low_ink="#1b1f24",
    high_ink="#ffffff",
)
_DARK = Theme(
    name="dark",
    paper="#14181b",
    ink="#e6eaec",
    muted="#a4acb6",
    grid="#2c323a",
    series=("#5cc8c0", "#f2a65a", "#7fb2f0", "#c39bea", "#e0c85a", "#f08fb0"),
    ramp=("#1a2226", "#1f4d4d", "#2f8380", "#66c0b9", "#cdf0ec"),
    low_ink="#e8eaed",
    high_ink="#10141a",
)


def find_theme(name: ThemeName) -> Theme:
    """The theme of a name."""
    return _DARK if name == "dark" else _LIGHT


def check_libraries() -> None:
    """Fail early, and say what to install, where a library is missing."""
    missing = [name for module, name in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise MissingError(
            f'Plots need {" and ".join(missing)}: pip install "r2med[plots]".\n'
            "`r2med leaderboard`, `compare` and `diagnose` show the same figures without it."
        )


def check_possible(path: Path) -> None:
    """Fail early where a library is missing, or the file could not be written as a picture."""
    check_libraries()
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {path}: expected a file that ends in .svg, .pdf or .png.")


def save(chart: Any, path: Path, theme: Theme) -> None:
    """Draw a chart under a theme and write it whole."""
    import vl_convert

    ending = path.suffix.lower()
    if ending == ".svg":
        content = svg_of(chart, theme).encode()
    elif ending == ".pdf":
        content = vl_convert.vegalite_to_pdf(_specification(chart, theme))
    else:
        content = vl_convert.vegalite_to_png(_specification(chart, theme), scale=_SCALE)
    with atomic_file(path) as draft:
        draft.write_bytes(content)


def svg_of(chart: Any, theme: Theme) -> str:
    """A chart as the text of an SVG file."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(_specification(chart, theme)))


def _specification(chart: Any, theme: Theme) -> str:
    import altair as alt

    with alt.data_transformers.disable_max_rows():
        drawn = chart.to_dict()
    return json.dumps({**drawn, "config": theme.config()})
