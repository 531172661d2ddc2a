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
ENDINGS = (".svg", ".png")
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
    series=("#1f5fa8", "#d9722a", "#2a9d76", "#7a4ea3", "#8a6d00", "#b03060"),
    ramp=("#f4f7fb", "#b9d2ec", "#6ea3d6", "#2f6fb2", "#123a6b"),
    low_ink="#1b1f24",
    high_ink="#ffffff",
)
_DARK = Theme(
    name="dark",
    paper="#14171c",
    ink="#e8eaed",
    muted="#a4acb6",
    grid="#2c323a",
    series=("#7fb2f0", "#f2a65a", "#5cc9a7", "#c39bea", "#e0c85a", "#f08fb0"),
    ramp=("#1c222b", "#274a73", "#3d78b8", "#75aee8", "#cfe4fb"),
    low_ink="#e8eaed",
    high_ink="#10141a",
)


def find_theme(name: ThemeName) -> Theme:
    """The theme of a name."""
    return _DARK if name == "dark" else _LIGHT


def check_possible(path: Path) -> None:
    """Fail early where a library is missing, or the file could not be written as a picture."""
    missing = [name for module, name in _LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise MissingError(
            f'Plots need {" and ".join(missing)}: pip install "r2med[plots]".\n'
            "`r2med leaderboard`, `compare` and `diagnose` show the same figures without it."
        )
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {path}: expected a file that ends in .svg or .png.")


def save(chart: Any, path: Path, theme: Theme) -> None:
    """Draw a chart under a theme and write it whole."""
    import altair as alt
    import vl_convert

    with alt.data_transformers.disable_max_rows():
        drawn = chart.to_dict()
    spec = json.dumps({**drawn, "config": theme.config()})
    if path.suffix.lower() == ".svg":
        content = vl_convert.vegalite_to_svg(spec).encode()
    else:
        content = vl_convert.vegalite_to_png(spec, scale=_SCALE)
    with atomic_file(path) as draft:
        draft.write_bytes(content)
