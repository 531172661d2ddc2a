"""One look for all plots, on light and dark paper, and how a chart becomes a file.

SVG is for pages, PNG at twice the size for slides; nothing is fetched from the network.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

ThemeName = Literal["light", "dark"]
ENDINGS = (".svg", ".pdf", ".png")
LIBRARIES = ("altair", "vl_convert")
_SCALE = 2.0
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DEMO = "demo suite: not comparable with published figures"


@dataclass(frozen=True)
class Theme:
    """Colours by purpose."""

    paper: str
    ink: str
    muted: str
    grid: str
    series: Sequence[str]
    """For things side by side; their lightness differs, and shapes go with them."""
    ramp: Sequence[str]
    """From none to much."""
    low_ink: str
    """Text on the low end of the ramp, and on its high end."""
    high_ink: str

    config: Mapping[str, Any]
    """What Vega-Lite calls a config, with the colours of this theme."""


def find_theme(name: ThemeName) -> Theme:
    """The theme of a name; in the config of all themes a colour is there by its name."""
    look = json.loads((files(__package__) / "look.json").read_text("utf-8"))
    config = json.dumps(look["config"])
    for colour, value in look[name].items():
        config = config.replace(f'"@{colour}"', json.dumps(value))
    return Theme(**look[name], config=json.loads(config))


def encode_marks(
    field: str, titles: Sequence[str], theme: Theme, values: Sequence[str]
) -> list[Any]:
    """Colour and shape by a field, with a legend if there are several values."""
    import altair as alt

    legend = alt.Legend(title=None, values=[*values], symbolOpacity=1) if len(values) > 1 else None
    return [
        mark(
            f"{field}:N",
            scale=alt.Scale(
                domain=[*titles], range=[kinds[n % len(kinds)] for n in range(len(titles))]
            ),
            legend=legend,
        )
        for mark, kinds in ((alt.Color, theme.series), (alt.Shape, _SHAPES))
    ]


def picture(chart: Any, theme: Theme, ending: str = ".svg") -> bytes:
    """A chart under a theme, as the content of a file that ends so."""
    import altair as alt
    import vl_convert

    with alt.data_transformers.disable_max_rows():
        drawn = json.dumps({**chart.to_dict(), "config": theme.config})
    if ending == ".svg":
        return str(vl_convert.vegalite_to_svg(drawn)).encode()
    if ending == ".pdf":
        return bytes(vl_convert.vegalite_to_pdf(drawn))
    return bytes(vl_convert.vegalite_to_png(drawn, scale=_SCALE))
