"""The documentation runs: every console and python block of the guides, each guide in a folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GUIDES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(guide: Path) -> list[tuple[str, str]]:
    return [(found[1], found[2]) for found in _BLOCK.finditer(guide.read_text(encoding="utf-8"))]


def commands(block: str) -> str:
    """The lines after a prompt, with their continuations, as a shell script."""
    lines = block.splitlines()
    kept: list[str] = []
    for line in lines:
        if line.startswith("$ "):
            kept.append(line[2:])
        elif kept and kept[-1].endswith("\\"):
            kept.append(line)
    return "\n".join(kept)


@pytest.mark.parametrize("guide", [g for g in GUIDES if blocks(g)], ids=lambda guide: guide.name)
def test_every_block_of_a_guide_runs(guide: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    for language, block in blocks(guide):
        python = [sys.executable, "-c", block]
        shell = ["bash", "-euo", "pipefail", "-c", commands(block)]
        done = subprocess.run(
            python if language == "python" else shell,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )

        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.name)
def test_every_link_to_a_file_leads_somewhere(guide: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", guide.read_text(encoding="utf-8"))

    missing = [link for link in links if not (guide.parent / link).exists()]

    assert not missing
