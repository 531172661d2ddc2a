"""Place the names of points in a scatter so that none covers another name or a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

#: Pixels of a character and of a line at the size of the labels.
_CHARACTER, _LINE = 6.2, 13.0
#: Half the width of a point.
_POINT = 5.0
#: Half the width of a line.
_LINE_HALF = 1.0
#: The longest name that is drawn, in pixels.
_LONGEST = 240.0

Align = Literal["left", "right", "center"]
Box = tuple[float, float, float, float]
"""Left, top, right and bottom."""


@dataclass(frozen=True)
class Label:
    """The place of a name, relative to its point."""

    align: Align
    dx: float
    dy: float


#: Positions in the order in which they are tried; the first group is above the line of the best.
_ABOVE = (Label("right", -8, -8), Label("center", 0, -14), Label("right", -8, -21))
_BELOW = (
    Label("left", 9, 12),
    Label("right", -9, 12),
    Label("center", 0, 16),
    Label("left", 9, 25),
    Label("right", -9, 25),
    Label("left", 9, 38),
    Label("left", 9, -4),
)


def place_labels(
    positions: Sequence[tuple[float, float]],
    indices: Sequence[int],
    texts: Sequence[str],
    *,
    above: int,
    obstacles: Sequence[Box] = (),
) -> list[Label | None]:
    """Return the place of each name; None if every place would cover a point or another name.

    Args:
        positions: All points, in pixels from the upper left corner.
        indices: The points that get a name.
        texts: The names, in the order of `indices`.
        above: How many of `indices`, from the first, are on the line of the best; their names are
            above it.
        obstacles: Other areas that no name may cover.
    """
    covered = [(x - _POINT, y - _POINT, x + _POINT, y + _POINT) for x, y in positions]
    covered += obstacles
    labels: list[Label | None] = []
    for order, (index, text) in enumerate(zip(indices, texts, strict=True)):
        candidates = _ABOVE if order < above else _BELOW
        chosen = None
        for label in candidates:
            label_box = box_of(positions[index], label, text)
            boxes = [box for box_index, box in enumerate(covered) if box_index != index]
            if not any(overlap(label_box, box) for box in boxes):
                chosen = label
                covered.append(label_box)
                break
        labels.append(chosen)
    return labels


def line_boxes(corners: Sequence[tuple[float, float]]) -> list[Box]:
    """Return the area of a line that goes right from each corner and then up to the next one."""
    boxes = []
    for (x, y), (next_x, next_y) in pairwise(corners):
        boxes.append((x, y - _LINE_HALF, next_x, y + _LINE_HALF))
        boxes.append((next_x - _LINE_HALF, next_y, next_x + _LINE_HALF, y))
    return boxes


def box_of(position: tuple[float, float], label: Label, text: str) -> Box:
    """Return the area that a label of a point covers."""
    x, y = position[0] + label.dx, position[1] + label.dy
    width = min(_LONGEST, _CHARACTER * len(text))
    left = {"left": x, "right": x - width, "center": x - width / 2}[label.align]
    return left, y - _LINE / 2, left + width, y + _LINE / 2


def overlap(first: Box, second: Box) -> bool:
    """Whether two areas have points in common."""
    return (
        first[0] < second[2]
        and second[0] < first[2]
        and first[1] < second[3]
        and second[1] < first[3]
    )
