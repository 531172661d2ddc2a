"""The head of a text of unknown origin, on one line, safe for a terminal."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size

from r2med.report.expansion_view import plain


def snippet(text: str, width: int) -> str:
    """As many whole words as fit `width` cells; control characters are made visible."""
    flat = plain(" ".join(text.split()))
    if cell_len(flat) <= width:
        return flat
    cut = set_cell_size(flat, width - 2).rstrip()
    whole = cut.rpartition(" ")[0] if " " in cut and not flat.startswith(cut + " ") else cut
    return whole + " …"
