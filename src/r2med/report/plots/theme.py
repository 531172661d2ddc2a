"""One look for all plots, on light and dark paper, and how a chart becomes a file.

SVG is for pages, PNG at twice the size for slides; nothing is fetched from the network.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

ThemeName = Literal["light", "dark"]
ENDINGS = (".svg", ".pdf", ".png")
LIBRARIES = ("altair", "vl_convert")
_SCALE = 2.0
#: The width of one column of a two-column paper: 3.33 inches, in points.
COLUMN_WIDTH = 240.0
#: The width of both columns, for figures whose text would be too small in one.
PAGE_WIDTH = 504.0
_SMALLEST_SCALE = 0.7
#: The narrowest plotted area that can still be read.
_NARROWEST = 90.0
_SVG_SIZE = re.compile(r'width="(?P<width>[0-9.]+)" height="(?P<height>[0-9.]+)"')
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DEMO = "demo suite: not comparable with published figures"


@dataclass(frozen=True)
class Theme:
    """The colours of plots, by purpose."""

    paper: str
    ink: str
    muted: str
    grid: str
    series: Sequence[str]
    """Colours of series side by side; they also differ in lightness, and in the shapes of marks."""
    loss: str
    """A warm colour, used only for losses."""
    ramp: Sequence[str]
    """The colours of a scale from none to much."""
    low_ink: str
    """The colour of text on the low end of `ramp`; `high_ink` is for the high end."""
    high_ink: str

    config: Mapping[str, Any]
    """The Vega-Lite config with the colours of this theme."""


def find_theme(name: ThemeName) -> Theme:
    """Return a theme; colour names in the shared config are replaced by the theme's colours."""
    look = json.loads((files(__package__) / "look.json").read_text("utf-8"))
    config = json.dumps(look["config"])
    for colour, value in look[name].items():
        config = config.replace(f'"@{colour}"', json.dumps(value))
    return Theme(**look[name], config=json.loads(config))


def encode_marks(
    field: str, titles: Sequence[str], theme: Theme, values: Sequence[str]
) -> list[Any]:
    """Return colour and shape by a field, with a legend if the field has several values."""
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


def encode_origin(theme: Theme, origins: Sequence[str], values: Sequence[str]) -> list[Any]:
    """Return fill, outline and shape by origin; only the last of `origins` is filled."""
    import altair as alt

    legend = alt.Legend(title=None, values=[*values], symbolOpacity=1) if len(values) > 1 else None
    hollow = len(origins) - 1
    ranges = {
        alt.Fill: [theme.paper] * hollow + [theme.series[0]],
        alt.Stroke: [theme.muted] * hollow + [theme.series[0]],
        alt.Shape: [*("circle", "diamond", "square")[:hollow], "circle"],
    }
    return [
        mark("origin:N", scale=alt.Scale(domain=[*origins], range=looks), legend=legend)
        for mark, looks in ranges.items()
    ]


def picture(chart: Any, theme: Theme, ending: str = ".svg", *, for_paper: bool = False) -> bytes:
    """Return a chart under a theme as the content of a file with this ending.

    Args:
        chart: An Altair chart.
        theme: Its colours.
        ending: One of `ENDINGS`.
        for_paper: Leave the title out and fit the chart into one column of a paper.
    """
    import altair as alt
    import vl_convert

    with alt.data_transformers.disable_max_rows():
        spec = {**chart.to_dict(), "config": theme.config}
    scale = 1.0
    if for_paper:
        spec.pop("title", None)
        spec, scale = _fit_column(spec)
    drawn = json.dumps(spec)
    if ending == ".svg":
        svg = str(vl_convert.vegalite_to_svg(drawn))
        return (_scale_svg(svg, scale) if scale != 1 else svg).encode()
    if ending == ".pdf":
        return bytes(vl_convert.vegalite_to_pdf(drawn, scale=scale))
    return bytes(vl_convert.vegalite_to_png(drawn, scale=_SCALE * scale))


def caption_of(chart: Any) -> str:
    """Return the title and subtitle of a chart as the caption of a figure in a paper."""
    title = chart.to_dict().get("title") or {}
    lines = [title] if isinstance(title, str) else [title.get("text"), *title.get("subtitle", ())]
    return ". ".join(str(line).rstrip(".") for line in lines if line)


def _fit_column(spec: dict[str, Any]) -> tuple[dict[str, Any], float]:
    """Narrow the plotted area to fit a column of a paper; return the chart and the remaining scale.

    A chart whose text would be too small in one column gets the width of the page.
    """
    width = _svg_width(spec)
    inner = spec.get("width")
    if isinstance(inner, int | float) and width > COLUMN_WIDTH:
        spec = {**spec, "width": max(_NARROWEST, inner - (width - COLUMN_WIDTH))}
        width = _svg_width(spec)
    target = COLUMN_WIDTH if _SMALLEST_SCALE * width <= COLUMN_WIDTH else PAGE_WIDTH
    return spec, min(1.0, target / width)


def _svg_width(spec: dict[str, Any]) -> float:
    import vl_convert

    svg = str(vl_convert.vegalite_to_svg(json.dumps(spec)))
    match = _SVG_SIZE.search(svg)
    return float(match["width"]) if match else COLUMN_WIDTH


def _scale_svg(svg: str, scale: float) -> str:
    """Change the printed size of an SVG; its contents are scaled by the view box."""

    def resize(match: re.Match[str]) -> str:
        width, height = (scale * float(match[name]) for name in ("width", "height"))
        return f'width="{width:.2f}" height="{height:.2f}"'

    return _SVG_SIZE.sub(resize, svg, count=1)
