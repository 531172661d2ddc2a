"""System names in narrow columns: broken between their parts, not in the middle of a word."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.text import Text

_PART = re.compile(r"[^\s,|+=\[\]:/]*[\s,|+=\[\]:/]*")


@dataclass(frozen=True)
class SystemName:
    """A name such as `hyde:gpt4[n=4,combine=fuse] | bm25`, fitted to the width there is."""

    text: str

    def lines(self, width: int) -> list[str]:
        """The name in lines of at most `width`; only a part that is longer is cut itself."""
        lines = [""]
        for part in _PART.findall(self.text):
            if len(lines[-1] + part.rstrip()) > width and lines[-1]:
                lines.append("")
            lines[-1] += part
            while len(lines[-1].rstrip()) > width:
                lines[-1:] = [lines[-1][:width], lines[-1][width:]]
        return [line.rstrip() for line in lines]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("\n".join(self.lines(options.max_width)))

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        longest = max(len(part.rstrip()) for part in _PART.findall(self.text))
        return Measurement(min(longest, options.max_width), min(len(self.text), options.max_width))
