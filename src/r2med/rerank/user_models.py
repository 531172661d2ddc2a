"""Rerankers of the user's own: an object with predict(pairs) or rank(query, documents)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.models.vectors import Computed
from r2med.rerank.scores import (
    Candidates,
    ListScores,
    Pair,
    PairReranker,
    Reranker,
    unidentified,
)
from r2med.retrieve.conditions import Conditions, Progress
from r2med.retrieve.user_models import identity_of, load_target, running
from r2med.settings import setting

_FORM = (
    "A reranker has predict(pairs), which takes (query, document) pairs and gives a number for "
    "each, or rank(query, documents), which gives the documents' positions, best first."
)


def is_reranker(thing: object) -> bool:
    """Whether an object can put documents in order."""
    return any(callable(getattr(thing, name, None)) for name in ("predict", "rank"))


def reranker_of(name: str, thing: object, conditions: Conditions) -> Reranker:
    """A reranker around an object; its scores are kept when it has an `identity`."""
    if not is_reranker(thing):
        raise UsageError(f"{name}: {type(thing).__name__} is no reranker. {_FORM}")
    own = identity_of(thing, f"{name}: {type(thing).__name__}.identity")
    identity = None if own is None else {"own": own if isinstance(own, Mapping) else str(own)}
    if not callable(getattr(thing, "predict", None)):
        return ListReranker(name, thing, identity, conditions)
    if identity is None:
        conditions.tell(
            f"{name}: the object has no `identity`, so its scores are not kept for another time."
        )
    return PairReranker(name, _Predictor(name, thing, identity), conditions)


@dataclass(frozen=True)
class UserRerankerSettings:
    """What `own:package.module:Class` may say; the reranker is known by its own identity."""

    target: str = setting(identity="content")


def build(name: str, settings: UserRerankerSettings, conditions: Conditions) -> Reranker:
    """A reranker from `own:package.module:Class`, made without arguments."""
    return reranker_of(name, load_target(settings.target), conditions)


class _Predictor:
    """predict(pairs) as a pair scorer."""

    def __init__(self, name: str, thing: Any, identity: Mapping[str, object] | None) -> None:
        self.name = name
        self.own = thing
        self.predict: Callable[[list[Pair]], Any] = thing.predict
        self.identity = identity

    def score(self, pairs: Sequence[Pair]) -> Iterator[Computed]:
        """All at once, in the order given."""
        with running(f"{self.name}: predict"):
            output = self.predict(list(pairs))
        scores = _numbers(output, self.name)
        if scores.shape != (len(pairs),):
            raise DataError(
                f"{self.name}: predict gave {_shape(scores)} for {len(pairs)} pairs, expected "
                f"one score for each pair.\nThe first pair's query is {pairs[0][0][:80]!r}."
            )
        rows = np.arange(len(pairs), dtype=np.int64)
        yield Computed(rows, scores[:, None], np.zeros_like(rows), rows < 0)

    def facts(self) -> Mapping[str, object]:
        """What the object is."""
        return {"identified": self.identity is not None}


class ListReranker:
    """rank(query, documents): the object sees a whole list and gives its order."""

    def __init__(
        self, name: str, thing: Any, identity: Mapping[str, object] | None, conditions: Conditions
    ) -> None:
        self.name = name
        self.own = thing
        self.rank: Callable[[str, list[str]], Any] = thing.rank
        self.identity: Mapping[str, object] = identity or unidentified(thing)
        self.conditions = conditions
        self._facts: dict[str, object] = {"identified": identity is not None}

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """The first place scores the length of the list, the last one 1."""
        start, scores = time.perf_counter(), []
        for number, one in enumerate(lists, start=1):
            scores.append(self._one(one))
            spent = time.perf_counter() - start
            self.conditions.progress(
                Progress(f"reranking with {self.name}", number, len(lists), spent)
            )
        self._facts |= {"texts": sum(len(one.documents) for one in lists), "calls": len(lists)}
        return scores

    def facts(self) -> Mapping[str, object]:
        """Lists and documents put in order."""
        return self._facts

    def _one(self, one: Candidates) -> ListScores:
        count = len(one.documents)
        scores = np.zeros(count, dtype=np.float32)
        if not count:
            return scores
        with running(f"{self.name}: rank"):
            output = list(self.rank(one.query, list(one.documents)))
        order = [_position(item, self.name) for item in output]
        if sorted(order) != list(range(count)):
            raise DataError(
                f"{self.name}: rank gave {len(order)} positions ({len(set(order))} distinct) for "
                f"the {count} documents of query {one.query_id!r}, expected each of 0 to "
                f"{count - 1} once."
            )
        scores[order] = np.arange(count, 0, -1)
        return scores


def _position(item: Any, name: str) -> int:
    """A position, or the form that sentence-transformers gives: {"corpus_id": 3, "score": ...}."""
    position = item.get("corpus_id") if isinstance(item, Mapping) else item
    try:
        return int(position)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{name}: rank gave {item!r}, expected positions.\n{_FORM}") from None


def _numbers(output: Any, name: str) -> NDArray[np.float32]:
    try:
        return np.asarray(output, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{name}: predict gave no numbers ({output!r:.80}).\n{_FORM}") from None


def _shape(scores: NDArray[np.float32]) -> str:
    return f"{len(scores)} scores" if scores.ndim == 1 else f"an array of shape {scores.shape}"
