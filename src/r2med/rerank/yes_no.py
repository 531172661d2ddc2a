"""Rerankers that are language models: asked whether a document fits, their next token is the score.

The score is the logit of "yes", less that of "no" where an entry names one: the log-odds of yes,
which order as the published probability does and, unlike it, never saturate into ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.expand.prompts import filled
from r2med.models.batching import Rows, TokenInputs
from r2med.models.loading import load_causal
from r2med.rerank.pair_model import PairModel, PairModelSettings
from r2med.rerank.scores import Pair, PairReranker
from r2med.retrieve.conditions import Conditions
from r2med.settings import setting

Tokens = list[int]


@dataclass(frozen=True, kw_only=True)
class YesNoSettings(PairModelSettings):
    """All that an entry of such a reranker may say; rerankers.toml documents each field."""

    prefix: str
    query_part: str
    separator: str
    document_part: str
    suffix: str
    suffix_counts: bool
    query_share: float = setting(least=0, most=1)
    instruction: str
    yes: str
    no: str


def build(name: str, settings: YesNoSettings, conditions: Conditions) -> PairReranker:
    """A reranker as an entry describes it."""
    return PairReranker(name, YesNo(name, settings, conditions), conditions)


class YesNo(PairModel):
    """A language model, its template, and the tokens that say yes and no."""

    kind = "yes-no"

    def __init__(self, name: str, settings: YesNoSettings, conditions: Conditions) -> None:
        super().__init__(name, settings, conditions)
        self.settings = settings

    def load(self, folder: Path) -> Any:
        """The model with the head that predicts tokens."""
        trusted = self.conditions.trust_remote_code
        return load_causal(folder, dtype=self.settings.dtype, trust_remote_code=trusted)

    def inputs(self, pairs: Sequence[Pair]) -> TokenInputs:
        """Prefix, query, document and suffix, each part tokenised by itself; the document is cut.

        Where `query_part` is empty, `document_part` holds both texts and is cut at its end.
        """
        settings = self.settings
        prefix, separator = self._ids(settings.prefix), self._ids(settings.separator)
        suffix = separator + self._ids(settings.suffix)
        room = self.limit - len(prefix) - (len(suffix) if settings.suffix_counts else 0)
        if room <= 0:
            raise UsageError(
                f"{self.checkpoint.name}: max_length={self.limit} is no longer than the template "
                "itself, so no text would be read."
            )
        most = min(int(self.limit * settings.query_share), room)
        heads = self._parts(settings.query_part, pairs)
        rows, truncated = [], []
        for head, body in zip(heads, self._parts(settings.document_part, pairs), strict=True):
            second = separator + body if settings.query_part else body
            kept = [*head[:most], *second[: room - len(head[:most])]]
            rows.append([*prefix, *kept, *suffix])
            truncated.append(len(kept) < len(head) + len(second))
        return TokenInputs.of(
            self.tokenizer, {"input_ids": rows}, limit=0, truncated=np.array(truncated)
        )

    def forward(self, inputs: TokenInputs, rows: Rows) -> NDArray[np.float32]:
        """Padded on the left, so that the last position of every row is the one that answers."""
        features = inputs.features(rows, left=True)
        features["position_ids"] = np.maximum(features["attention_mask"].cumsum(axis=1) - 1, 0)
        logits = self.logits(features, logits_to_keep=1)[:, -1]
        scores: NDArray[np.float32] = logits[:, self._answers[0]]
        for token in self._answers[1:]:
            scores = scores - logits[:, token]
        return scores

    @cached_property
    def _answers(self) -> Tokens:
        """The tokens of yes and, where there is one, of no."""
        tokens = []
        for word in filter(None, (self.settings.yes, self.settings.no)):
            ids = self._ids(word)
            if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
                raise DataError(
                    f"{self.checkpoint.name}: {word!r} is not one token of this model, so it "
                    "cannot answer with it. Is it a reranker of another kind?"
                )
            tokens += ids
        return tokens

    def _parts(self, template: str, pairs: Sequence[Pair]) -> list[Tokens]:
        """A part of the template for every pair."""
        instruction = self.settings.instruction
        return self._tokenised(
            filled(template, instruction=instruction, query=query, document=document)
            for query, document in pairs
        )

    def _ids(self, text: str) -> Tokens:
        return self._tokenised([text])[0]

    def _tokenised(self, texts: Iterable[str]) -> list[Tokens]:
        options = {"add_special_tokens": False, "return_attention_mask": False}
        tokens: list[Tokens] = self.tokenizer(list(texts), **options)["input_ids"]
        return tokens
