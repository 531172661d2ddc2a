"""A chart becomes a file: SVG for pages, PNG at twice the size for slides; nothing is fetched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from r2med.atomic import atomic_file
from r2med.errors import UsageError
from r2med.report.plots.theme import Theme

ENDINGS = (".svg", ".png")
_SCALE = 2.0


def check_ending(path: Path) -> None:
    """Fail early on a file that could not be written."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--out {path}: expected a file that ends in .svg or .png.")


def save(chart: Any, path: Path, theme: Theme) -> None:
    """Draw a chart under a theme and write it whole."""
    with alt.data_transformers.disable_max_rows():
        drawn = chart.to_dict()
    spec = json.dumps({**drawn, "config": theme.config()})
    if path.suffix.lower() == ".svg":
        content = vl_convert.vegalite_to_svg(spec).encode()
    else:
        content = vl_convert.vegalite_to_png(spec, scale=_SCALE)
    with atomic_file(path) as draft:
        draft.write_bytes(content)
