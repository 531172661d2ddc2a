"""An API encoder's entry as typed values: read from the registry's fields and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, cast, get_args

from r2med.errors import UsageError, nearest
from r2med.remote.server import Home, Server, find_server
from r2med.remote.spending import Price
from r2med.retrieve.dense.form import Side
from r2med.retrieve.dense.settings import Similarity, Storage

EncodingFormat = Literal["base64", "float"]
_ENVIRONMENT = "R2MED_EMBED"
_OPTION = "[url=...]"


@dataclass(frozen=True)
class ApiSettings:
    """All that an entry of the api engine may say; encoders.toml documents each field."""

    model: str
    url: str
    key_env: str
    query_input_type: str
    document_input_type: str
    output_dimensions: int
    encoding_format: EncodingFormat
    quoted: bool
    tokenizer: str
    max_length: int
    most_texts: int
    most_tokens: int
    query_instruction: str
    document_instruction: str
    price: float
    similarity: Similarity
    storage: Storage
    dimensions: int

    @classmethod
    def read(cls, values: Mapping[str, object]) -> ApiSettings:
        """From the registry's fields; a word or number that cannot be is a UsageError."""
        known = {field.name for field in fields(cls)}
        settings = cls(**cast("dict[str, Any]", {k: v for k, v in values.items() if k in known}))
        settings._check()
        return settings

    def input_type(self, side: Side) -> str:
        """What the server is told about a side; empty is nothing."""
        return self.query_input_type if side == "query" else self.document_input_type

    def known_price(self) -> Price | None:
        """Dollars per million tokens, where they are known."""
        return Price(self.price) if self.price >= 0 else None

    def server(self) -> Server:
        """Where requests go; R2MED_EMBED_URL takes the place of the entry's own address.

        A key of the entry's own goes to the address it belongs to and nowhere else.
        """
        own = _OWN_KEYS.get(self.key_env, "")
        if own:
            home = Home(own, self.key_env, _ENVIRONMENT, _OPTION)
            return find_server(self.model, home, url=None if self.url == own else self.url)
        home = Home("", "", _ENVIRONMENT, _OPTION)
        return find_server(self.model, home, url=self.url or None, key_env=self.key_env)

    def _check(self) -> None:
        if not self.model:
            raise UsageError(
                "api: which model? Write it after a colon, as in "
                "api:MODEL[url=http://localhost:8000/v1]."
            )
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed:
                raise UsageError(f"{name}={value} is not known. {nearest(str(value), allowed)}")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise UsageError(f"{name}={getattr(self, name)}: expected {least} or more.")
        if self.max_length and not self.tokenizer:
            raise UsageError(
                f"max_length={self.max_length} needs a tokenizer to count with, as in "
                "[tokenizer=tiktoken:cl100k_base]."
            )


#: Keys that belong to one vendor's address.
_OWN_KEYS: Mapping[str, str] = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "VOYAGE_API_KEY": "https://api.voyageai.com/v1",
}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "encoding_format": get_args(EncodingFormat),
    "similarity": get_args(Similarity),
    "storage": get_args(Storage),
}
_LEAST: Mapping[str, int] = {
    "output_dimensions": 0,
    "max_length": 0,
    "most_texts": 1,
    "most_tokens": 1,
    "dimensions": 0,
}
