"""Score pairs of query and document, each once: what the score store has is taken from there.

Scores are kept per reranker and exact texts, so depth 100 reuses depth 10, and any first stage
reuses any other; batches are on disk as they finish, so a kill loses one batch at most.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.home import shelf as home_shelf
from r2med.rerank.interface import Candidates, ListScores
from r2med.retrieve.conditions import Conditions, Progress
from r2med.retrieve.dense.form import ADDRESS_BYTES
from r2med.retrieve.dense.store import Shelf, open_shelf

#: Pairs given to a scorer at a time: enough for even batches, little enough for memory.
_WINDOW = 4096

Pair = tuple[str, str]


@dataclass(frozen=True, eq=False)
class Batch:
    """Scores of some of the pairs a scorer was given."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float32]
    tokens: NDArray[np.int64]
    truncated: NDArray[np.bool_]


class PairScorer(Protocol):
    """A model that scores one pair without looking at the others."""

    @property
    def identity(self) -> Mapping[str, object] | None:
        """Everything besides the texts that decides a score; None is never stored."""
        ...

    def score(self, pairs: Sequence[Pair]) -> Iterator[Batch]:
        """Every pair once, in batches as they finish."""
        ...

    def facts(self) -> Mapping[str, object]:
        """What really ran, as JSON values."""
        ...


class PairReranker:
    """A reranker that scores every candidate by itself."""

    def __init__(self, name: str, scorer: PairScorer, conditions: Conditions) -> None:
        self.name = name
        self.scorer = scorer
        self.conditions = conditions
        self._facts: dict[str, object] = {}
        self._anonymous = unidentified(scorer)

    @property
    def identity(self) -> Mapping[str, object]:
        """The scorer's; one without an identity equals nothing but itself."""
        return self.scorer.identity or self._anonymous

    def scores(self, lists: Sequence[Candidates]) -> list[ListScores]:
        """Look every pair up, score the missing ones, longest first."""
        start = time.perf_counter()
        addresses = _addresses(lists)
        store = open_shelf(
            home_shelf("rerank-scores"),
            self.scorer.identity,
            label=self.name,
            storage="float32",
            tell=self.conditions.tell,
            what="scores",
        )
        missing = _distinct(addresses, np.flatnonzero(store.find(addresses) < 0))
        if len(missing):
            self._score_missing(lists, addresses, missing, store)
        places = store.find(addresses)
        flat = store.gather(places)[:, 0] if len(places) else np.zeros(0, dtype=np.float32)
        self._facts = {
            "texts": len(addresses),
            "reused": len(addresses) - len(missing),
            **_token_facts(store, places),
            **({"seconds": round(time.perf_counter() - start, 3)} if len(missing) else {}),
            **self.scorer.facts(),
        }
        lengths = [len(one.documents) for one in lists]
        return np.split(flat, np.cumsum(lengths)[:-1]) if lengths else []

    def facts(self) -> Mapping[str, object]:
        """Pairs, how many of them were known, tokens, and what the scorer says."""
        return self._facts

    def _score_missing(
        self,
        lists: Sequence[Candidates],
        addresses: NDArray[np.uint8],
        missing: NDArray[np.int64],
        store: Shelf,
    ) -> None:
        start, done = time.perf_counter(), 0
        texts = _Texts(lists)
        queue = missing[np.argsort(-texts.sizes[missing], kind="stable")]
        try:
            for window in np.split(queue, np.arange(_WINDOW, len(queue), _WINDOW)):
                pairs = [texts.pair(int(row)) for row in window]
                seen = 0
                for batch in self.scorer.score(pairs):
                    self._check(batch, window, texts)
                    store.add(
                        addresses[window[batch.rows]],
                        batch.scores[:, None],
                        batch.tokens,
                        batch.truncated,
                    )
                    seen += len(batch.rows)
                    spent = time.perf_counter() - start
                    told = Progress(f"reranking with {self.name}", done + seen, len(queue), spent)
                    self.conditions.progress(told)
                done += len(window)
                if seen != len(window):
                    raise DataError(
                        f"{self.name} scored {seen:,} of {len(window):,} pairs; "
                        "a reranker gives one score for each pair."
                    )
        finally:
            store.close()
            store.refresh()

    def _check(self, batch: Batch, window: NDArray[np.int64], texts: _Texts) -> None:
        if batch.scores.shape != (len(batch.rows),):
            raise DataError(
                f"{self.name} gave scores of shape {batch.scores.shape} for "
                f"{len(batch.rows)} pairs, expected one number for each pair."
            )
        bad = np.flatnonzero(~np.isfinite(batch.scores))
        if len(bad):
            query, document = texts.names(int(window[batch.rows[bad[0]]]))
            raise DataError(
                f"{self.name} gave the score {batch.scores[bad[0]]} for query {query!r} and "
                f"document {document!r}, expected a finite number.\n"
                "If the model runs in float16, try [dtype=float32] or [dtype=bfloat16]."
            )


class _Texts:
    """The pairs of all lists under one numbering, fetched when wanted."""

    def __init__(self, lists: Sequence[Candidates]) -> None:
        self.lists = lists
        lengths = [len(one.documents) for one in lists]
        self.starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self.sizes = np.array(
            [len(one.query) + len(text) for one in lists for text in one.documents], dtype=np.int64
        )

    def pair(self, row: int) -> Pair:
        one, place = self._place(row)
        return one.query, one.documents[place]

    def names(self, row: int) -> tuple[str, str]:
        one, place = self._place(row)
        return one.query_id, one.document_ids[place]

    def _place(self, row: int) -> tuple[Candidates, int]:
        owner = int(np.searchsorted(self.starts, row, side="right")) - 1
        return self.lists[owner], row - int(self.starts[owner])


def unidentified(thing: object) -> Mapping[str, object]:
    """An identity for what has none: its results are never taken for another's."""
    import secrets

    kind = type(thing)
    return {
        "object": f"{kind.__module__}.{kind.__qualname__}",
        "unidentified": secrets.token_hex(8),
    }


def _addresses(lists: Sequence[Candidates]) -> NDArray[np.uint8]:
    """A hash of each pair's exact texts, with a boundary that no text can move."""
    digests = []
    for one in lists:
        query = one.query.encode("utf-8", "surrogatepass")
        start = hashlib.sha256(f"{len(query)}:".encode() + query)
        for text in one.documents:
            digest = start.copy()
            digest.update(text.encode("utf-8", "surrogatepass"))
            digests.append(digest.digest()[:ADDRESS_BYTES])
    return np.frombuffer(b"".join(digests), dtype=np.uint8).reshape(-1, ADDRESS_BYTES)


def _distinct(addresses: NDArray[np.uint8], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first row of each distinct address among some rows."""
    if not len(rows):
        return rows
    keys = np.ascontiguousarray(addresses[rows]).view(f"V{ADDRESS_BYTES}").ravel()
    seen: dict[bytes, int] = {}
    for row, key in zip(rows.tolist(), keys, strict=True):
        seen.setdefault(key.tobytes(), row)
    return np.array(list(seen.values()), dtype=np.int64)


def _token_facts(store: Shelf, places: NDArray[np.int64]) -> dict[str, object]:
    tokens, truncated = store.tokens(places)
    if not tokens.any():
        return {}
    return {"tokens": int(tokens.sum()), "truncated": round(float(truncated.mean()), 6)}
