"""How the texts of one side are put to a model: instruction, length and pairing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")

#: Bytes of a text's address: enough that two texts never share one.
ADDRESS_BYTES = 16


@dataclass(frozen=True)
class Form:
    """Everything besides the text itself that decides the model's input.

    It is part of each text's address in the embedding store, so a changed instruction never
    meets a vector of the old one, and sides that are put alike share their vectors.
    """

    instruction: str = ""
    max_length: int = 0
    """Tokens, special ones included; 0 leaves the model's own limit."""
    pair: bool = False
    """Whether the text is the second segment after an empty first one."""

    def addresses(self, texts: Iterable[str]) -> NDArray[np.uint8]:
        """The address of each text: a hash of the form and the text, `ADDRESS_BYTES` wide."""
        start = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode() + b"\0")
        digests = []
        for text in texts:
            digest = start.copy()
            digest.update(text.encode("utf-8", "surrogatepass"))
            digests.append(digest.digest()[:ADDRESS_BYTES])
        flat = np.frombuffer(b"".join(digests), dtype=np.uint8)
        return flat.reshape(-1, ADDRESS_BYTES)
