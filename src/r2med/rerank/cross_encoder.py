"""Local models that read query and document together: cross-encoders and yes/no language models.

Scores are raw logits instead of probabilities: the order is the same, but high scores stay
different where their probabilities would round to the same number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from r2med.models.batching import Features, Rows, TokenInputs, find_truncated
from r2med.models.checkpoint import ADAPTER_CONFIG, Checkpoint, LocalModel, locate, name_failures
from r2med.models.encoding import Form, Inputs
from r2med.rerank.scores import Pair, PairReranker
from r2med.settings import setting, settings_identity

TokenIds = list[int]


@dataclass(frozen=True, kw_only=True)
class PairModelSettings:
    """The settings of all models in this module; rerankers.toml documents each field."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")
    base: str = setting(identity="content")
    max_length: int = setting(least=0)


@dataclass(frozen=True, kw_only=True)
class CrossEncoderSettings(PairModelSettings):
    """The settings of a cross-encoder."""

    logit: str
    query_prefix: str
    document_prefix: str


@dataclass(frozen=True, kw_only=True)
class YesNoSettings(PairModelSettings):
    """The settings of a language model that answers yes or no."""

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
    """Build the reranker of a registry entry."""
    if not settings.checkpoint:
        raise UsageError(f"{name}: which model? Write it after a colon, as in ce:PATH_OR_HUB_NAME.")
    if isinstance(settings, YesNoSettings):
        return PairReranker(name, YesNo(settings, resources), resources)
    if settings.logit != "auto" and not settings.logit.isdecimal():
        raise UsageError(f"{name}[logit={settings.logit}]: expected auto or a number from 0.")
    return PairReranker(name, CrossEncoder(settings, resources), resources)


class PairModel(LocalModel):
    """A model and its tokeniser, as an encoder of pairs.

    A subclass defines the class of transformers that loads the model, the tokens of a pair, and the
    output that is the score.
    """

    architecture: ClassVar[str]
    """Name of the architecture in the identity."""
    loader: ClassVar[str]
    """Class of transformers that loads the model."""
    base_options: ClassVar[Mapping[str, Any]] = {}
    """Options for loading the base model of an adapter."""
    settings: PairModelSettings

    def __init__(self, settings: PairModelSettings, resources: Resources) -> None:
        self.settings = settings
        self.dtype = settings.dtype
        self.options = resources.options

    @cached_property
    def checkpoint(self) -> Checkpoint:  # type: ignore[override]
        """The files of the model, or of the adapter."""
        return locate(self.settings.checkpoint)

    @cached_property
    def base(self) -> Checkpoint | None:
        """The base model of an adapter; None if the checkpoint is a complete model."""
        adapter = self.checkpoint.json(ADAPTER_CONFIG)
        if adapter is None:
            return None
        configured = adapter.get("base_model_name_or_path")
        return locate(self.settings.base or str(configured or ""), option="base")

    @cached_property
    def identity(self) -> Mapping[str, object]:
        """Everything that can change a score: the content of the files and the settings."""
        return {
            "reranker": self.architecture,
            "algorithms": versions("pair-scoring"),
            "checkpoint": self.checkpoint.fingerprint(),
            "base": self.base.fingerprint() if self.base else None,
            **settings_identity(self.settings),
        }

    def facts(self) -> dict[str, object]:
        """Return the checkpoint, the base of an adapter, and the device and precision in use."""
        facts = super().facts()
        if self.base:
            facts["base"] = self.base.name
        return facts

    @property
    def folder(self) -> Path:
        """The folder of the complete model, which is the base if there is an adapter."""
        return (self.base or self.checkpoint).folder

    def load(self) -> Any:
        """Load the model; an adapter is merged into its base."""
        need("torch", "transformers", extra="rerank")
        model = self.load_by(self.loader) if self.base is None else self._load_with_adapter()
        if model.config.pad_token_id is None:
            model.config.pad_token_id = self.tokenizer.pad_token_id
        return model

    def _load_with_adapter(self) -> Any:
        """Load the base model and merge the adapter into it.

        Weights that the adapter provides, such as a classification head, may be missing in the
        base; all others must be there.
        """
        need("peft", extra="rankllama")
        from peft import PeftModel
        from peft.utils import load_peft_weights

        folder = str(self.checkpoint.folder)
        with name_failures(self.checkpoint.folder):
            names = load_peft_weights(folder, device="cpu")
        adapter_weights = tuple(name.removeprefix("base_model.model.") for name in names)
        base = self.load_by(self.loader, optional=adapter_weights, **self.base_options)
        with name_failures(self.checkpoint.folder):
            return PeftModel.from_pretrained(base, folder).merge_and_unload()

    @cached_property
    def tokenizer(self) -> Any:
        """The tokeniser of the complete model, with a padding token."""
        tokenizer = super().tokenizer
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.unk_token or tokenizer.eos_token
        return tokenizer

    @cached_property
    def limit(self) -> int:
        """Most tokens per pair: `max_length`, else the lower limit of tokeniser and model."""
        if self.settings.max_length:
            return int(self.settings.max_length)
        positions = int(getattr(self.model.config, "max_position_embeddings", None) or 512)
        return min(self.max_tokens or positions, positions)

    def logits(self, features: Features, **options: Any) -> Any:
        """Return the logits of a batch as float32 on the CPU."""
        return self.run(features, **options).logits.float().cpu().numpy()


class CrossEncoder(PairModel):
    """A sequence classifier; one of its logits is the score."""

    architecture = "cross-encoder"
    loader = "AutoModelForSequenceClassification"
    base_options: ClassVar[Mapping[str, Any]] = {"num_labels": 1}
    settings: CrossEncoderSettings

    def inputs(self, texts: Sequence[Pair], form: Form) -> TokenInputs:
        """Tokenise pairs with the tokeniser's separators; the longer text is cut first."""
        encoded = self.tokenizer(
            [f"{self.settings.query_prefix}{query}" for query, _ in texts],
            [f"{self.settings.document_prefix}{document}" for _, document in texts],
            truncation="longest_first",
            max_length=self.limit,
            return_attention_mask=False,
        )
        rows, segments = encoded["input_ids"], encoded.get("token_type_ids")
        lost = find_truncated(encoded, self.limit)
        return TokenInputs(self.tokenizer, rows, lost, segments=segments)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Return the score of each pair: the logit that the setting `logit` selects.

        With `auto`, this is the only logit, or the second of two.
        """
        logits = self.logits(cast("TokenInputs", inputs).features(rows))
        setting_value, width = self.settings.logit, logits.shape[1]
        column = width - 1 if setting_value == "auto" else int(setting_value)
        if column >= width or (setting_value == "auto" and width > 2):
            raise UsageError(
                f"{self.checkpoint.name} has {width} logits per pair. Choose the one that is the "
                f"score with [logit=N], N from 0 to {width - 1}."
            )
        scores: NDArray[np.float32] = logits[:, [column]]
        return scores


class YesNo(PairModel):
    """A language model that answers yes or no; the score comes from its next-token logits.

    The score is the logit of "yes". If the entry sets a "no", the logit of "no" is subtracted,
    which gives the log-odds of yes.
    """

    architecture = "yes-no"
    loader = "AutoModelForCausalLM"
    settings: YesNoSettings

    def inputs(self, texts: Sequence[Pair], form: Form) -> TokenInputs:
        """Tokenise prefix, query, document and suffix separately; the document is cut to fit.

        If `query_part` is empty, `document_part` contains both texts and is cut at its end.
        """
        settings = self.settings
        prefix, separator = self._tokenise(settings.prefix), self._tokenise(settings.separator)
        suffix = separator + self._tokenise(settings.suffix)
        available = self.limit - len(prefix)
        if settings.suffix_counts:
            available -= len(suffix)
        if available <= 0:
            raise UsageError(
                f"{self.checkpoint.name}: max_length={self.limit} leaves no space for query and "
                "document besides the template. Give a larger max_length."
            )
        most_query_tokens = min(int(self.limit * settings.query_share), available)
        queries = self._tokenise_template(settings.query_part, texts)
        documents = self._tokenise_template(settings.document_part, texts)
        rows, truncated = [], []
        for query, document in zip(queries, documents, strict=True):
            if settings.query_part:
                document = separator + document
            cut_query = query[:most_query_tokens]
            cut_document = document[: available - len(cut_query)]
            rows.append([*prefix, *cut_query, *cut_document, *suffix])
            truncated.append(len(cut_query) + len(cut_document) < len(query) + len(document))
        return TokenInputs(self.tokenizer, rows, truncated)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Score pairs, padded on the left so that the last position of every row is the answer."""
        features = cast("TokenInputs", inputs).features(rows, left=True)
        features["position_ids"] = np.maximum(features["attention_mask"].cumsum(axis=1) - 1, 0)
        logits = self.logits(features, logits_to_keep=1)[:, -1]
        scores: NDArray[np.float32] = logits[:, [self._yes_token]]
        if self._no_token is not None:
            scores = scores - logits[:, [self._no_token]]
        return scores

    @cached_property
    def _yes_token(self) -> int:
        return self._find_token(self.settings.yes)

    @cached_property
    def _no_token(self) -> int | None:
        return self._find_token(self.settings.no) if self.settings.no else None

    def _find_token(self, word: str) -> int:
        ids = self._tokenise(word)
        if len(ids) != 1 or ids[0] == self.tokenizer.unk_token_id:
            raise DataError(
                f"{self.checkpoint.name}: {word!r} is not a single token of this model, so the "
                "model cannot answer with it. It may be another type of reranker."
            )
        return ids[0]

    def _tokenise(self, text: str) -> TokenIds:
        return self._tokenise_all([text])[0]

    def _tokenise_template(self, template: str, pairs: Sequence[Pair]) -> list[TokenIds]:
        """Fill a template for every pair and tokenise the results."""
        return self._tokenise_all(
            [
                fill_template(
                    template, instruction=self.settings.instruction, query=query, document=document
                )
                for query, document in pairs
            ]
        )

    def _tokenise_all(self, texts: list[str]) -> list[TokenIds]:
        options = {"add_special_tokens": False, "return_attention_mask": False}
        ids: list[TokenIds] = self.tokenizer(texts, **options)["input_ids"]
        return ids
