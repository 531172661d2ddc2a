"""Versions of installed packages.

They are read from the names of metadata folders, because importing `importlib.metadata` and parsing
the metadata takes longer than most searches.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_METADATA_FOLDER = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info")


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """The version of each named distribution; the first one on `sys.path` counts."""
    wanted = list(names)
    found: dict[str, str] = {}
    for folder in sys.path:
        if len(found) == len(wanted):
            break
        with suppress(OSError):
            for entry in Path(folder or ".").iterdir():
                match = _METADATA_FOLDER.fullmatch(entry.name)
                if match and match["name"] in wanted:
                    found.setdefault(match["name"], match["version"])
    for name in wanted:
        if name not in found:
            from importlib.metadata import version

            found[name] = version(name)
    return {name: found[name] for name in wanted}
