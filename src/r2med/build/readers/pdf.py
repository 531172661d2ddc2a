"""PDF files: the text of their pages, without running heads and hyphens at line ends.

Pages are extracted in another process, so that a hostile file can only use up that process's limits
on time and memory.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from r2med.build.readers.extracted import Extracted, UnreadableFileError
from r2med.build.readers.plain import read_text
from r2med.errors import need

#: A line is a running head if it is the first or last of at least this share of the pages.
_HEAD_SHARE = 0.5
_FEWEST_PAGES = 4
_MEGABYTES = 4_096
_HYPHEN = re.compile(r"(?<=[a-z])[-\u00ad]\n(?=[a-z])")
_SURROGATES = re.compile("[\ud800-\udfff]")


def read_pdf(path: Path, *, seconds: int) -> Extracted:
    """Return the text of a file with the offset of every page.

    Raises:
        UnreadableFileError: The file is damaged or encrypted, has no text, or takes too long.
    """
    need("pypdf", extra="build")
    command = [sys.executable, "-P", "-m", "r2med.build.readers.pdf_pages"]
    try:
        done = subprocess.run(
            [*command, str(path), str(seconds), str(_MEGABYTES)],
            capture_output=True,
            timeout=seconds + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnreadableFileError(f"reading it took longer than {seconds} seconds") from None
    if done.returncode != 0:
        raise UnreadableFileError(f"reading it took too much time (over {seconds} s) or memory")
    answer = json.loads(done.stdout)
    if "problem" in answer:
        raise UnreadableFileError(answer["problem"])
    return _join_pages(answer["pages"], answer["damaged"])


def _join_pages(pages: Sequence[str], damaged: int) -> Extracted:
    cleaned = [_SURROGATES.sub("\ufffd", page).replace("\x00", "") for page in pages]
    bodies = _remove_running_heads(cleaned)
    empty = sum(not page.strip() for page in cleaned)
    if empty == len(bodies):
        raise UnreadableFileError(
            f"no text on {len(bodies)} pages (scanned?); recognise its text first"
        )
    parts, starts, length = [], [], 0
    for body in bodies:
        starts.append(length)
        if body.strip():
            parts.append(_HYPHEN.sub("", body.strip()) + "\n")
            length += len(parts[-1])
    notices = [f"{empty} of {len(bodies)} pages have no text (scanned?)"] if empty else []
    notices += [f"{damaged} pages are damaged"] if damaged else []
    return replace(read_text("".join(parts)), page_starts=tuple(starts), notices=tuple(notices))


def _remove_running_heads(pages: Sequence[str]) -> list[str]:
    """Remove first and last lines that most pages share; numbers in them may differ."""
    lines = [page.strip().splitlines() for page in pages]
    written = [page for page in lines if page]
    if len(written) < _FEWEST_PAGES:
        return list(pages)
    heads = Counter(_line_form(page[0]) for page in written)
    feet = Counter(_line_form(page[-1]) for page in written)
    least = _HEAD_SHARE * len(written)
    bodies = []
    for page in lines:
        if page and heads[_line_form(page[0])] > least:
            page = page[1:]
        if page and feet[_line_form(page[-1])] > least:
            page = page[:-1]
        bodies.append("\n".join(page))
    return bodies


def _line_form(line: str) -> str:
    return re.sub(r"\d+", "0", line.strip().lower())
