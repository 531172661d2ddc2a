"""Versions of installed packages.

Versions are read from the names of metadata folders, because importing `importlib.metadata` and
parsing the metadata takes longer than most searches.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_METADATA_FOLDER = re.compile(r"(?P<name>[^-]+)-(?P<version>[^-]+)\.dist-info")


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the version of each distribution; the first one on `sys.path` counts."""
    names = list(names)
    versions: dict[str, str] = {}
    for folder in sys.path:
        if len(versions) == len(names):
            break
        with suppress(OSError):
            for entry in Path(folder or ".").iterdir():
                match = _METADATA_FOLDER.fullmatch(entry.name)
                if match and match["name"] in names:
                    versions.setdefault(match["name"], match["version"])
    for name in names:
        if name not in versions:
            from importlib.metadata import version

            versions[name] = version(name)
    return {name: versions[name] for name in names}
