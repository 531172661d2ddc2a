"""The language models by name: data of this package, a user's own file, any name on a server."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from r2med.errors import DataError, UsageError, nearest
from r2med.home import home, user_path
from r2med.remote.budget import Price

Stripping = Literal["none", "think", "final-response", "answer"]

#: A file of the user's own entries; without the variable, `llms.toml` in the home folder.
CONFIG = "R2MED_LLM_CONFIG"


@dataclass(frozen=True)
class LLM:
    """A language model as its entry describes it; llms.toml documents each field."""

    name: str
    model: str
    description: str = ""
    published_as: str | None = None
    url: str = ""
    key_env: str = ""
    local: str = ""
    local_package: str = ""
    local_sha256: str = ""
    local_context: int = 0
    stripping: Stripping = "none"
    reasoning: bool = False
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    max_tokens: int | None = None
    max_tokens_as: str = "max_tokens"
    reasoning_effort: str | None = None
    extra: Mapping[str, object] = field(default_factory=dict)
    output_limit: int | None = None
    expected_tokens: int = 400
    price_in: float | None = None
    price_out: float | None = None
    price_date: str = ""
    price_source: str = ""
    known: bool = True
    """False for a name that is in no registry and is taken as the server's own."""

    @property
    def price(self) -> Price | None:
        """What tokens cost, where both sides are known."""
        if self.price_in is None or self.price_out is None:
            return None
        return Price(self.price_in, self.price_out)

    def parameters(self) -> dict[str, object]:
        """What is sent with every request besides the conversation."""
        sent: dict[str, object | None] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            self.max_tokens_as: self.max_tokens,
            "reasoning_effort": self.reasoning_effort,
        }
        return {key: value for key, value in sent.items() if value is not None} | dict(self.extra)

    def overridden(self, options: Mapping[str, str]) -> LLM:
        """The model with some fields replaced; an unknown option or value is a UsageError."""
        changes = {}
        for key, text in options.items():
            if key not in OPTIONS:
                raise UsageError(
                    f"{self.name}: a model has no option {key!r}. {nearest(key, OPTIONS)}"
                )
            changes[key] = _typed(key, text, f"{self.name}[{key}={text}]")
        return replace(self, **cast("dict[str, Any]", changes))


#: What may be set by text, and how it is read; "none" unsets.
OPTIONS: Mapping[str, type] = {
    "model": str,
    "key_env": str,
    "stripping": str,
    "reasoning": bool,
    "temperature": float,
    "top_p": float,
    "seed": int,
    "max_tokens": int,
    "max_tokens_as": str,
    "reasoning_effort": str,
    "output_limit": int,
    "expected_tokens": int,
    "price_in": float,
    "price_out": float,
}


def find_llm(name: str, *, anything: bool = False) -> LLM:
    """The entry of a name; with `anything`, an unknown one is a model of the user's own server.

    Such a model gets the parameters of the published local models, and its reasoning, if it
    marks any, is cut off.
    """
    found = llms()
    entry = found.get(name) or found.get(name.lower())
    if entry is not None:
        return entry
    if anything:
        defaults = _read(files("r2med.remote") / "llms.toml").pop("defaults")
        return _entry(name, defaults | {"model": name, "stripping": "think"}, "llms.toml", False)
    raise UsageError(
        f"LLM {name!r} is not known. {nearest(name, found)}\n"
        "Any other model runs on an OpenAI-compatible server: give its address with --llm-url or "
        "R2MED_LLM_URL; see docs/llms.md."
    )


def llms() -> Mapping[str, LLM]:
    """All known models: this package's, then those of the user's own file."""
    own = _own_file()
    if own is None:
        return _packaged()
    tables = dict(_packaged_tables())
    defaults = tables.pop("defaults")
    for name, table in _read(own).items():
        if not isinstance(table, dict):
            raise DataError(f"{own}: {name!r} stands outside a table such as [my-model].")
        tables[name] = tables.get(name, {"model": name}) | table
    return MappingProxyType({n: _entry(n, defaults | t, str(own)) for n, t in tables.items()})


@cache
def _packaged() -> Mapping[str, LLM]:
    tables = dict(_packaged_tables())
    defaults = tables.pop("defaults")
    found = {name: _entry(name, defaults | table, "llms.toml") for name, table in tables.items()}
    return MappingProxyType(found)


def _packaged_tables() -> dict[str, Any]:
    return _read(files("r2med.remote") / "llms.toml")


def _own_file() -> Path | None:
    named = os.environ.get(CONFIG)
    path = user_path(named) if named else home() / "llms.toml"
    if path.is_file():
        return path
    if named:
        raise UsageError(f"{CONFIG}={named}: there is no such file.")
    return None


def _read(file: Any) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as problem:
        raise DataError(f"{file}: this is not TOML ({problem}).") from None


def _entry(name: str, table: Mapping[str, Any], where: str, known: bool = True) -> LLM:
    allowed = {entry.name: entry for entry in fields(LLM)} | {"defaults": None}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key in ("key", "api_key", "token"):
            raise UsageError(
                f"{where}, [{name}]: keys are not kept in files. Put it in an environment variable "
                'and name that one, as in key_env = "MY_KEY".'
            )
        if key not in allowed or key in ("name", "known"):
            raise UsageError(f"{where}, [{name}]: {key!r} is not known. {nearest(key, allowed)}")
        values[key] = None if value == "" and key in _UNSET else _checked(key, value, where, name)
    return LLM(name=name, known=known, **values)


_COUNTS = ("max_tokens", "output_limit", "expected_tokens")
_UNSET = ("temperature", "top_p", "seed", "max_tokens", "reasoning_effort")


def _checked(key: str, value: object, where: str, name: str) -> object:
    wanted = OPTIONS.get(key)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if wanted is not None and (not isinstance(value, wanted) or _is_wrong(key, value)):
        raise UsageError(f"{where}, [{name}]: {key} = {value!r}, expected {_expected(key)}.")
    return value


def _typed(key: str, text: str, where: str) -> object:
    wanted = OPTIONS[key]
    if text.lower() == "none" and key in (*_UNSET, "price_in", "price_out"):
        return None
    try:
        value = {"true": True, "false": False}[text.lower()] if wanted is bool else wanted(text)
    except (KeyError, ValueError):
        raise UsageError(f"{where}: expected {_expected(key)}.") from None
    if _is_wrong(key, value):
        raise UsageError(f"{where}: expected {_expected(key)}.")
    return cast("object", value)


def _is_wrong(key: str, value: object) -> bool:
    if key == "stripping":
        return value not in get_args(Stripping)
    if key in _COUNTS:
        return isinstance(value, int) and value < 1
    return isinstance(value, float) and not 0 <= value < float("inf")


def _expected(key: str) -> str:
    if key == "stripping":
        return " or ".join(get_args(Stripping))
    if key in _COUNTS:
        return "a whole number from 1"
    return {bool: "true or false", float: "a number from 0", int: "a whole number"}.get(
        OPTIONS[key], "text"
    )
