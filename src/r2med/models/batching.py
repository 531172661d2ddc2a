"""Run a model in batches of texts of similar length; halve the batches if memory runs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from r2med.errors import MissingError
from r2med.execution.memory import is_out_of_memory
from r2med.runs.run import offsets_of

Rows = NDArray[np.int64]
Features = dict[str, NDArray[np.int64]]
T = TypeVar("T")

_MOST_INPUTS = 256


@dataclass
class Batches:
    """Plans batches for one model and remembers the size that fits in memory."""

    budget: int
    """Most padded tokens of a batch."""
    warn: Callable[[str], None]

    def run(
        self, lengths: Rows, compute: Callable[[Rows], T], name: Callable[[int], str]
    ) -> Iterator[tuple[Rows, T]]:
        """Compute all inputs, longest first; yield the rows and the output of each batch.

        Args:
            lengths: Tokens per input.
            compute: Computes the inputs of some rows.
            name: Returns the name of an input, for the error if it does not fit in memory alone.

        """
        queue = np.argsort(-lengths, kind="stable").astype(np.int64)
        while len(queue):
            longest = max(1, int(lengths[queue[0]]))
            rows = queue[: max(1, min(self.budget // longest, _MOST_INPUTS))]
            try:
                output = compute(rows)
            except Exception as problem:
                if not is_out_of_memory(problem):
                    raise
                if len(rows) == 1:
                    raise MissingError(
                        f"{name(int(rows[0]))}: not enough memory for this one text of {longest} "
                        f"tokens.\nSet a smaller [max_length=...] or another device. ({problem})"
                    ) from None
                self.budget = longest * (len(rows) // 2)
                self.warn(
                    f"out of memory at {len(rows)} texts of up to {longest} tokens; "
                    f"continuing with batches of {self.budget} tokens."
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
        """Store the rows as flat arrays; `texts` are shown instead of decoded tokens if given."""
        self.tokenizer = tokenizer
        self.ids = _flat(rows)
        self.segments = _flat(segments) if segments else None
        self.offsets = offsets_of([len(row) for row in rows])
        self.tokens = np.diff(self.offsets)
        self.truncated = np.array(truncated, dtype=np.bool_)
        self.instruction_tokens = instruction_tokens
        self.texts = texts

    def model_input(self, row: int) -> str:
        """Return the text of a row as the model sees it, including special tokens."""
        if self.texts is not None:
            return self.texts[row]
        ids = self.ids[self.offsets[row] : self.offsets[row + 1]].tolist()
        return str(self.tokenizer.decode(ids, clean_up_tokenization_spaces=False))

    def features(self, rows: Rows, *, left: bool = False) -> Features:
        """Return a padded batch; `left` pads on the left, so that all texts end together."""
        lengths = self.tokens[rows]
        shape = (len(rows), max(1, int(lengths.max())))
        inside = np.arange(shape[1]) < lengths[:, None]
        if left:
            inside = inside[:, ::-1]
        chosen = np.concatenate(
            [np.arange(self.offsets[row], self.offsets[row + 1]) for row in rows]
        )
        # If the tokeniser has no padding token, any token will do: the mask hides it.
        candidates = (self.tokenizer.pad_token_id, self.tokenizer.eos_token_id, 0)
        padding = next(token for token in candidates if token is not None)
        ids = np.full(shape, padding, dtype=np.int64)
        ids[inside] = self.ids[chosen]
        features = {"input_ids": ids, "attention_mask": inside.astype(np.int64)}
        if self.segments is not None:
            features["token_type_ids"] = np.zeros(shape, dtype=np.int64)
            features["token_type_ids"][inside] = self.segments[chosen]
        return features


def find_truncated(encoded: Any, limit: int) -> list[bool]:
    """Return for each text whether it was truncated.

    Some tokenisers do not report this; then a text that fills the limit counts as truncated.
    """
    if encodings := getattr(encoded, "encodings", None):
        return [bool(item.overflowing) for item in encodings]
    return [0 < limit <= len(ids) for ids in encoded["input_ids"]]


def _flat(rows: Sequence[Sequence[int]]) -> NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(rows), dtype=np.int32)
