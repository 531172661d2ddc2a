"""Texts as an API is sent them: cut at a number of tokens, quoted where the published runs did."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.remote.spending import tokens_of
from r2med.retrieve.dense.form import Form

#: A text of no more bytes than this many below the limit needs no tokenizer: a token is a byte
#: at least, and some tokenizers add a few of their own.
_SPARE = 8

#: From a text and a number of tokens: the text's own count, and its beginning of that many.
Cut = Callable[[str, int], tuple[int, str]]


@dataclass(frozen=True, eq=False)
class ApiInputs:
    """Texts ready to be sent."""

    sent: Sequence[str]
    tokens: NDArray[np.int64]
    """Counted where a text had to be measured, a quarter of the characters elsewhere."""
    truncated: NDArray[np.bool_]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """What a request may hold is counted in tokens."""
        return self.tokens

    def seen(self, row: int) -> str:
        """What is sent, character by character."""
        return self.sent[row]


def worded(texts: Sequence[str], form: Form, *, quoted: bool, tokenizer: str) -> ApiInputs:
    """Put the instruction before each text, cut it, then quote it; an empty one is a space."""
    sent, tokens, truncated = [], [], []
    for text in texts:
        whole = form.instruction + text
        kept, count = whole, tokens_of(whole)
        limit = form.max_length
        if limit and len(whole.encode("utf-8", "surrogatepass")) > limit - _SPARE:
            count, kept = load(tokenizer)(whole, limit)
            truncated.append(count > limit)
            count = min(count, limit)
        else:
            truncated.append(False)
        tokens.append(count)
        sent.append(json.dumps(kept.replace("\n", " ")) if quoted else kept or " ")
    return ApiInputs(sent, np.array(tokens, np.int64), np.array(truncated, np.bool_))


@cache
def load(tokenizer: str) -> Cut:
    """The function that counts and cuts; its vocabulary is fetched once by its own library."""
    kind, _, name = tokenizer.rpartition(":")
    return _tiktoken(name) if kind == "tiktoken" else _tokenizers(tokenizer)


def _tiktoken(name: str) -> Cut:
    try:
        import tiktoken

        encoding = tiktoken.get_encoding(name)
    except Exception as problem:
        raise _missing("tiktoken", name, problem) from None

    def cut(text: str, limit: int) -> tuple[int, str]:
        ids = encoding.encode(text, disallowed_special=())
        return len(ids), text if len(ids) <= limit else encoding.decode(ids[:limit])

    return cut


def _tokenizers(name: str) -> Cut:
    try:
        from tokenizers import Tokenizer  # type: ignore[import-untyped, unused-ignore]

        own = Path(name).is_file()
        tokenizer = Tokenizer.from_file(name) if own else Tokenizer.from_pretrained(name)
    except Exception as problem:
        raise _missing("tokenizers", name, problem) from None
    tokenizer.no_truncation()

    def cut(text: str, limit: int) -> tuple[int, str]:
        encoded = tokenizer.encode(text, add_special_tokens=False)
        count = len(encoded.ids)
        return count, text if count <= limit else text[: encoded.offsets[limit - 1][1]]

    return cut


def _missing(library: str, name: str, problem: Exception) -> MissingError:
    if isinstance(problem, ImportError):
        why = f"{library} is not installed: pip install 'r2med[api]'"
    else:
        why = f"{library} cannot load {name} ({type(problem).__name__}); it is fetched once, online"
    return MissingError(
        f"a text may be longer than the encoder takes, and {why}.\n"
        "[max_length=0] sends texts whole and leaves it to the server."
    )
