"""Retrieval with more than a vector a text: sparse weights or token vectors, in the same store.

A text is one stored row that tells its own length; each engine says how rows are compared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.home import shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.encoder import Encoder
from r2med.retrieve.dense.encoding import Encoded, Work, encode
from r2med.retrieve.dense.form import SIDES, Form, Side
from r2med.retrieve.dense.index import spread_over
from r2med.retrieve.dense.retriever import costs, ranked
from r2med.retrieve.dense.store import open_shelf
from r2med.retrieve.dense.topk import Matrix
from r2med.runs import Run
from r2med.tasks.task import Queries, Task


@dataclass(frozen=True)
class RaggedRetriever:
    """An encoder for each side, and the engine that compares what they give."""

    engine: str
    name: str
    make: Callable[[], tuple[Encoder, Encoder]]
    searcher: Callable[[RaggedRetriever, Task, Encoded], RaggedSearcher]
    conditions: Conditions = field(default_factory=Conditions)

    @cached_property
    def encoders(self) -> Mapping[Side, Encoder]:
        """By side."""
        query, document = self.make()
        return {"query": query, "document": document}

    @property
    def identity(self) -> Mapping[str, object]:
        """Engine and encoders."""
        query, document = (dict(self.encoders[side].identity or {}) for side in SIDES)
        return {"engine": self.engine, "query": query, "document": document}

    def prepare(self, task: Task) -> RaggedSearcher:
        """Encode the last row of every document id, or take it from the store."""
        corpus = task.corpus
        texts = corpus.texts.take(pa.array(corpus.last_rows)).fill_null("").to_pylist()
        return self.searcher(self, task, self.encode(texts, "document"))

    def encode(self, texts: list[str], side: Side) -> Encoded:
        """The rows of some texts."""
        encoder = self.encoders[side]
        work = Work(encoder, Form(), side, texts, lambda row: f"{side} {row + 1}", ragged=True)
        held = open_shelf(
            shelf("embeddings"),
            encoder.identity,
            label=self.name,
            storage="float32",
            tell=self.conditions.tell,
        )
        return encode(work, held, self.conditions)


class RaggedSearcher(ABC):
    """A task's documents as stored rows."""

    def __init__(self, retriever: RaggedRetriever, task: Task, documents: Encoded) -> None:
        self.retriever = retriever
        self.task = task
        self.documents = documents
        self._facts: dict[str, object] = {"documents": documents.facts}

    @abstractmethod
    def scores(self, queries: Encoded, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """For every query the best distinct texts and their scores, best first."""

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best documents; one whose id is the query's own is left out."""
        texts = queries.texts.fill_null("").to_pylist()
        encoded = self.retriever.encode(texts, "query")
        self._facts["queries"] = encoded.facts
        found, scored = self.scores(encoded, depth + 1)
        documents, spread = spread_over(self.documents.distinct, found, scored, depth + 1)
        return ranked(queries.ids, self.task, documents, spread, depth)

    def facts(self) -> Mapping[str, object]:
        """Both sides' counts and first texts as the model saw them, and what ran."""
        encoder = self.retriever.encoders["document"]
        return {"encoder": dict(encoder.facts()), **self._facts, **costs(self._facts)}
