"""The language models by name: data of this package, a user's own file, any name on a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from r2med.errors import DataError, UsageError, nearest
from r2med.paths import home_folder, user_path
from r2med.remote.budget import Price
from r2med.settings import parse_settings, read_packaged_toml, read_toml, setting

Stripping = Literal["none", "think", "final-response", "answer"]

#: A file of the user's own entries; without the variable, `llms.toml` in the home folder.
CONFIG = "R2MED_LLM_CONFIG"
_DEFAULTS = "defaults"
_PRICE_FIELDS = ("price_in", "price_out", "price_date", "price_source")
#: Parameters of a request that `extra` may not replace.
_RESERVED_PARAMETERS = {"messages", "prompt", "model", "stream", "temperature", "top_p", "seed"}


@dataclass(frozen=True)
class LLM:
    """A language model as its entry describes it; llms.toml documents each field."""

    model: str
    description: str = ""
    published_as: str | None = None
    url: str = ""
    key_env: str = ""
    server: Literal["url", "any"] = "url"
    """Whether answers belong to the server's address, or to the model's name on any server."""
    local: str = ""
    local_package: str = ""
    local_sha256: str = ""
    local_context: int = 0
    stripping: Stripping = "none"
    reasoning: bool = False
    temperature: float | None = setting(default=None, least=0)
    top_p: float | None = setting(default=None, least=0)
    seed: int | None = None
    max_tokens: int | None = setting(default=None, least=1)
    max_tokens_as: str = "max_tokens"
    output_limit: int | None = setting(default=None, least=1)
    expected_tokens: int = setting(default=400, least=1)
    price_in: float | None = setting(default=None, least=0)
    price_out: float | None = setting(default=None, least=0)
    price_date: str = ""
    price_source: str = ""
    name: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)

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
        }
        return {key: value for key, value in sent.items() if value is not None} | dict(self.extra)

    def override(self, options: Mapping[str, str]) -> LLM:
        """The model with some fields replaced; an unknown option or value is a UsageError."""
        if "extra" in options:
            raise UsageError(
                f"{self.name}[extra=...]: extra is a table and cannot be an option. Set it for the "
                "model in llms.toml; see docs/llms.md."
            )
        chosen = parse_settings(LLM, {"model": self.model, **options}, name=self.name)
        return replace(self, **{key: getattr(chosen, key) for key in options})


def find_llm(name: str, *, anything: bool = False) -> LLM:
    """The entry of a name; with `anything`, an unknown one is a model of the user's own server.

    Such a model gets the parameters of the published local models, and its reasoning, if it
    marks any, is cut off.
    """
    tables, where = _tables()
    for spelling in (name, name.lower()):
        if spelling in tables and spelling != _DEFAULTS:
            return _entry(spelling, tables, where)
    if anything:
        return _entry(name, {**tables, name: {"stripping": "think"}}, where)
    raise UsageError(
        f"LLM {name!r} is not known. {nearest(name, llms())}\n"
        "Any other model runs on an OpenAI-compatible server: give its address with --llm-url or "
        "R2MED_LLM_URL; see docs/llms.md."
    )


def llms() -> Mapping[str, LLM]:
    """All known models: this package's, then those of the user's own file."""
    tables, where = _tables()
    return {name: _entry(name, tables, where) for name in tables if name != _DEFAULTS}


def _tables() -> tuple[Mapping[str, Any], str]:
    """The fields of every model, and the file that an error names."""
    named = os.environ.get(CONFIG)
    own = user_path(named) if named else home_folder() / "llms.toml"
    if not own.is_file():
        if named:
            raise UsageError(f"{CONFIG}={named}: there is no such file.")
        return read_packaged_toml("remote/llms.toml"), "llms.toml"
    tables = dict(read_packaged_toml("remote/llms.toml"))
    for name, table in read_toml(own).items():
        if not isinstance(table, dict):
            raise DataError(f"{own}: {name!r} stands outside a table such as [my-model].")
        entry = dict(tables.get(name, {}))
        if table.get("model", entry.get("model")) != entry.get("model"):
            for field_name in _PRICE_FIELDS:  # those of another model
                entry.pop(field_name, None)
        tables[name] = entry | table
    return tables, str(own)


def _entry(name: str, tables: Mapping[str, Any], where: str) -> LLM:
    values = tables[_DEFAULTS] | {"model": name} | tables[name]
    if values.keys() & {"key", "api_key", "token"}:
        raise UsageError(
            f"{where}, [{name}]: keys are not kept in files. Put it in an environment variable and "
            'name that one, as in key_env = "MY_KEY".'
        )
    entry_name = f"{where}, [{name}]"
    extra = _checked_extra(values.pop("extra", {}), entry_name)
    return replace(parse_settings(LLM, values, name=entry_name), name=name, extra=extra)


def _checked_extra(extra: object, entry_name: str) -> Mapping[str, object]:
    """Further parameters of every request: JSON values that replace nothing sent anyway."""
    if not isinstance(extra, dict):
        raise UsageError(
            f"{entry_name}: extra is {extra!r:.60}, expected a table of request parameters, as in "
            'extra = {reasoning_effort = "low"}.'
        )
    try:
        json.dumps(extra, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise UsageError(
            f"{entry_name}: extra cannot be sent as JSON ({problem}). Use texts, numbers, true, "
            "false, lists and tables."
        ) from None
    reserved = sorted(_RESERVED_PARAMETERS & extra.keys())
    if reserved:
        raise UsageError(
            f"{entry_name}: extra sets {reserved[0]!r}, which has a setting of its own or is part "
            "of every request. Remove it from extra."
        )
    return extra
