"""Serve the application from this machine, and open a browser on it."""

from __future__ import annotations

import socket
import threading
import webbrowser

from starlette.applications import Starlette
from uvicorn import Config, Server

from r2med.errors import UsageError

PORT = 8642
_TRIED = 20


def bound_socket(host: str, port: int | None) -> socket.socket:
    """A listening socket; without a port, the first free one from the usual one on."""
    last = ""
    for candidate in [port] if port is not None else [*range(PORT, PORT + _TRIED), 0]:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as problem:
            listener.close()
            last = problem.strerror or str(problem)
        else:
            return listener
    raise UsageError(f"--host {host} --port {port}: {last}. Choose another with --port.")


def serve(app: Starlette, listener: socket.socket) -> None:
    """Answer requests until interrupted; those that come earlier wait at the listening socket."""
    config = Config(app, log_level="error", access_log=False, lifespan="on", server_header=False)
    try:
        Server(config).run(sockets=[listener])
    finally:
        listener.close()


def open_browser(url: str) -> None:
    """Open the page in the user's browser, without waiting for it."""
    threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
