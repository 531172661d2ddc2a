"""One look for all plots, on light and dark paper, and how a chart becomes a file.

SVG is for pages, PNG at twice the size for slides; nothing is fetched from the network.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
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


@dataclass(frozen=True)
class Theme:
    """Colours by what they are for."""

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

    def config(self) -> dict[str, Any]:
        """What Vega-Lite calls a config; a colour is there by its name."""

        def coloured(value: Any) -> Any:
            if isinstance(value, dict):
                return {name: coloured(each) for name, each in value.items()}
            is_colour = isinstance(value, str) and value.startswith("@")
            return getattr(self, value[1:]) if is_colour else value

        config: dict[str, Any] = coloured(_look()["config"])
        return config


def find_theme(name: ThemeName) -> Theme:
    """The theme of a name."""
    return Theme(**_look()[name])


def _look() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((files(__package__) / "look.json").read_text("utf-8"))
    return read


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
