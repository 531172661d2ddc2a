"""Cross-encoders: a sequence classifier reads query and document together; its logit is the score.

Raw logits are used, never probabilities: the order is the same, and none saturate into ties.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, MissingError, UsageError, nearest
from r2med.rerank.loading import load_classifier
from r2med.rerank.pairs import Batch, Pair, PairReranker
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.checkpoint import Checkpoint, locate
from r2med.retrieve.dense.encoding import out_of_memory
from r2med.retrieve.dense.loading import load_tokenizer
from r2med.retrieve.dense.tokens import TokenInputs

_MOST_PAIRS = 256
_DTYPES = ("float32", "float16", "bfloat16", "auto")


class CrossEncoder:
    """A classifier, its tokeniser, and which of its logits is the score."""

    def __init__(self, fields: Mapping[str, object], conditions: Conditions) -> None:
        self.fields = fields
        self.conditions = conditions
        self.budget = conditions.batch_tokens
        self._first_seen: str | None = None
        dtype = str(fields["dtype"])
        if dtype not in _DTYPES:
            raise UsageError(f"dtype={dtype} is not known. {nearest(dtype, _DTYPES)}")

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model's files, or those of the adapter."""
        return locate(str(self.fields["checkpoint"]))

    @cached_property
    def base(self) -> Checkpoint | None:
        """The model that an adapter changes; None when the checkpoint is a whole model."""
        if not self.checkpoint.file("adapter_config.json").is_file():
            return None
        told = self.checkpoint.json("adapter_config.json").get("base_model_name_or_path")
        return locate(str(self.fields["base"] or told or ""), option="base")

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The files' content and how they are used."""
        return {
            "reranker": "cross-encoder",
            "checkpoint": self.checkpoint.fingerprint(),
            "base": self.base.fingerprint() if self.base else None,
            "dtype": self.fields["dtype"],
            "max_length": self.fields["max_length"],
            "logit": self.fields["logit"],
            "query_prefix": self.fields["query_prefix"],
            "document_prefix": self.fields["document_prefix"],
        }

    def score(self, pairs: Sequence[Pair]) -> Iterator[Batch]:
        """Batches of like length within a budget of padded tokens, longest first."""
        inputs = self._inputs(pairs)
        if self._first_seen is None and pairs:
            self._first_seen = inputs.seen(0)
        queue = np.argsort(-inputs.lengths, kind="stable").astype(np.int64)
        while len(queue):
            longest = max(1, int(inputs.lengths[queue[0]]))
            rows = queue[: max(1, min(self.budget // longest, _MOST_PAIRS))]
            try:
                scores = self._forward(inputs, rows)
            except Exception as problem:
                if not out_of_memory(problem):
                    raise
                self._halve(len(rows), longest, problem)
                continue
            yield Batch(rows, scores, inputs.lengths[rows], inputs.truncated[rows])
            queue = queue[len(rows) :]

    def facts(self) -> Mapping[str, object]:
        """Where the weights came from, and the first pair as the model saw it."""
        told: dict[str, object] = {"checkpoint": self.checkpoint.name}
        told["origin"] = self.checkpoint.origin
        if self.base:
            told["base"] = self.base.name
        if self._first_seen is not None:
            told |= {"device": str(self._model.device), "dtype": _plain(self._model.dtype)}
            told["first"] = self._first_seen
        return told

    @cached_property
    def _model(self) -> Any:
        return load_classifier(
            self.checkpoint, self.base, dtype=str(self.fields["dtype"]), conditions=self.conditions
        )

    @cached_property
    def _tokenizer(self) -> Any:
        source = self.base or self.checkpoint
        tokenizer = load_tokenizer(source.folder, self.conditions)
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
        tokenizer.padding_side = "right"
        return tokenizer

    @cached_property
    def _limit(self) -> int:
        """Tokens a pair: as told, else the tokeniser's own limit within the model's positions."""
        told = int(str(self.fields["max_length"]))
        if told:
            return told
        positions = getattr(self._model.config, "max_position_embeddings", None) or 512
        return min(int(self._tokenizer.model_max_length), int(positions))

    def _inputs(self, pairs: Sequence[Pair]) -> TokenInputs:
        encoded = self._tokenizer(
            [f"{self.fields['query_prefix']}{query}" for query, _ in pairs],
            [f"{self.fields['document_prefix']}{document}" for _, document in pairs],
            truncation="longest_first",
            max_length=self._limit,
            return_attention_mask=False,
        )
        ids: list[list[int]] = encoded["input_ids"]
        segments = encoded.get("token_type_ids")
        told = getattr(encoded, "encodings", None)
        cut = [bool(item.overflowing) for item in told or ()] or [
            len(row) >= self._limit for row in ids
        ]
        return TokenInputs(
            ids=_flat(ids),
            segments=_flat(segments) if segments else None,
            offsets=np.concatenate([[0], np.cumsum([len(row) for row in ids])]).astype(np.int64),
            truncated=np.array(cut, dtype=np.bool_),
            instruction_tokens=0,
            tokenizer=self._tokenizer,
        )

    def _forward(self, inputs: TokenInputs, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        import torch

        model = self._model
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self._tokenizer.pad_token_id
        tensors = {
            name: torch.from_numpy(told).to(model.device)
            for name, told in inputs.features(rows).items()
        }
        with torch.inference_mode():
            logits = model(**tensors).logits.float().cpu().numpy()
        return self._chosen(logits)

    def _chosen(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """The one logit, the second of two, or the one that `logit` names."""
        told = str(self.fields["logit"])
        width = logits.shape[1]
        if told == "auto" and width > 2:
            raise UsageError(
                f"{self.checkpoint.name} gives {width} logits a pair. Say which one is the score "
                f"with [logit=N], N from 0 to {width - 1}."
            )
        column = width - 1 if told == "auto" else int(told)
        if column >= width:
            raise DataError(
                f"{self.checkpoint.name} gives {width} logits a pair, so there is no logit "
                f"{column}. Is it a cross-encoder of another kind?"
            )
        chosen: NDArray[np.float32] = np.ascontiguousarray(logits[:, column])
        return chosen

    def _halve(self, pairs: int, longest: int, problem: Exception) -> None:
        if pairs == 1:
            raise MissingError(
                f"{self.checkpoint.name}: not enough memory for one pair of {longest} tokens.\n"
                f"Give a smaller [max_length=...] or another device. ({problem})"
            ) from None
        self.budget = longest * (pairs // 2)
        self.conditions.tell(
            f"out of memory at {pairs} pairs of up to {longest} tokens; "
            f"going on with batches of {self.budget} tokens."
        )


def build(name: str, fields: Mapping[str, object], conditions: Conditions) -> PairReranker:
    """A cross-encoder as an entry describes it."""
    if not fields["checkpoint"]:
        raise UsageError(f"{name}: no model is given. Name one as in ce:PATH_OR_HUB_NAME.")
    logit = str(fields["logit"])
    if logit != "auto" and not logit.isdigit():
        raise UsageError(f"{name}[logit={logit}]: expected auto or a number from 0.")
    return PairReranker(name, CrossEncoder(fields, conditions), conditions)


def _flat(rows: list[list[int]]) -> NDArray[np.int32]:
    return np.fromiter((token for row in rows for token in row), dtype=np.int32)


def _plain(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")
