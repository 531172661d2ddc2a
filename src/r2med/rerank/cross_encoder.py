"""Local models that read query and document together: classifiers, and models that say yes or no.

Scores are raw logits, never probabilities: the order is the same, and none saturate into ties.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import DataError, UsageError, need
from r2med.execution.resources import Resources
from r2med.expand.prompts import fill_template
from r2med.models.batching import Features, Rows, TokenInputs, truncations
from r2med.models.checkpoint import Checkpoint, LocalModel, locate, named_failures
from r2med.models.encoding import Form, Inputs
from r2med.rerank.scores import Pair, PairReranker
from r2med.settings import setting, settings_identity

Tokens = list[int]


@dataclass(frozen=True, kw_only=True)
class PairModelSettings:
    """What entries of all such models say; rerankers.toml documents each field."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")
    base: str = setting(identity="content")
    max_length: int = setting(least=0)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderSettings(PairModelSettings):
    """All that an entry of a cross-encoder may say."""

    logit: str
    query_prefix: str
    document_prefix: str


@dataclass(frozen=True, kw_only=True)
class YesNoSettings(PairModelSettings):
    """All that an entry of a language model that says yes or no may say."""

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


def build(
    name: str, settings: CrossEncoderSettings | YesNoSettings, resources: Resources
) -> PairReranker:
    """A reranker as an entry describes it."""
    if not settings.checkpoint:
        raise UsageError(f"{name}: no model is given. Name one as in ce:PATH_OR_HUB_NAME.")
    if isinstance(settings, YesNoSettings):
        return PairReranker(name, YesNo(settings, resources), resources)
    if settings.logit != "auto" and not settings.logit.isdecimal():
        raise UsageError(f"{name}[logit={settings.logit}]: expected auto or a number from 0.")
    return PairReranker(name, CrossEncoder(settings, resources), resources)


class PairModel(LocalModel):
    """A model and its tokeniser; a subclass makes an encoder of pairs of it.

    It says which class of transformers loads it, which tokens it reads for a pair, and which number
    of its output is the score.
    """

    kind: ClassVar[str]
    """Names the architecture in the identity."""
    loader: ClassVar[str]
    base_options: ClassVar[Mapping[str, Any]] = {}
    """Options with which the base model of an adapter is loaded."""
    settings: PairModelSettings

    def __init__(self, settings: PairModelSettings, resources: Resources) -> None:
        self.settings = settings
        self.dtype = settings.dtype
        self.options = resources.options

    @cached_property
    def checkpoint(self) -> Checkpoint:  # type: ignore[override]
        """The model's files, or those of the adapter."""
        return locate(self.settings.checkpoint)

    @cached_property
    def base(self) -> Checkpoint | None:
        """The model that an adapter changes; None when the checkpoint is a whole model."""
        adapter = self.checkpoint.json("adapter_config.json")
        if adapter is None:
            return None
        named = adapter.get("base_model_name_or_path")
        return locate(self.settings.base or str(named or ""), option="base")

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """The files' content and how they are used."""
        return {
            "reranker": self.kind,
            "algorithms": versions("pair-scoring"),
            "checkpoint": self.checkpoint.fingerprint(),
            "base": self.base.fingerprint() if self.base else None,
            **settings_identity(self.settings),
        }

    def facts(self) -> dict[str, object]:
        """The checkpoint and an adapter's base, and what ran."""
        return super().facts() | ({"base": self.base.name} if self.base else {})

    @property
    def folder(self) -> Path:
        """That of the whole model."""
        return (self.base or self.checkpoint).folder

    def load(self) -> Any:
        """The model; an adapter is merged into its base."""
        need("torch", "transformers", extra="rerank")
        model = self.load_by(self.loader) if self.base is None else self._load_adapted()
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self.tokenizer.pad_token_id
        return model

    def _load_adapted(self) -> Any:
        """The base model with the adapter merged into it.

        The base may lack the weights that the adapter has, such as a classification head, and no
        others.
        """
        need("peft", extra="rankllama")
        from peft import PeftModel
        from peft.utils import load_peft_weights

        folder = str(self.checkpoint.folder)
        with named_failures(self.checkpoint.folder):
            names = load_peft_weights(folder, device="cpu")
        adapter_weights = tuple(name.removeprefix("base_model.model.") for name in names)
        base = self.load_by(self.loader, spare=adapter_weights, **self.base_options)
        with named_failures(self.checkpoint.folder):
            return PeftModel.from_pretrained(base, folder).merge_and_unload()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokeniser of the whole model, which pads with some token."""
        tokenizer = super().tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
        return tokenizer

    @cached_property
    def limit(self) -> int:
        """Tokens per pair: as set, else the tokeniser's own limit within the model's positions."""
        if self.settings.max_length:
            return int(self.settings.max_length)
        positions = int(getattr(self.model.config, "max_position_embeddings", None) or 512)
        return min(self.longest or positions, positions)

    def logits(self, features: Features, **options: Any) -> Any:
        """What the model gives for a batch, in float32 on the processor."""
        return self.run(features, **options).logits.float().cpu().numpy()


class CrossEncoder(PairModel):
    """A sequence classifier, and which of its logits is the score."""

    kind = "cross-encoder"
    loader = "AutoModelForSequenceClassification"
    base_options: ClassVar[Mapping[str, Any]] = {"num_labels": 1}
    settings: CrossEncoderSettings

    def inputs(self, texts: Sequence[Pair], form: Form) -> TokenInputs:
        """Both texts with the tokeniser's own separators, the longer one cut first."""
        encoded = self.tokenizer(
            [f"{self.settings.query_prefix}{query}" for query, _ in texts],
            [f"{self.settings.document_prefix}{document}" for _, document in texts],
            truncation="longest_first",
            max_length=self.limit,
            return_attention_mask=False,
        )
        rows, segments = encoded["input_ids"], encoded.get("token_type_ids")
        lost = truncations(encoded, self.limit)
        return TokenInputs(self.tokenizer, rows, lost, segments=segments)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """The one logit, the second of two, or the one that `logit` names."""
        logits = self.logits(cast("TokenInputs", inputs).features(rows))
        wanted, width = self.settings.logit, logits.shape[1]
        column = width - 1 if wanted == "auto" else int(wanted)
        if column >= width or (wanted == "auto" and width > 2):
            raise UsageError(
                f"{self.checkpoint.name} gives {width} logits per pair. Say which one is the score "
                f"with [logit=N], N from 0 to {width - 1}."
            )
        chosen: NDArray[np.float32] = logits[:, [column]]
        return chosen


class YesNo(PairModel):
    """A language model that is asked whether a document fits; its next token is the score.

    The score is the logit of "yes", less that of "no" where an entry names one: the log-odds of
    yes.
    """

    kind = "yes-no"
    loader = "AutoModelForCausalLM"
    settings: YesNoSettings

    def inputs(self, texts: Sequence[Pair], form: Form) -> TokenInputs:
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
        heads, bodies = (
            self._tokenise(
                fill_template(
                    template, instruction=settings.instruction, query=query, document=document
                )
                for query, document in texts
            )
            for template in (settings.query_part, settings.document_part)
        )
        rows, truncated = [], []
        for head, body in zip(heads, bodies, strict=True):
            second = separator + body if settings.query_part else body
            kept = [*head[:most], *second[: room - len(head[:most])]]
            rows.append([*prefix, *kept, *suffix])
            truncated.append(len(kept) < len(head) + len(second))
        return TokenInputs(self.tokenizer, rows, truncated)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Padded on the left, so that the last position of every row is the one that answers."""
        features = cast("TokenInputs", inputs).features(rows, left=True)
        features["position_ids"] = np.maximum(features["attention_mask"].cumsum(axis=1) - 1, 0)
        logits = self.logits(features, logits_to_keep=1)[:, -1]
        yes, *no = self._answers
        scores: NDArray[np.float32] = logits[:, [yes]]
        return scores - logits[:, no] if no else scores

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

    def _ids(self, text: str) -> Tokens:
        return self._tokenise([text])[0]

    def _tokenise(self, texts: Iterable[str]) -> list[Tokens]:
        options = {"add_special_tokens": False, "return_attention_mask": False}
        tokens: list[Tokens] = self.tokenizer(list(texts), **options)["input_ids"]
        return tokens
