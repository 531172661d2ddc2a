"""Run a model in batches of like length within a budget of tokens, halved when memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.execution.memory import out_of_memory
from r2med.runs.run import offsets_of

Rows = NDArray[np.int64]
Features = dict[str, NDArray[np.int64]]
T = TypeVar("T")

_MOST_INPUTS = 256


@dataclass
class Batches:
    """Plans batches for one model and remembers what fitted its memory."""

    budget: int
    """Padded tokens of a batch."""
    tell: Callable[[str], None]

    def run(
        self, lengths: Rows, compute: Callable[[Rows], T], name: Callable[[int], str]
    ) -> Iterator[tuple[Rows, T]]:
        """Compute all inputs, longest first; yield each batch's rows and what came of them.

        `lengths` are tokens per input. `name` says what to call one that does not fit alone.
        """
        queue = np.argsort(-lengths, kind="stable").astype(np.int64)
        while len(queue):
            longest = max(1, int(lengths[queue[0]]))
            rows = queue[: max(1, min(self.budget // longest, _MOST_INPUTS))]
            try:
                output = compute(rows)
            except Exception as problem:
                if not out_of_memory(problem):
                    raise
                if len(rows) == 1:
                    raise MissingError(
                        f"{name(int(rows[0]))}: not enough memory for this one text of {longest} "
                        f"tokens.\nGive a smaller [max_length=...] or another device. ({problem})"
                    ) from None
                self.budget = longest * (len(rows) // 2)
                self.tell(
                    f"out of memory at {len(rows)} texts of up to {longest} tokens; "
                    f"going on with batches of {self.budget} tokens."
                )
                continue
            yield rows, output
            queue = queue[len(rows) :]


class TokenInputs:
    """Texts as ragged columns of token ids and segment numbers."""

    def __init__(
        self,
        tokenizer: Any,
        rows: Sequence[Sequence[int]],
        truncated: Sequence[bool],
        *,
        segments: Sequence[Sequence[int]] | None = None,
        instruction_tokens: int = 0,
        texts: Sequence[str] | None = None,
    ) -> None:
        """`texts` are shown in place of the decoded tokens."""
        self.tokenizer = tokenizer
        self.ids = _flat(rows)
        self.segments = _flat(segments) if segments else None
        self.offsets = offsets_of([len(row) for row in rows])
        self.tokens = np.diff(self.offsets)
        self.truncated = np.array(truncated, dtype=np.bool_)
        self.instruction_tokens = instruction_tokens
        self.texts = texts

    def seen(self, row: int) -> str:
        """The tokens as text again, special ones included."""
        if self.texts is not None:
            return self.texts[row]
        ids = self.ids[self.offsets[row] : self.offsets[row + 1]].tolist()
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def features(self, rows: Rows, *, left: bool = False) -> Features:
        """A padded batch: models see the mask, so the side only says where a text ends."""
        lengths = self.tokens[rows]
        shape = (len(rows), max(1, int(lengths.max())))
        inside = np.arange(shape[1]) < lengths[:, None]
        if left:
            inside = inside[:, ::-1]
        chosen = np.concatenate([np.arange(self.offsets[r], self.offsets[r + 1]) for r in rows])
        # Any token will do where the tokeniser has no padding: the mask hides it.
        padding = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        ids = np.full(shape, next(p for p in padding if p is not None), dtype=np.int64)
        ids[inside] = self.ids[chosen]
        features = {"input_ids": ids, "attention_mask": inside.astype(np.int64)}
        if self.segments is not None:
            features["token_type_ids"] = np.zeros(shape, dtype=np.int64)
            features["token_type_ids"][inside] = self.segments[chosen]
        return features


def truncations(encoded: Any, limit: int) -> list[bool]:
    """Which texts lost tokens; of a tokeniser that cannot tell, those that fill the limit."""
    if encodings := getattr(encoded, "encodings", None):
        return [bool(item.overflowing) for item in encodings]
    return [0 < limit <= len(ids) for ids in encoded["input_ids"]]


def _flat(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32)
