"""Rerankers of the user's own: an object with predict(pairs) or rank(query, documents)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError
from r2med.rerank.interface import Candidates, ListScores, Reranker
from r2med.rerank.pairs import Batch, Pair, PairReranker, unidentified
from r2med.retrieve.conditions import Conditions, Progress
from r2med.retrieve.own_code import identity_of, load_target, running

_PAIRS = 1024
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
    told = identity_of(thing, f"{name}: {type(thing).__name__}.identity")
    identity = None if told is None else {"own": told if isinstance(told, Mapping) else str(told)}
    if not callable(getattr(thing, "predict", None)):
        return ListReranker(name, thing, identity, conditions)
    if identity is None:
        conditions.tell(
            f"{name}: the object has no `identity`, so its scores are not kept for another time."
        )
    return PairReranker(name, _Predictor(name, thing, identity), conditions)


def build(name: str, fields: Mapping[str, object], conditions: Conditions) -> Reranker:
    """A reranker from `own:package.module:Class`, made without arguments."""
    return reranker_of(name, load_target(str(fields["target"])), conditions)


class _Predictor:
    """predict(pairs) as a pair scorer."""

    def __init__(self, name: str, thing: Any, identity: Mapping[str, object] | None) -> None:
        self.name = name
        self.predict: Callable[[list[Pair]], Any] = thing.predict
        self.identity = identity

    def score(self, pairs: Sequence[Pair]) -> Iterator[Batch]:
        """In the order given, some at a time."""
        for start in range(0, len(pairs), _PAIRS):
            part = list(pairs[start : start + _PAIRS])
            with running(f"{self.name}: predict"):
                told = self.predict(part)
            scores = _numbers(told, self.name, "predict")
            if scores.shape != (len(part),):
                raise DataError(
                    f"{self.name}: predict gave {_shape(scores)} for {len(part)} pairs, expected "
                    f"one score for each pair.\nThe first pair's query is {part[0][0][:80]!r}."
                )
            none = np.zeros(len(part), dtype=np.int64)
            rows = np.arange(start, start + len(part), dtype=np.int64)
            yield Batch(rows, scores, none, none.astype(np.bool_))

    def facts(self) -> Mapping[str, object]:
        """What the object is."""
        return {"identified": self.identity is not None}


class ListReranker:
    """rank(query, documents): the object sees a whole list and gives its order."""

    def __init__(
        self, name: str, thing: Any, identity: Mapping[str, object] | None, conditions: Conditions
    ) -> None:
        self.name = name
        self.rank: Callable[[str, list[str]], Any] = thing.rank
        self.identity: Mapping[str, object] = identity or unidentified(thing)
        self.conditions = conditions
        self._facts: dict[str, object] = {"identified": identity is not None}

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """The first place scores the length of the list, the last one 1."""
        start, found = time.perf_counter(), []
        for number, one in enumerate(lists, start=1):
            found.append(self._one(one))
            spent = time.perf_counter() - start
            told = Progress(f"reranking with {self.name}", number, len(lists), spent)
            self.conditions.progress(told)
        self._facts |= {"texts": sum(len(one.documents) for one in lists), "calls": len(lists)}
        return found

    def facts(self) -> Mapping[str, object]:
        """Lists and documents put in order."""
        return self._facts

    def _one(self, one: Candidates) -> ListScores:
        count = len(one.documents)
        scores = np.zeros(count, dtype=np.float32)
        if not count:
            return scores
        with running(f"{self.name}: rank"):
            told = list(self.rank(one.query, list(one.documents)))
        order = [_position(item, self.name) for item in told]
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
    told = item.get("corpus_id") if isinstance(item, Mapping) else item
    try:
        return int(told)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{name}: rank gave {item!r}, expected positions.\n{_FORM}") from None


def _numbers(told: Any, name: str, method: str) -> NDArray[np.float32]:
    try:
        return np.asarray(told, dtype=np.float32)
    except (TypeError, ValueError):
        raise DataError(f"{name}: {method} gave no numbers ({told!r:.80}).\n{_FORM}") from None


def _shape(scores: NDArray[np.float32]) -> str:
    return f"{len(scores)} scores" if scores.ndim == 1 else f"an array of shape {scores.shape}"
