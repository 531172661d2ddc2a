"""Offline mode: `--offline` or `R2MED_OFFLINE=1` refuses every connection that leaves this machine.

An audit hook of the interpreter sees each connection, name lookup and datagram of Python code,
whichever library makes it, and cannot be removed. Worker processes inherit the environment variable
and install the hook when they import `r2med`. Libraries that connect from compiled code (Ray,
Milvus, Weights & Biases) are checked with `check_address` before they are called.
"""

from __future__ import annotations

import os
import sys
from typing import Any
from urllib.parse import urlsplit

from r2med.errors import OfflineError

VARIABLE = "R2MED_OFFLINE"
#: Switches of libraries that would otherwise try the network first and wait for a timeout.
#: wandb connects from a separate process, which the hook does not see.
_LIBRARY_SWITCHES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
}
_EVENTS = ("socket.connect", "socket.sendto", "socket.sendmsg")
_LOOKUPS = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr")
_installed = False


def is_offline() -> bool:
    """Return whether offline mode is on."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("", "0", "false", "no")


def go_offline() -> None:
    """Switch offline mode on for this process and for the processes that it starts."""
    os.environ[VARIABLE] = "1"
    apply_environment()


def apply_environment() -> None:
    """Switch offline mode on if `R2MED_OFFLINE` is set; `import r2med` calls this."""
    global _installed
    if not is_offline():
        return
    os.environ.update(_LIBRARY_SWITCHES)
    if not _installed:
        _installed = True
        sys.addaudithook(_refuse_connections)


def check_address(address: str) -> None:
    """In offline mode, raise OfflineError for an address outside this machine.

    Paths and local names are accepted.
    """
    if not is_offline() or not address:
        return
    host = urlsplit(address if "//" in address else f"//{address}").hostname or ""
    if not _is_loopback(host):
        raise OfflineError(_message(address))


def _refuse_connections(event: str, arguments: tuple[Any, ...]) -> None:
    if not event.startswith("socket.") or not is_offline():
        return
    if event in _LOOKUPS:
        host = arguments[0]
    elif event in _EVENTS:
        address = arguments[1] if len(arguments) > 1 else None
        if not isinstance(address, tuple):  # a Unix socket, or one that is connected already
            return
        host = address[0]
    else:
        return
    name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if name and not _is_loopback(str(name)):
        raise OfflineError(_message(str(name)))


def _is_loopback(host: str) -> bool:
    import ipaddress  # only offline mode needs it

    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _message(host: str) -> str:
    return (
        f"offline: the connection to {host} was refused.\n"
        f"Leave out --offline or unset {VARIABLE} to allow it; docs/privacy.md lists which "
        "commands connect to the network."
    )
