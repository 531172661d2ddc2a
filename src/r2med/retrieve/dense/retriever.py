"""Dense retrieval: an encoder's entry as typed values, and the nearest documents by its vectors."""

from __future__ import annotations

import importlib
import secrets
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.errors import DataError, UsageError, nearest
from r2med.models.checkpoint import locate
from r2med.models.vectors import Shelf, Storage, open_shelf
from r2med.retrieve.conditions import Conditions
from r2med.retrieve.dense.embed import (
    SIDES,
    Encoded,
    Encoder,
    Encoding,
    Form,
    Side,
    document_texts,
    unit,
)
from r2med.retrieve.dense.milvus import Milvus, MilvusIndex
from r2med.retrieve.interface import QueryForm
from r2med.retrieve.topk import Matrix, run_of, spread_over, top
from r2med.runs import Run
from r2med.runs.run import offsets_of
from r2med.settings import setting
from r2med.tasks.task import Queries, Task

Similarity = Literal["cosine", "dot"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]

#: The module that makes the encoders of a library by `build(checkpoint, settings, conditions)`,
#: where it is not `transformer`.
_MODULES: Mapping[str, str] = {"static": "static", "method": "foreign"}


@dataclass(frozen=True)
class Settings:
    """All that an entry of the dense engine may say; encoders.toml documents each field."""

    library: Literal["auto", "transformers", "sentence-transformers", "method", "static"]
    pooling: Literal["model", "cls", "mean", "last"]
    pool_instruction: bool
    attention: Literal["model", "bidirectional"]
    normalize: bool
    append_eos: bool
    document_pair: bool
    query_instruction: str
    document_instruction: str
    query_prompt: str
    document_prompt: str
    generated: Literal["plain", "query"]
    kind: str
    purpose: str
    dtype: Precision
    autocast: bool
    similarity: Similarity
    storage: Storage
    checkpoint: str = setting(identity="content")
    query_checkpoint: str = setting(identity="content")
    document_checkpoint: str = setting(identity="content")
    revision: str = setting(identity="content")
    max_length: int = setting(least=0)
    query_max_length: int = setting(least=0)
    document_max_length: int = setting(least=0)
    dimensions: int = setting(least=0)
    index: str = setting(identity="content")
    index_kind: Literal["flat", "hnsw", "ivf_flat"] = setting(identity="content")
    m: int = setting(least=0, identity="content")
    ef_construction: int = setting(least=0, identity="content")
    ef: int = setting(least=0, identity="content")
    nlist: int = setting(least=0, identity="content")
    nprobe: int = setting(least=0, identity="content")

    def checkpoints(self) -> tuple[str, str]:
        """Of the query and the document side."""
        query = self.query_checkpoint or self.checkpoint
        document = self.document_checkpoint or self.checkpoint
        if not query or not document:
            raise UsageError(
                "no checkpoint is given. Name one as in dense:PATH_OR_HUB_NAME, or with "
                "[checkpoint=...]."
            )
        return query, document

    def refuse_without_effect(self, encoder: str, fixed: Mapping[str, tuple[object, ...]]) -> None:
        """A UsageError for a setting that an encoder cannot follow; `fixed` says what it has."""
        for name, possible in fixed.items():
            if getattr(self, name) not in possible:
                value, had = str(getattr(self, name)).lower(), str(possible[0]).lower()
                raise UsageError(
                    f"{name}={value} has no effect on {encoder}, which has {name}={had}."
                )

    def form(self, task: Task, side: Side) -> Form:
        """How the texts of one side of a task are put to the model."""

        def own(name: str) -> Any:
            return getattr(self, f"{side}_{name}")

        template = own("instruction")
        if own("prompt"):
            checkpoint = own("checkpoint") or self.checkpoint
            template = _prompt(checkpoint, self.revision, own("prompt"))
        return Form(
            instruction=worded(template, task, kind=self.kind, purpose=self.purpose),
            max_length=own("max_length") or self.max_length,
            pair=self.document_pair and side == "document",
        )


def worded(template: str, task: Task, *, kind: str = "", purpose: str = "") -> str:
    """An instruction in a task's own words; braces that are no placeholder stay as they are.

    `{kind}` and `{purpose}` are the task's registered words unless others are given, `{goal}` and
    `{passage}` those that belong to them; data of the user's own has the first row of wording.toml.
    """
    rows = _wordings()
    kind = kind or (task.entry.kind if task.entry else rows[0]["kind"])
    purpose = purpose or (task.entry.purpose if task.entry else rows[0]["purpose"])
    alike = [row for row in rows if row["purpose"] == purpose]
    best = next((row for row in alike if row["kind"] == kind), (alike or rows)[0])
    words = {"kind": kind, "purpose": purpose, "goal": best["goal"], "passage": best["passage"]}
    for name, word in words.items():
        template = template.replace("{" + name + "}", word)
    return template


@cache
def _wordings() -> tuple[Mapping[str, str], ...]:
    text = (files("r2med.retrieve.dense") / "wording.toml").read_text(encoding="utf-8")
    return tuple(tomllib.loads(text)["wording"])


def _prompt(checkpoint: str, revision: str, name: str) -> str:
    """The text of a prompt that a sentence-transformers checkpoint carries."""
    config = locate(checkpoint, revision=revision).json("config_sentence_transformers.json") or {}
    prompts = config.get("prompts") or {}
    if name not in prompts:
        raise UsageError(
            f"{checkpoint} carries no prompt {name!r}. "
            + (nearest(name, prompts) if prompts else "It carries none at all.")
        )
    return str(prompts[name])


def build(settings: Settings, conditions: Conditions) -> DenseRetriever:
    """A retriever as its entry describes it; nothing is located or loaded yet."""
    query, document = settings.checkpoints()
    return DenseRetriever(
        name=query if query == document else f"{query} and {document}",
        make=lambda: _encoders(settings, conditions),
        form=settings.form,
        search=Search(settings.similarity, settings.dimensions),
        storage=settings.storage,
        instruct_generated=settings.generated == "query",
        milvus=Milvus.of(settings),
        conditions=conditions,
    )


def _encoders(settings: Settings, conditions: Conditions) -> tuple[Encoder, Encoder]:
    name = _MODULES.get(settings.library, "transformer")
    module = importlib.import_module(f"r2med.retrieve.dense.{name}")
    make = cast("Callable[[str, Settings, Conditions], Encoder]", module.build)
    query, document = settings.checkpoints()
    encoder = make(document, settings, conditions)
    return (encoder if query == document else make(query, settings, conditions)), encoder


@dataclass(frozen=True)
class Search:
    """How vectors are compared."""

    similarity: Similarity = "cosine"
    dimensions: int = 0
    """The first so many numbers of each vector; 0: all."""

    def ready(self, vectors: Matrix) -> Matrix:
        """Vectors whose dot product is the score."""
        shortened = vectors[:, : self.dimensions] if self.dimensions else vectors
        return unit(shortened) if self.similarity == "cosine" else shortened


@dataclass(frozen=True)
class DenseRetriever:
    """Two encoders, often the same one, and how their vectors are searched."""

    name: str
    make: Callable[[], tuple[Encoder, Encoder]]
    """Makes the encoders of queries and documents, when they are first needed."""
    form: Callable[[Task, Side], Form]
    """How a task's texts are put to the model."""
    search: Search = field(default_factory=Search)
    storage: Storage = "float32"
    instruct_generated: bool = False
    """Whether text of a language model is put to the encoder with the query's instruction."""
    milvus: Milvus | None = None
    """Where vectors are searched, if not by this program."""
    besides: Mapping[str, object] = field(default_factory=dict)
    """What decides rankings besides encoders, where it is not in a registry entry's settings."""
    conditions: Conditions = field(default_factory=Conditions)
    own: object = None
    """The user's object that encodes, where one does."""
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
        """The encoders, by what their files hold; one that nobody can name is new in every run."""
        query, document = (
            dict(self.encoders[side].identity or {"unidentified": self.token}) for side in SIDES
        )
        index = {"index": dict(self.milvus.identity)} if self.milvus else {}
        return {"query_encoder": query, "document_encoder": document, **index, **self.besides}

    @property
    def approximate(self) -> bool:
        """Whether its index may miss what exact search finds."""
        return self.milvus is not None and self.milvus.approximate

    def prepare(self, task: Task) -> DenseSearcher:
        """Encode the last row of every document id, or take its vector from the store."""
        ids, texts = task.corpus.document_ids, document_texts(task)
        documents = self.encode(task, "document", texts, lambda row: f"document {ids[row]}")
        return DenseSearcher(self, task, documents)

    def encode(
        self,
        task: Task,
        side: Side,
        texts: Sequence[str],
        name: Callable[[int], str] | None = None,
        *,
        instructed: bool = True,
    ) -> Encoded:
        """The vectors of some texts of one side, with that side's instruction or bare.

        `name` says what to call the text of a row in an error.
        """
        encoder = self.encoders[side]
        form = self.form(task, side)
        if not instructed:
            form = replace(form, instruction="")
        encoded = Encoding(
            encoder=encoder,
            form=form,
            side=side,
            texts=texts,
            name=name or (lambda row: f"{side} {row + 1}"),
            shelf=self.shelf(encoder),
            conditions=self.conditions,
        ).run()
        if same := encoded.sameness():
            shared = same == "equal" and side == "query"
            ranking = "the same for every query" if shared else "the corpus order"
            self.conditions.tell(
                f"{task.name}: all {side} vectors of {self.name} are {same}: the ranking is "
                f"{ranking}."
            )
        return encoded

    def shelf(self, encoder: Encoder) -> Shelf:
        """Where an encoder's vectors are kept."""
        return open_shelf(
            "embeddings",
            encoder.identity,
            label=self.name,
            storage=self.storage,
            tell=self.conditions.tell,
        )


class DenseSearcher:
    """A task's documents as vectors."""

    def __init__(self, retriever: DenseRetriever, task: Task, documents: Encoded) -> None:
        self._retriever = retriever
        self._task = task
        self._index = Index(documents, retriever.search, retriever.conditions.memory)
        self._facts: dict[str, object] = {"documents": documents.facts}
        self._search = self._index.search
        if retriever.milvus:
            rows, places = self._index.rows, documents.places
            engine = MilvusIndex(
                retriever.milvus, rows, documents.distinct, len(places), retriever.conditions
            )
            self._search = engine.search
            self._facts["index"] = engine.facts

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The nearest documents; one whose id is the query's own is left out, as published."""
        texts: list[str] = queries.texts.fill_null("").to_pylist()
        encoded = self._retriever.encode(self._task, "query", texts)
        self._facts["queries"] = encoded.facts
        return self._run(queries.ids, encoded.matrix()[encoded.distinct], depth)

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> Run:
        """As `search`, each query's vector being the plain mean of its parts' vectors."""
        parts = [part for form in forms for part in form.dense]
        counts = np.array([len(form.dense) for form in forms], dtype=np.int64)
        bare = [part.generated and not self._retriever.instruct_generated for part in parts]
        rows, vectors = [], []
        for instructed, name in ((True, "queries"), (False, "generated")):
            chosen = np.flatnonzero(np.array(bare) != instructed)
            if len(chosen):
                texts = [parts[row].text for row in chosen]
                encoded = self._retriever.encode(self._task, "query", texts, instructed=instructed)
                self._facts[name] = encoded.facts
                rows.append(chosen)
                vectors.append(encoded.matrix()[encoded.distinct])
        in_order = np.concatenate(vectors)[np.argsort(np.concatenate(rows))]
        sums = np.add.reduceat(in_order, offsets_of(counts)[:-1], axis=0)
        means = (sums / counts[:, None]).astype(np.float32)
        ids = pa.array([form.query_id for form in forms], type=pa.large_string())
        return self._run(ids, means, depth)

    def facts(self) -> Mapping[str, object]:
        """Both sides' counts and first texts as the model saw them, and what ran."""
        query, document = (dict(self._retriever.encoders[side].facts()) for side in SIDES)
        ran = document if query == document else {"query": query, "document": document}
        return {"encoder": ran, **self._facts, **costs(self._facts)}

    def _run(self, ids: pa.Array, vectors: Matrix, depth: int) -> Run:
        width = vectors.shape[1]
        if len(vectors) and self._index.width not in (0, width):
            raise DataError(
                f"{self._retriever.name}: queries have vectors of {width} numbers, documents of "
                f"{self._index.width}; expected one width on both sides."
            )
        documents, scores = self._search(vectors, depth=depth + 1)
        return run_of(ids, self._task, documents, scores, depth)


class Index:
    """Documents' vectors, in memory where they fit the budget, else read when needed.

    Distinct texts are searched once, so equal texts score equally to the last bit.
    """

    def __init__(self, documents: Encoded, search: Search, memory: int) -> None:
        self.width = documents.width
        if self.width and search.dimensions > self.width:
            raise UsageError(
                f"dimensions={search.dimensions}: the encoder's vectors have {self.width} "
                f"numbers, of which the first are kept. Give {self.width} or less, or 0 for all."
            )
        self._documents = documents
        self._search = search
        self._memory = memory
        small = len(documents.places) * self.width * 4 <= memory
        self._kept = search.ready(documents.matrix()) if small else None

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """The best documents of every query, ties in corpus order; absent ones are -2."""
        ready, count = self._search.ready(queries), len(self._documents.places)
        texts, scores = top(ready, self.rows, count, depth=depth, memory=self._memory)
        return spread_over(self._documents.distinct, texts, scores, depth)

    def rows(self, start: int, stop: int) -> Matrix:
        """Vectors of distinct texts, whose dot product with a ready query is the score."""
        if self._kept is not None:
            return self._kept[start:stop]
        return self._search.ready(self._documents.matrix(start, stop))


def costs(facts: Mapping[str, object]) -> dict[str, object]:
    """What was really encoded, over all sides: texts, tokens and a server's bill where known."""
    sides = [side for side in facts.values() if isinstance(side, Mapping)]
    tokens = sum(side.get("billed_tokens", side.get("encoded_tokens")) or 0 for side in sides)
    reused = sum(side["reused"] for side in sides if "reused" in side)
    texts = sum(side["distinct"] for side in sides if "reused" in side) - reused
    total: dict[str, object] = {"texts": texts, "tokens": tokens or None, "cached": reused}
    for name in ("calls", "money"):
        bills = [side[name] for side in sides if side.get(name) is not None]
        total |= {name: sum(bills)} if bills else {}
    return total
