"""Rerankers with custom code: an object of the user, or a checkpoint that contains code.

An object has predict(pairs) or rank(query, documents). The model of a checkpoint has rerank(query,
documents); its code runs only with `trust_remote_code`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError, need
from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.models.batching import Rows
from r2med.models.checkpoint import LocalModel, describe_foreign_code, locate
from r2med.models.encoding import Form, Inputs, TextInputs
from r2med.models.user_code import code_identity
from r2med.rerank.scores import (
    Candidates,
    ListScores,
    Pair,
    PairReranker,
    RerankOutput,
    anonymous_identity,
    scores_from_order,
)
from r2med.retrieve.user_models import load_target, read_identity, run_user_code
from r2med.settings import setting, settings_identity

_INTERFACE = (
    "A reranker has predict(pairs), which returns a number for each pair (query, document), or "
    "rank(query, documents), which returns the indexes of the documents, best first."
)


@dataclass(frozen=True)
class UserRerankerSettings:
    """The settings of `own:package.module:Class`."""

    target: str = setting(identity="content")
    arguments: tuple[str, ...] = ()
    """Arguments of the class as NAME=VALUE, from the options in brackets."""


@dataclass(frozen=True)
class OwnCodeSettings:
    """The settings of a checkpoint that contains code."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")


def build(
    name: str, settings: UserRerankerSettings | OwnCodeSettings, resources: Resources
) -> PairReranker | ListReranker:
    """Build the reranker of `own:package.module:Class`, or of a checkpoint with code."""
    if isinstance(settings, UserRerankerSettings):
        model = load_target(settings.target, settings.arguments)
        return wrap_reranker(name, model, resources, settings.arguments)
    if not resources.options.trust_remote_code:
        raise UsageError(describe_foreign_code(f"{name}: {settings.checkpoint}"))
    need("torch", "transformers", extra="rerank")
    checkpoint_model = CheckpointCode(
        locate(settings.checkpoint), settings.dtype, resources.options
    )
    fingerprint = checkpoint_model.checkpoint.fingerprint()
    identity = {"checkpoint": fingerprint, **settings_identity(settings)}
    return ListReranker(name, checkpoint_model, identity, resources)


def is_reranker(model: object) -> bool:
    """Whether an object has the interface of a reranker."""
    return any(callable(getattr(model, name, None)) for name in ("predict", "rank"))


def wrap_reranker(
    name: str, model: object, resources: Resources, arguments: tuple[str, ...] = ()
) -> PairReranker | ListReranker:
    """Make a reranker from an object; its scores are cached if the object has an `identity`."""
    if not is_reranker(model):
        raise UsageError(f"{name}: {type(model).__name__} is not a reranker. {_INTERFACE}")
    declared = read_identity(model, f"{name}: {type(model).__name__}.identity")
    identity: dict[str, object] | None = None
    if declared is not None:
        identity = {"own": declared if isinstance(declared, Mapping) else str(declared)}
        if arguments:
            identity["arguments"] = list(arguments)
        identity |= code_identity(model)
    if not callable(getattr(model, "predict", None)):
        return ListReranker(name, model, identity, resources)
    if identity is None:
        resources.warn(f"{name}: the object has no `identity`, so its scores are not cached.")
    return PairReranker(name, _Predictor(name, model, identity), resources)


@dataclass(frozen=True)
class _Predictor:
    """Makes an encoder of pairs from an object with predict(pairs)."""

    name: str
    model: Any
    identity: Mapping[str, object] | None

    def inputs(self, texts: Sequence[Pair], form: Form) -> TextInputs:
        """Return the pairs unchanged."""
        return TextInputs.of(texts, form)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """Return the scores of some pairs."""
        pairs = [cast("TextInputs", inputs).texts[row] for row in rows]
        with run_user_code(f"{self.name}: predict"):
            output = self.model.predict(pairs)
        try:
            scores = np.asarray(output, dtype=np.float32)
        except (TypeError, ValueError):
            scores = np.zeros(0, dtype=np.float32)
        if scores.shape != (len(pairs),):
            raise DataError(
                f"{self.name}: predict returned {output!r:.80} (shape {scores.shape}) for "
                f"{len(pairs)} pairs.\n{_INTERFACE}"
            )
        return scores[:, None]

    def facts(self) -> Mapping[str, object]:
        """Return the facts for the record: whether the user's object has an identity."""
        return {"identified": self.identity is not None}


class ListReranker:
    """Makes a reranker from an object with rank(query, documents).

    Scores of one list are not comparable with those of another, so they are not cached by pair.
    """

    def __init__(
        self, name: str, model: Any, identity: Mapping[str, object] | None, resources: Resources
    ) -> None:
        self.name = name
        self.resources = resources
        self.is_identified = identity is not None
        self.identity = identity or anonymous_identity(model)
        self._model = model

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Order every list; of n documents, the first scores n and the last scores 1."""
        start, scores = time.perf_counter(), list[ListScores]()
        for number, candidates in enumerate(lists, start=1):
            scores.append(scores_from_order(self._order(candidates)))
            seconds = time.perf_counter() - start
            self.resources.progress(f"reranking with {self.name}", number, len(lists), seconds)
        texts = sum(len(candidates.documents) for candidates in lists)
        usage = Usage(texts=texts, calls=len(lists))
        facts = {"identified": self.is_identified, "texts": usage.texts, "calls": usage.calls}
        return RerankOutput(scores, facts, usage)

    def _order(self, candidates: Candidates) -> list[int]:
        count = len(candidates.documents)
        if not count:
            return []
        with run_user_code(f"{self.name}: rank"):
            output = list(self._model.rank(candidates.query, list(candidates.documents)))
        try:
            # An index, or a row of sentence-transformers: {"corpus_id": 3, "score": ...}.
            order = [int(row["corpus_id"] if isinstance(row, Mapping) else row) for row in output]
        except (KeyError, TypeError, ValueError):
            order = []
        if sorted(order) != list(range(count)):
            raise DataError(
                f"{self.name}: rank returned {output!r:.80} for the {count} documents of query "
                f"{candidates.query_id!r}, expected each index from 0 to {count - 1} once.\n"
                f"{_INTERFACE}"
            )
        return order


class CheckpointCode(LocalModel):
    """The model of a checkpoint that contains code, loaded when the first list is ranked."""

    def rank(self, query: str, documents: Sequence[str]) -> list[int]:
        """Return the indexes of the documents, best first."""
        rows = self.model.rerank(query, list(documents))
        ordered = sorted(rows, key=lambda row: -float(row["relevance_score"]))
        return [int(row["index"]) for row in ordered]
