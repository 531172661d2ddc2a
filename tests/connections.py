"""A log of all connections that leave the machine, kept independently of offline mode."""

from __future__ import annotations

import os
from pathlib import Path

_WATCH = """
import sys

def watch(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:
        return
    if host and str(host) != "localhost" and not str(host).startswith(("127.", "::1")):
        with open({log!r}, "a") as log:
            print(host, file=log)

sys.addaudithook(watch)
"""


def watch_connections(folder: Path) -> dict[str, str]:
    """Environment variables that make Python processes log connections and name lookups.

    `read_connections` of the same folder returns the log.
    """
    watching = folder / "watching"
    watching.mkdir(exist_ok=True)
    program = _WATCH.format(log=str(_log(folder)))
    (watching / "sitecustomize.py").write_text(program, encoding="utf-8")
    paths = [str(watching), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)}


def read_connections(folder: Path) -> list[str]:
    """The hosts outside this machine that processes looked up or tried to reach."""
    log = _log(folder)
    return log.read_text(encoding="utf-8").split() if log.exists() else []


def _log(folder: Path) -> Path:
    return folder / "connections.log"
