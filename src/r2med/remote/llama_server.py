"""The local server's own process: llama.cpp over HTTP on loopback, for as long as its parent lives.

Run as a script by `server.py`; it imports nothing of this package, so that it starts quickly.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

_LOOK_EVERY = 1.0


def main() -> None:
    """Serve what the first argument describes, say where on stdout, and end with the parent."""
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stdout = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(settings["parent"],), daemon=True).start()
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    server = xllamacpp.Server(_parameters(xllamacpp.CommonParams(), settings))
    os.write(stdout, (json.dumps({"url": server.listening_address}) + "\n").encode())
    os.close(stdout)
    sys.stdin.buffer.read()
    os._exit(0)


def _parameters(params: Any, settings: dict[str, Any]) -> Any:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    params.model.path = settings["weights"]
    params.model_alias = {settings["model"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_parallel = settings["slots"]
    params.n_ctx = settings["context"] * settings["slots"]
    params.verbosity = -1
    params.ui = False
    params.warmup = False
    # One core stays free: a thread of llama.cpp that waits for a busy core holds up all the
    # others, which makes two threads on two busy cores ten times slower than one.
    threads = max(1, (cores or 2) - 1)
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    return params


def _end_with(parent: int) -> None:
    """End when the parent is gone, even if a copy of its end of the pipe lives on elsewhere."""
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(0)


if __name__ == "__main__":
    main()
