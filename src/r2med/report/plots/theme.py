"""One look for all plots, on light and on dark: few colours, told apart in grey print too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

ThemeName = Literal["light", "dark"]
THEMES: tuple[ThemeName, ...] = ("light", "dark")
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
