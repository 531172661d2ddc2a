"""Texts as token ids: tokenised once, then padded batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.retrieve.dense.form import Form

Features = dict[str, NDArray[np.int64]]


@dataclass(frozen=True, eq=False)
class TokenInputs:
    """Ragged columns of token ids and segment numbers, and how to show them."""

    ids: NDArray[np.int32]
    segments: NDArray[np.int32] | None
    offsets: NDArray[np.int64]
    truncated: NDArray[np.bool_]
    instruction_tokens: int
    tokenizer: Any

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each text."""
        return np.diff(self.offsets)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """The same: every token is known."""
        return self.lengths

    def seen(self, row: int) -> str:
        """The tokens as text again, special ones included."""
        ids = self.ids[self.offsets[row] : self.offsets[row + 1]].tolist()
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def features(self, rows: NDArray[np.int64]) -> Features:
        """A batch padded on the right: models see the mask, so the side changes nothing."""
        lengths = self.lengths[rows]
        shape = (len(rows), max(1, int(lengths.max())))
        inside = np.arange(shape[1]) < lengths[:, None]
        chosen = np.concatenate([np.arange(self.offsets[r], self.offsets[r + 1]) for r in rows])
        ids = np.full(shape, _padding(self.tokenizer), dtype=np.int64)
        ids[inside] = self.ids[chosen]
        features = {"input_ids": ids, "attention_mask": inside.astype(np.int64)}
        if self.segments is not None:
            features["token_type_ids"] = np.zeros(shape, dtype=np.int64)
            features["token_type_ids"][inside] = self.segments[chosen]
        return features


def tokenise(
    tokenizer: Any, texts: Sequence[str], form: Form, *, limit: int, append_eos: bool
) -> TokenInputs:
    """Token ids as the model gets them: instruction, special tokens and truncation applied."""
    put = [form.instruction + text for text in texts] if form.instruction else list(texts)
    call: dict[str, Any] = {"truncation": True, "max_length": limit - append_eos}
    if not limit:
        call = {"truncation": False}
    pair = [[""] * len(put), put] if form.pair else [put]
    encoded = tokenizer(*pair, return_attention_mask=False, **call) if put else {"input_ids": []}
    rows: list[list[int]] = encoded["input_ids"]
    cut = _truncated(encoded, rows, limit - append_eos)
    segments = encoded.get("token_type_ids")
    if append_eos:
        rows = [[*ids, tokenizer.eos_token_id] for ids in rows]
        segments = [[*row, 0] for row in segments] if segments else None
    return TokenInputs(
        ids=_flat(rows),
        segments=_flat(segments) if segments else None,
        offsets=np.concatenate([[0], np.cumsum([len(ids) for ids in rows])]).astype(np.int64),
        truncated=cut,
        instruction_tokens=_instruction_tokens(tokenizer, form.instruction),
        tokenizer=tokenizer,
    )


def _truncated(encoded: Any, rows: list[list[int]], limit: int) -> NDArray[np.bool_]:
    """Which texts lost tokens; a tokeniser that cannot tell means those that fill the limit."""
    told = getattr(encoded, "encodings", None)
    if told:
        return np.array([bool(item.overflowing) for item in told], dtype=np.bool_)
    return np.array([0 < limit <= len(ids) for ids in rows], dtype=np.bool_)


def _instruction_tokens(tokenizer: Any, instruction: str) -> int:
    """Tokens of the instruction at the start of an input, the opening special token included."""
    if not instruction:
        return 0
    ids: list[int] = tokenizer(instruction)["input_ids"]
    closing = {tokenizer.eos_token_id, tokenizer.sep_token_id} - {None}
    return len(ids) - (ids[-1] in closing if ids else 0)


def _flat(rows: list[list[int]]) -> NDArray[np.int32]:
    return np.fromiter((token for row in rows for token in row), dtype=np.int32)


def _padding(tokenizer: Any) -> int:
    """Any token will do where the tokeniser has no padding: the mask hides it."""
    for token in (tokenizer.pad_token_id, tokenizer.eos_token_id):
        if token is not None:
            return int(token)
    return 0
