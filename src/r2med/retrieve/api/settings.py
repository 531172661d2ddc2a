"""What an entry of an API encoder may say, and the server that it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from r2med.errors import UsageError
from r2med.remote.budget import Price
from r2med.remote.server import Home, Server, find_server
from r2med.retrieve.dense.embed import Side
from r2med.retrieve.dense.settings import Similarity, Storage
from r2med.settings import setting

_ENVIRONMENT = "R2MED_EMBED"
_OPTION = "[url=...]"
#: Keys that belong to one vendor's address.
_OWN_KEYS: Mapping[str, str] = {
    "OPENAI_API_KEY": "https://api.openai.com/v1",
    "VOYAGE_API_KEY": "https://api.voyageai.com/v1",
}


@dataclass(frozen=True, kw_only=True)
class ApiSettings:
    """The settings of an entry of the api engine; encoders.toml documents each field."""

    model: str
    url: str = setting(identity="content")
    key_env: str = setting(identity="none")
    query_input_type: str
    document_input_type: str
    output_dimensions: int = setting(least=0)
    encoding_format: Literal["base64", "float"] = setting(identity="none")
    quoted: bool
    tokenizer: str
    max_length: int = setting(least=0)
    most_texts: int = setting(identity="none", least=1)
    most_tokens: int = setting(identity="none", least=1)
    query_instruction: str
    document_instruction: str
    price: float = setting(identity="none")
    price_date: str = setting(identity="none")
    price_source: str = setting(identity="none")
    similarity: Similarity
    storage: Storage
    dimensions: int = setting(least=0)

    def __post_init__(self) -> None:
        """Refuse an entry that names no model."""
        if not self.model:
            raise UsageError(
                "api: which model? Write it after a colon, as in "
                "api:MODEL[url=http://localhost:8000/v1]."
            )

    def input_type(self, side: Side) -> str:
        """What the server is told about a side; empty is nothing."""
        return self.query_input_type if side == "query" else self.document_input_type

    @property
    def priced(self) -> str:
        """Where its price comes from, as the end of a sentence; nothing where none is known."""
        if not self.price or not self.price_source:
            return ""
        return f"; price of {self.price_date or 'no date'} ({self.price_source})"

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
