"""Dense retrieval: an encoder's entry as typed values, and the nearest documents by its vectors."""

from __future__ import annotations

import importlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.algorithms import versions
from r2med.errors import DataError, UsageError, nearest
from r2med.execution.resources import Resources
from r2med.execution.usage import Usage
from r2med.execution.workers import StageSpec
from r2med.models.batching import Batches
from r2med.models.checkpoint import locate
from r2med.models.embedding_cache import EmbeddingCache, Storage, open_cache
from r2med.models.encoding import SIDES, Encoded, Encoder, Form, Side, encode, unit
from r2med.retrieve.dense.milvus import Milvus, MilvusIndex
from r2med.retrieve.interface import QueryForm, SearchOutput
from r2med.retrieve.topk import Matrix, drops_query_id, run_of, spread_over, top
from r2med.runs import Run
from r2med.runs.run import offsets_of
from r2med.settings import read_packaged_toml, setting
from r2med.tasks.task import Queries, Task

Similarity = Literal["cosine", "dot"]
Precision = Literal["auto", "float32", "float16", "bfloat16"]

#: The module that makes the encoders of a library by `build(checkpoint, settings, resources)`,
#: where it is not `transformer`.
_MODULES: Mapping[str, str] = {"static": "static", "method": "library_encoders"}
#: The value of `query_prompt` and `document_prompt` that follows sentence-transformers.
AUTO_PROMPT = "auto"
#: Vectors that are compared to tell whether a model gives all texts the same one.
_COMPARED = 1000


@dataclass(frozen=True)
class Settings:
    """All that an entry of the dense backend may say; encoders.toml documents each field."""

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

        template, prompt = own("instruction"), own("prompt")
        if prompt and not (prompt == AUTO_PROMPT and template):
            template = self._saved_prompt(own("checkpoint") or self.checkpoint, side, prompt)
        return Form(
            instruction=word_instruction(template, task, kind=self.kind, purpose=self.purpose),
            max_length=own("max_length") or self.max_length,
            pair=self.document_pair and side == "document",
        )

    def _saved_prompt(self, checkpoint: str, side: Side, prompt: str) -> str:
        """A prompt that is saved in the checkpoint, by its name.

        `auto` is the one that sentence-transformers uses: that of the side, else the default one.
        (It also lists `passage` and `corpus`, but never reaches them, because every model has an
        empty prompt for documents.)
        """
        located = locate(checkpoint, revision=self.revision)
        config = located.json("config_sentence_transformers.json") or {}
        prompts: Mapping[str, str] = config.get("prompts") or {}
        if prompt == AUTO_PROMPT:
            if not located.file("modules.json").is_file():
                return ""
            default = str(config.get("default_prompt_name"))
            return str(prompts.get(side) or prompts.get(default) or "")
        if prompt not in prompts:
            known = nearest(prompt, prompts) if prompts else "It carries none at all."
            raise UsageError(f"{checkpoint} carries no prompt {prompt!r}. {known}")
        return str(prompts[prompt])


def word_instruction(template: str, task: Task, *, kind: str = "", purpose: str = "") -> str:
    """An instruction in a task's own words; braces that are no placeholder stay as they are.

    `{kind}` and `{purpose}` are the task's registered words unless others are given, `{goal}` and
    `{passage}` those that belong to them; data of the user's own has the first row of wording.toml.
    """
    rows = read_packaged_toml("retrieve/dense/wording.toml")["wording"]
    kind = kind or (task.entry.kind if task.entry else rows[0]["kind"])
    purpose = purpose or (task.entry.purpose if task.entry else rows[0]["purpose"])
    alike = [row for row in rows if row["purpose"] == purpose]
    best = next((row for row in alike if row["kind"] == kind), (alike or rows)[0])
    words = {"kind": kind, "purpose": purpose, "goal": best["goal"], "passage": best["passage"]}
    for name, word in words.items():
        template = template.replace("{" + name + "}", word)
    return template


def build(settings: Settings, resources: Resources) -> DenseRetriever:
    """A retriever as its entry describes it; nothing is located or loaded yet."""
    query = settings.query_checkpoint or settings.checkpoint
    document = settings.document_checkpoint or settings.checkpoint
    if not query or not document:
        raise UsageError(
            "no checkpoint is given. Name one as in dense:PATH_OR_HUB_NAME, or with "
            "[checkpoint=...]."
        )

    def encoders() -> tuple[Encoder, Encoder]:
        name = _MODULES.get(settings.library, "transformer")
        make = importlib.import_module(f"r2med.retrieve.dense.{name}").build
        encoder = make(document, settings, resources)
        return (encoder if query == document else make(query, settings, resources)), encoder

    return DenseRetriever(
        name=query if query == document else f"{query} and {document}",
        make=encoders,
        form=settings.form,
        similarity=settings.similarity,
        dimensions=settings.dimensions,
        storage=settings.storage,
        instruct_generated=settings.generated == "query",
        milvus=Milvus.of(settings),
        resources=resources,
    )


@dataclass(frozen=True, kw_only=True)
class EncoderRetriever:
    """Two encoders, often the same one, and the store of what they give."""

    name: str
    make: Callable[[], tuple[Encoder, Encoder]]
    """Makes the encoders of queries and documents, when they are first needed."""
    form: Callable[[Task, Side], Form]
    """How a task's texts are put to the model."""
    storage: Storage = "float32"
    ragged: bool = False
    """Whether rows of the store differ in width, as those of several vectors per text do."""
    resources: Resources = field(default_factory=Resources)
    worker_stage: StageSpec | None = None
    """From what workers build this retriever; None for an object that exists only here."""

    @cached_property
    def batches(self) -> Batches:
        """The batch size that fits the memory, which encoding may lower."""
        return Batches(self.resources.options.batch_tokens, self.resources.warn)

    @cached_property
    def encoders(self) -> Mapping[Side, Encoder]:
        """By side; often one and the same."""
        query, document = self.make()
        if document.identity is None:
            self.resources.warn(
                f"{self.name}: it has no `identity`, so its embeddings are not kept; "
                "docs/your-model.md says how to give it one."
            )
        return {"query": query, "document": document}

    def task_identity(self, task: Task) -> Mapping[str, object]:
        """What depends on the task: each side's texts as the model reads them, and a dropped id."""
        forms = {side: asdict(self.form(task, side)) for side in SIDES}
        return {"text_forms": forms, "drops_query_id": drops_query_id(task)}

    def encode_documents(self, task: Task) -> Encoded:
        """The vectors of the last row of every document id."""
        ids, texts = task.corpus.document_ids, task.corpus.document_texts()
        return self.encode(task, "document", texts, lambda row: f"document {ids[row]}")

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
        form = self.form(task, side)
        encoded = encode(
            self.encoders[side],
            texts,
            form if instructed else replace(form, instruction=""),
            self.cache(side),
            self.resources,
            batches=self.batches,
            name_text=name or (lambda row: f"{side} {row + 1}"),
            description=f"encoding {'queries' if side == 'query' else 'documents'}",
            part=side,
            worker_stage=self.worker_stage,
            ragged=self.ragged,
        )
        first = encoded.matrix(0, 1 if self.ragged else _COMPARED)
        if len(first) > 1 and (first == first[0]).all():
            self.resources.warn(
                f"{task.name}: {self.name} gives every {side} the same vector; such a ranking says "
                "nothing."
            )
        return encoded

    def cache(self, side: Side) -> EmbeddingCache:
        """Open the embedding cache of a side."""
        identity, warn = self.encoders[side].identity, self.resources.warn
        return open_cache("embeddings", identity, self.name, warn, storage=self.storage)


@dataclass(frozen=True, kw_only=True)
class DenseRetriever(EncoderRetriever):
    """One vector for each text, and how these are searched."""

    similarity: Similarity = "cosine"
    dimensions: int = 0
    """The first so many numbers of each vector; 0: all."""
    instruct_generated: bool = False
    """Whether text of a language model is put to the encoder with the query's instruction."""
    milvus: Milvus | None = None
    """Where vectors are searched, if not by this program."""
    besides: Mapping[str, object] = field(default_factory=dict)
    """What decides rankings besides encoders, where it is not in a registry entry's settings."""
    own: object = None
    """The user's object that encodes, where one does."""
    token: str = field(default_factory=lambda: secrets.token_hex(8))
    """Stands for an encoder that nobody can name: no other run will ever have it."""

    @property
    def identity(self) -> Mapping[str, object]:
        """The encoders, by what their files hold; one that nobody can name is new in every run."""
        query, document = (
            dict(self.encoders[side].identity or {"unidentified": self.token}) for side in SIDES
        )
        index = {"index": dict(self.milvus.identity)} if self.milvus else {}
        return {
            "query_encoder": query,
            "document_encoder": document,
            "algorithms": versions("vector-search"),
            **index,
            **self.besides,
        }

    @property
    def approximate(self) -> bool:
        """Whether its index may miss what exact search finds."""
        return self.milvus is not None and self.milvus.kind != "flat"

    def prepare(self, task: Task) -> DenseSearcher:
        """Encode the last row of every document id, or take its vector from the store."""
        return DenseSearcher(self, task, self.encode_documents(task))


class DenseSearcher:
    """A task's documents as vectors."""

    def __init__(self, retriever: DenseRetriever, task: Task, documents: Encoded) -> None:
        self._retriever = retriever
        self._task = task
        memory, dimensions = retriever.resources.options.memory, retriever.dimensions
        self._index = ExactIndex(documents, memory, retriever.similarity, dimensions)
        self.usage = documents.usage
        self._facts: dict[str, object] = {"documents": documents.facts}
        self._milvus: MilvusIndex | None = None
        if milvus := retriever.milvus:
            rows, count = self._index.rows, len(documents.indexes)
            distinct, resources = documents.distinct, retriever.resources
            self._milvus = MilvusIndex(milvus, rows, distinct, count, resources)
            self._facts["index"] = self._milvus.facts

    def search(self, queries: Queries, *, depth: int) -> Run:
        """Return the nearest documents of every query."""
        return self.search_queries(queries, depth=depth).run

    def search_queries(self, queries: Queries, *, depth: int) -> SearchOutput:
        """Return the nearest documents with facts and usage."""
        texts: list[str] = queries.texts.fill_null("").to_pylist()
        encoded = self._retriever.encode(self._task, "query", texts)
        run = self._run(queries.ids, encoded.matrix()[encoded.distinct], depth)
        return SearchOutput(run, {"queries": encoded.facts}, encoded.usage)

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with the plain mean of the vectors of each query's parts."""
        parts = [part for form in forms for part in form.dense]
        counts = np.array([len(form.dense) for form in forms], dtype=np.int64)
        bare = [part.generated and not self._retriever.instruct_generated for part in parts]
        rows, vectors, facts, usage = [], [], dict[str, object](), Usage()
        for instructed, name in ((True, "queries"), (False, "generated")):
            chosen = np.flatnonzero(np.array(bare) != instructed)
            if len(chosen):
                texts = [parts[row].text for row in chosen]
                encoded = self._retriever.encode(self._task, "query", texts, instructed=instructed)
                facts[name] = encoded.facts
                usage += encoded.usage
                rows.append(chosen)
                vectors.append(encoded.matrix()[encoded.distinct])
        in_order = np.concatenate(vectors)[np.argsort(np.concatenate(rows))]
        sums = np.add.reduceat(in_order, offsets_of(counts)[:-1], axis=0)
        means = (sums / counts[:, None]).astype(np.float32)
        ids = pa.array([form.query_id for form in forms], type=pa.large_string())
        return SearchOutput(self._run(ids, means, depth), facts, usage)

    def facts(self) -> Mapping[str, object]:
        """Return counts of the documents, the first one as the model saw it, and what ran."""
        query, document = (dict(self._retriever.encoders[side].facts()) for side in SIDES)
        ran = document if query == document else {"query": query, "document": document}
        return {"encoder": ran, **self._facts}

    def _run(self, ids: pa.Array, vectors: Matrix, depth: int) -> Run:
        width = vectors.shape[1]
        if len(vectors) and self._index.width not in (0, width):
            raise DataError(
                f"{self._retriever.name}: queries have vectors of {width} numbers, documents of "
                f"{self._index.width}; expected one width on both sides."
            )
        ready = self._index.ready(vectors)
        documents, scores = (self._milvus or self._index).search(ready, depth=depth + 1)
        return run_of(ids, self._task, documents, scores, depth)


@dataclass(eq=False)
class ExactIndex:
    """Documents' vectors, in memory where they fit the budget, else read when needed.

    Distinct texts are searched once, so equal texts score equally to the last bit.
    """

    documents: Encoded
    memory: int
    similarity: Similarity = "cosine"
    dimensions: int = 0
    """The first so many numbers of each vector; 0: all."""

    def __post_init__(self) -> None:
        self.width = int(self.documents.matrix(0, 1).shape[1])
        if self.width and self.dimensions > self.width:
            raise UsageError(
                f"dimensions={self.dimensions}: the encoder's vectors have {self.width} "
                f"numbers, of which the first are kept. Give {self.width} or less, or 0 for all."
            )
        small = len(self.documents.indexes) * self.width * 4 <= self.memory
        self._kept = self.ready(self.documents.matrix()) if small else None

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """The best documents of every ready query, ties in corpus order; absent ones are -2."""
        count = len(self.documents.indexes)
        texts, scores = top(queries, self.rows, count, depth=depth, memory=self.memory)
        return spread_over(self.documents.distinct, texts, scores, depth)

    def rows(self, start: int, stop: int) -> Matrix:
        """Vectors of distinct texts, whose dot product with a ready query is the score."""
        if self._kept is not None:
            return self._kept[start:stop]
        return self.ready(self.documents.matrix(start, stop))

    def ready(self, vectors: Matrix) -> Matrix:
        """Vectors of queries or documents, whose dot product is the score."""
        shortened = vectors[:, : self.dimensions or None]
        return unit(shortened) if self.similarity == "cosine" else shortened
