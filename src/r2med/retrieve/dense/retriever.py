"""Dense retrieval: encode both sides, then the exact nearest documents of every query."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.home import shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.encoder import Encoder
from r2med.retrieve.dense.encoding import Encoded, Work, encode
from r2med.retrieve.dense.form import SIDES, Form, Side
from r2med.retrieve.dense.index import Index, Search
from r2med.retrieve.dense.store import Shelf, open_shelf
from r2med.retrieve.query_forms import QueryForm
from r2med.runs import Run
from r2med.tasks.task import Queries, Task

FormOf = Callable[[Task, Side], Form]


@dataclass(frozen=True)
class DenseRetriever:
    """Two encoders, often the same one, and how their vectors are searched."""

    name: str
    make: Callable[[], tuple[Encoder, Encoder]]
    """Makes the encoders of queries and documents, when they are first needed."""
    form: FormOf
    """How a task's texts are put to the model."""
    told: Mapping[str, object]
    """What besides the encoders decides a ranking: templates, similarity, compression."""
    search: Search
    storage: str = "float32"
    instruct_generated: bool = False
    conditions: Conditions = field(default_factory=Conditions)
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Stands for an encoder that nobody can name: no other run will ever have it."""

    @cached_property
    def encoders(self) -> Mapping[Side, Encoder]:
        """By side; often one and the same."""
        query, document = self.make()
        if document.identity is None:
            self.conditions.tell(
                f"{self.name}: it has no `identity`, so its embeddings are not kept; "
                "docs/your-model.md says how to give it one."
            )
        return {"query": query, "document": document}

    @property
    def identity(self) -> Mapping[str, object]:
        """Encoders, templates and search; an encoder nobody can name makes every run its own."""
        return {
            "engine": "dense",
            "query_encoder": self._named("query"),
            "document_encoder": self._named("document"),
            "search": asdict(self.search),
            "storage": self.storage,
            **self.told,
        }

    def prepare(self, task: Task) -> DenseSearcher:
        """Encode the last row of every document id, or take its vector from the store."""
        corpus = task.corpus
        texts = corpus.texts.take(pa.array(corpus.last_rows)).fill_null("").to_pylist()
        ids = corpus.document_ids
        documents = self._encode(task, "document", texts, lambda row: f"document {ids[row]}")
        index = Index.build(documents, self.search, self.conditions.memory)
        return DenseSearcher(self, task, index, {"documents": documents.facts})

    def encode_queries(
        self, task: Task, texts: Sequence[str], *, instructed: bool = True
    ) -> Encoded:
        """Encode query-side texts, with the query's instruction or bare."""
        return self._encode(
            task, "query", texts, lambda row: f"query {row + 1}", instructed=instructed
        )

    def _encode(
        self,
        task: Task,
        side: Side,
        texts: Sequence[str],
        name: Callable[[int], str],
        *,
        instructed: bool = True,
    ) -> Encoded:
        encoder = self.encoders[side]
        form = self.form(task, side)
        if not instructed:
            form = Form("", form.max_length, form.pair)
        work = Work(encoder, form, side, texts, name)
        encoded = encode(work, self._shelf(encoder), self.conditions)
        if same := encoded.sameness():
            shared = same == "equal" and side == "query"
            ranking = "the same for every query" if shared else "the corpus order"
            self.conditions.tell(
                f"{self.name}: all {side} vectors are {same}: the ranking is {ranking}."
            )
        return encoded

    def _named(self, side: Side) -> Mapping[str, object]:
        identity = self.encoders[side].identity
        return {"unnamed": self.token} if identity is None else identity

    def _shelf(self, encoder: Encoder) -> Shelf:
        return open_shelf(
            shelf("embeddings"),
            encoder.identity,
            label=self.name,
            storage="float16" if self.storage == "float16" else "float32",
            tell=self.conditions.tell,
        )


class DenseSearcher:
    """A task's documents as vectors."""

    def __init__(
        self,
        retriever: DenseRetriever,
        task: Task,
        index: Index,
        facts: dict[str, object],
    ) -> None:
        self._retriever = retriever
        self._task = task
        self._index = index
        self._facts = facts

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The nearest documents; one whose id is the query's own is left out, as published."""
        encoded = self._retriever.encode_queries(self._task, _texts(queries.texts))
        self._facts["queries"] = encoded.facts
        return self._run(queries.ids, encoded.matrix()[encoded.distinct], depth)

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> Run:
        """As `search`, each query's vector being the plain mean of its parts' vectors."""
        parts = [part for form in forms for part in form.dense]
        counts = np.array([len(form.dense) for form in forms], dtype=np.int64)
        bare = np.array([part.generated for part in parts], dtype=np.bool_)
        if self._retriever.instruct_generated:
            bare[:] = False
        vectors = self._part_vectors([part.text for part in parts], bare)
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
        sums = np.add.reduceat(vectors, starts, axis=0)
        means = (sums / counts[:, None]).astype(np.float32)
        ids = pa.array([form.query_id for form in forms], type=pa.large_string())
        return self._run(ids, means, depth)

    def _part_vectors(self, texts: Sequence[str], bare: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The vectors of texts, some of them put without the instruction."""
        vectors: NDArray[np.float32] | None = None
        for instructed, name in ((True, "queries"), (False, "generated")):
            rows = np.flatnonzero(bare != instructed)
            if not len(rows):
                continue
            chosen = [texts[row] for row in rows.tolist()]
            encoded = self._retriever.encode_queries(self._task, chosen, instructed=instructed)
            self._facts[name] = encoded.facts
            matrix = encoded.matrix()[encoded.distinct]
            if vectors is None:
                vectors = np.empty((len(texts), matrix.shape[1]), dtype=np.float32)
            vectors[rows] = matrix
        return np.zeros((0, 0), dtype=np.float32) if vectors is None else vectors

    def facts(self) -> Mapping[str, object]:
        """Both sides' counts and first texts as the model saw them, and what ran."""
        query, document = (dict(self._retriever.encoders[side].facts()) for side in SIDES)
        ran = document if query == document else {"query": query, "document": document}
        return {"encoder": ran, **self._facts, **costs(self._facts)}

    def _run(self, ids: pa.Array, vectors: NDArray[np.float32], depth: int) -> Run:
        width = vectors.shape[1]
        if len(vectors) and self._index.width not in (0, width):
            raise DataError(
                f"{self._retriever.name}: queries have vectors of {width} numbers, documents of "
                f"{self._index.width}; expected one width on both sides."
            )
        documents, scores = self._index.search(vectors, depth=depth + 1)
        return ranked(ids, self._task, documents, scores, depth)


def ranked(
    ids: pa.Array, task: Task, documents: NDArray[np.int64], scores: NDArray[np.float32], depth: int
) -> Run:
    """A run of the best documents, without the one that bears the query's own id, as published."""
    own = _own_documents(ids, task)
    kept = (documents != own[:, None]) & (documents >= 0)
    kept &= np.cumsum(kept, axis=1) <= depth
    return Run(
        query_ids=ids,
        document_ids=task.corpus.document_ids,
        offsets=np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64),
        documents=documents[kept].astype(np.int32),
        scores=scores[kept].astype(np.float64),
    )


def costs(facts: Mapping[str, object]) -> dict[str, object]:
    """What was really encoded, over all sides: texts, and tokens where they are known."""
    sides = [side for side in facts.values() if isinstance(side, Mapping)]
    tokens = sum(side.get("encoded_tokens") or 0 for side in sides)
    reused = sum(side["reused"] for side in sides if "reused" in side)
    texts = sum(side["distinct"] for side in sides if "reused" in side) - reused
    return {"texts": texts, "tokens": tokens or None, "cached": reused}


def _texts(column: pa.Array) -> list[str]:
    texts: list[str] = column.fill_null("").to_pylist()
    return texts


def _own_documents(ids: pa.Array, task: Task) -> NDArray[np.int64]:
    """For each query the document that bears its id, or -1."""
    found = pc.index_in(ids, value_set=task.corpus.document_ids)
    own: NDArray[np.int64] = found.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return own
