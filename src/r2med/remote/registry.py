"""The registry of language models: entries of this package, of plugins, and of the user's file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from r2med.errors import DataError, UsageError, nearest
from r2med.paths import home_folder, user_path
from r2med.plugins import REGISTRY_VARIABLE, RegistryEntry, load_plugins
from r2med.remote.budget import Price
from r2med.settings import parse_settings, read_packaged_toml, read_toml, setting

Stripping = Literal["none", "think", "final-response", "answer"]

#: Variable with the path of the user's entries; if unset, `llms.toml` in the home folder.
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
    """Cached answers are valid for one server address (`url`), or for any server (`any`)."""
    active_parameters: float | None = setting(default=None, least=0)
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
        """The price of tokens; None unless the prices of both prompt and completion are known."""
        if self.price_in is None or self.price_out is None:
            return None
        return Price(self.price_in, self.price_out)

    def parameters(self) -> dict[str, object]:
        """Return the parameters that are sent with every request, besides the conversation."""
        parameters: dict[str, object | None] = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "seed": self.seed,
            self.max_tokens_as: self.max_tokens,
        }
        set_parameters = {key: value for key, value in parameters.items() if value is not None}
        return set_parameters | dict(self.extra)

    def override(self, options: Mapping[str, str]) -> LLM:
        """Return the model with some fields replaced; UsageError for a bad option or value."""
        if "extra" in options:
            raise UsageError(
                f"{self.name}[extra=...]: extra is a table and cannot be an option. Set it for the "
                "model in llms.toml; see docs/llms.md."
            )
        chosen = parse_settings(LLM, {"model": self.model, **options}, name=self.name)
        return replace(self, **{key: getattr(chosen, key) for key in options})


def find_llm(name: str, *, allow_unknown: bool = False) -> LLM:
    """Return the entry of a model.

    With `allow_unknown`, an unknown name is a model on the user's server. It gets the default
    parameters, and reasoning between <think> tags is removed from its answers.
    """
    tables = _read_tables()
    for spelling in (name, name.lower()):
        if spelling in tables and spelling != _DEFAULTS:
            return _make_entry(spelling, tables)
    if allow_unknown:
        return _make_entry(name, {**tables, name: _LLMTable({"stripping": "think"}, name)})
    raise UsageError(
        f"LLM {name!r} is not known. {nearest(name, llms())}\n"
        "Any other model needs an OpenAI-compatible server: give its address with --llm-url or "
        "R2MED_LLM_URL; see docs/llms.md."
    )


def llms() -> Mapping[str, LLM]:
    """Return all registered models: those of this package, of plugins, and of the user's file."""
    tables = _read_tables()
    return {name: _make_entry(name, tables) for name in tables if name != _DEFAULTS}


@dataclass(frozen=True)
class _LLMTable:
    """The fields of a model, and where they are written, for error messages."""

    fields: Mapping[str, Any]
    where: str


def _read_tables() -> Mapping[str, _LLMTable]:
    """Return the fields of every model by name."""
    tables = {
        name: _LLMTable(fields, f"llms.toml, [{name}]")
        for name, fields in read_packaged_toml("remote/llms.toml").items()
    }
    for name, entry in load_plugins().llms.items():
        if name in tables:
            raise UsageError(
                f"{entry.where}: {name!r} is a model of r2med. Choose another name, or change its "
                "fields in llms.toml; see docs/llms.md."
            )
        _check_key_variable(entry)
        tables[name] = _LLMTable(entry.fields, entry.where)
    return _add_user_file(tables)


def _check_key_variable(entry: RegistryEntry) -> None:
    """Raise UsageError if an untrusted registry file uses a variable with a key.

    A file that is only found in the working folder may be a stranger's, and its server would get
    the key.
    """
    if "key_env" in entry.fields and not entry.may_run_code:
        raise UsageError(
            f"{entry.where}: a registry file that is only found in the working folder cannot use "
            f"key_env. If you trust the file, name it: {REGISTRY_VARIABLE}={entry.source}"
        )


def _add_user_file(tables: dict[str, _LLMTable]) -> Mapping[str, _LLMTable]:
    """Return the models with those of the user's file, which may change fields of known ones."""
    configured = os.environ.get(CONFIG)
    user_file = user_path(configured) if configured else home_folder() / "llms.toml"
    if not user_file.is_file():
        if configured:
            raise UsageError(f"{CONFIG}={configured}: file not found.")
        return tables
    for name, table in read_toml(user_file).items():
        if not isinstance(table, dict):
            raise DataError(
                f"{user_file}: {name!r} is outside of a table. Write it below a heading such as "
                "[my-model]."
            )
        entry = dict(tables[name].fields) if name in tables else {}
        if table.get("model", entry.get("model")) != entry.get("model"):
            for field_name in _PRICE_FIELDS:  # prices of another model
                entry.pop(field_name, None)
        tables[name] = _LLMTable(entry | table, f"{user_file}, [{name}]")
    return tables


def _make_entry(name: str, tables: Mapping[str, _LLMTable]) -> LLM:
    entry_name = tables[name].where
    values = {**tables[_DEFAULTS].fields, "model": name, **tables[name].fields}
    if values.keys() & {"key", "api_key", "token"}:
        raise UsageError(
            f"{entry_name}: keys do not belong in files. Put the key in an environment variable "
            'and give the name of the variable, as in key_env = "MY_KEY".'
        )
    extra = _check_extra(values.pop("extra", {}), entry_name)
    return replace(parse_settings(LLM, values, name=entry_name), name=name, extra=extra)


def _check_extra(extra: object, entry_name: str) -> Mapping[str, object]:
    """Return the additional request parameters, which must be JSON and must not replace others."""
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
            f"{entry_name}: extra sets {reserved[0]!r}, which is a separate setting or part of "
            "every request. Remove it from extra."
        )
    return extra
