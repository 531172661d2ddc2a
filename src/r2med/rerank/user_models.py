"""Rerankers with code of their own: an object of the user's, or what a checkpoint brings along.

An object has predict(pairs) or rank(query, documents). A checkpoint's model has rerank(query,
documents); its code runs only where the caller trusts it.
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
from r2med.models.checkpoint import LocalModel, foreign_code, locate
from r2med.models.encoding import Form, Inputs, TextInputs
from r2med.rerank.scores import (
    Candidates,
    ListScores,
    Pair,
    PairReranker,
    RerankOutput,
    anonymous_identity,
    in_order,
)
from r2med.retrieve.user_models import code_identity, load_target, running
from r2med.retrieve.user_models import identity_of as own_identity
from r2med.settings import setting, settings_identity

_FORM = (
    "A reranker has predict(pairs), which takes (query, document) pairs and gives a number for "
    "each, or rank(query, documents), which gives the documents' positions, best first."
)


@dataclass(frozen=True)
class UserRerankerSettings:
    """What `own:package.module:Class` may say; the reranker is known by its own identity."""

    target: str = setting(identity="content")
    arguments: tuple[str, ...] = ()
    """Arguments of the class, each as NAME=VALUE: the options in brackets."""


@dataclass(frozen=True)
class OwnCodeSettings:
    """All that an entry may say whose checkpoint brings its own code."""

    dtype: Literal["auto", "float32", "float16", "bfloat16"]
    checkpoint: str = setting(identity="content")


def build(
    name: str, settings: UserRerankerSettings | OwnCodeSettings, resources: Resources
) -> PairReranker | ListReranker:
    """A reranker of `own:package.module:Class`, made with its options, or of a checkpoint."""
    if isinstance(settings, UserRerankerSettings):
        arguments = settings.arguments
        return reranker_of(name, load_target(settings.target, arguments), resources, arguments)
    if not resources.options.trust_remote_code:
        raise UsageError(foreign_code(f"{name}: {settings.checkpoint}"))
    need("torch", "transformers", extra="rerank")
    model = OwnCode(locate(settings.checkpoint), settings.dtype, resources.options)
    identity = {"checkpoint": model.checkpoint.fingerprint(), **settings_identity(settings)}
    return ListReranker(name, model, identity, resources)


def is_reranker(thing: object) -> bool:
    """Whether an object can put documents in order."""
    return any(callable(getattr(thing, name, None)) for name in ("predict", "rank"))


def reranker_of(
    name: str, thing: object, resources: Resources, arguments: tuple[str, ...] = ()
) -> PairReranker | ListReranker:
    """A reranker around an object; its scores are kept when it has an `identity`."""
    if not is_reranker(thing):
        raise UsageError(f"{name}: {type(thing).__name__} is no reranker. {_FORM}")
    own = own_identity(thing, f"{name}: {type(thing).__name__}.identity")
    identity = None
    if own is not None:
        named = own if isinstance(own, Mapping) else str(own)
        made_with = {"arguments": list(arguments)} if arguments else {}
        identity = {"own": named, **made_with, **code_identity(thing)}
    if not callable(getattr(thing, "predict", None)):
        return ListReranker(name, thing, identity, resources)
    if identity is None:
        resources.warn(
            f"{name}: the object has no `identity`, so its scores are not kept for another time."
        )
    return PairReranker(name, _Predictor(name, thing, identity), resources)


@dataclass(frozen=True)
class _Predictor:
    """predict(pairs) as an encoder of pairs."""

    name: str
    own: Any
    identity: Mapping[str, object] | None

    def inputs(self, texts: Sequence[Pair], form: Form) -> TextInputs:
        """The pairs as they are."""
        return TextInputs.of(texts, form)

    def encode(self, inputs: Inputs, rows: Rows) -> NDArray[np.float32]:
        """The scores of some pairs."""
        pairs = [cast("TextInputs", inputs).texts[row] for row in rows]
        with running(f"{self.name}: predict"):
            output = self.own.predict(pairs)
        try:
            scores = np.asarray(output, dtype=np.float32)
        except (TypeError, ValueError):
            scores = np.zeros(0, dtype=np.float32)
        if scores.shape != (len(pairs),):
            raise DataError(
                f"{self.name}: predict gave {output!r:.80} (shape {scores.shape}) for {len(pairs)} "
                f"pairs.\n{_FORM}"
            )
        return scores[:, None]

    def facts(self) -> Mapping[str, object]:
        """What the object is."""
        return {"identified": self.identity is not None}


@dataclass(eq=False)
class ListReranker:
    """rank(query, documents): the object sees a whole list and gives its order.

    Scores of one list say nothing about another, so they are not kept by pair.
    """

    name: str
    own: Any
    known: Mapping[str, object] | None
    resources: Resources

    def __post_init__(self) -> None:
        self.identity: Mapping[str, object] = self.known or anonymous_identity(self.own)

    def rerank(self, lists: Sequence[Candidates]) -> RerankOutput:
        """Order every list; the first document scores the length of the list, the last one 1."""
        start, scores = time.perf_counter(), list[ListScores]()
        for number, one in enumerate(lists, start=1):
            scores.append(in_order(self._order(one)))
            spent = time.perf_counter() - start
            self.resources.progress(f"reranking with {self.name}", number, len(lists), spent)
        usage = Usage(texts=sum(len(one.documents) for one in lists), calls=len(lists))
        facts = {"identified": self.known is not None, "texts": usage.texts, "calls": usage.calls}
        return RerankOutput(scores, facts, usage)

    def _order(self, one: Candidates) -> list[int]:
        count = len(one.documents)
        if not count:
            return []
        with running(f"{self.name}: rank"):
            output = list(self.own.rank(one.query, list(one.documents)))
        try:
            # A position, or what sentence-transformers gives: {"corpus_id": 3, "score": ...}.
            order = [int(row["corpus_id"] if isinstance(row, Mapping) else row) for row in output]
        except (KeyError, TypeError, ValueError):
            order = []
        if sorted(order) != list(range(count)):
            raise DataError(
                f"{self.name}: rank gave {output!r:.80} for the {count} documents of query "
                f"{one.query_id!r}, expected each position from 0 to {count - 1} once.\n{_FORM}"
            )
        return order


class OwnCode(LocalModel):
    """A checkpoint's model with its own code, loaded when the first list is ranked."""

    def rank(self, query: str, documents: Sequence[str]) -> list[int]:
        """Positions, best first, by the `index` of each row that the model gives."""
        rows = self.model.rerank(query, list(documents))
        ordered = sorted(rows, key=lambda row: -float(row["relevance_score"]))
        return [int(row["index"]) for row in ordered]
