"""Dense retrieval: the settings of encoders, and the search for the nearest documents."""

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

#: The modules whose `build(checkpoint, settings, resources)` makes the encoders of a library;
#: `transformer` makes all others.
_MODULES: Mapping[str, str] = {"static": "static", "method": "library_encoders"}
#: The value of `query_prompt` and `document_prompt` that follows sentence-transformers.
AUTO_PROMPT = "auto"
#: Vectors that are compared to find a model that gives all texts the same one.
_COMPARED = 1000


@dataclass(frozen=True)
class Settings:
    """The settings of an entry of the dense backend; encoders.toml documents each field."""

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
        """Raise UsageError if a setting has no effect on an encoder.

        `fixed` maps the names of these settings to the values that are accepted; the first of them
        is the one that the encoder uses.
        """
        for name, accepted in fixed.items():
            if getattr(self, name) not in accepted:
                value, effective = str(getattr(self, name)).lower(), str(accepted[0]).lower()
                raise UsageError(
                    f"{name}={value} has no effect on {encoder}, which has {name}={effective}."
                )

    def form(self, task: Task, side: Side) -> Form:
        """Return the instruction and limits for the texts of one side of a task."""

        def setting_of_side(name: str) -> Any:
            return getattr(self, f"{side}_{name}")

        template, prompt = setting_of_side("instruction"), setting_of_side("prompt")
        if prompt and not (prompt == AUTO_PROMPT and template):
            checkpoint = setting_of_side("checkpoint") or self.checkpoint
            template = self._saved_prompt(checkpoint, side, prompt)
        return Form(
            instruction=word_instruction(
                template, task, question_type=self.kind, purpose=self.purpose
            ),
            max_length=setting_of_side("max_length") or self.max_length,
            pair=self.document_pair and side == "document",
        )

    def _saved_prompt(self, checkpoint: str, side: Side, prompt: str) -> str:
        """Return the text of the prompt with this name in the checkpoint.

        `auto` is the prompt that sentence-transformers uses: the one of the side, else the default.
        (sentence-transformers also lists `passage` and `corpus`, but never uses them, because every
        model has an empty prompt for documents.)
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
            hint = nearest(prompt, prompts) if prompts else "It has no prompts."
            raise UsageError(f"{checkpoint} has no prompt {prompt!r}. {hint}")
        return str(prompts[prompt])


def word_instruction(
    template: str, task: Task, *, question_type: str = "", purpose: str = ""
) -> str:
    """Fill the placeholders of an instruction with the words of a task; other braces are kept.

    `{kind}` (the type of question) and `{purpose}` are the task's registered words unless others
    are given; `{goal}` and `{passage}` depend on these two. Local tasks use the first row of
    wording.toml.
    """
    rows = read_packaged_toml("retrieve/dense/wording.toml")["wording"]
    question_type = question_type or (task.entry.kind if task.entry else rows[0]["kind"])
    purpose = purpose or (task.entry.purpose if task.entry else rows[0]["purpose"])
    same_purpose = [row for row in rows if row["purpose"] == purpose]
    same_both = [row for row in same_purpose if row["kind"] == question_type]
    best = (same_both or same_purpose or rows)[0]
    words = {
        "kind": question_type,
        "purpose": purpose,
        "goal": best["goal"],
        "passage": best["passage"],
    }
    for name, word in words.items():
        template = template.replace("{" + name + "}", word)
    return template


def build(settings: Settings, resources: Resources) -> DenseRetriever:
    """Return a retriever with these settings; checkpoints are located and loaded on first use."""
    query = settings.query_checkpoint or settings.checkpoint
    document = settings.document_checkpoint or settings.checkpoint
    if not query or not document:
        raise UsageError(
            "the checkpoint is missing. Name one as in dense:PATH_OR_HUB_NAME, or with "
            "[checkpoint=...]."
        )

    def make_encoders() -> tuple[Encoder, Encoder]:
        module = _MODULES.get(settings.library, "transformer")
        build_encoder = importlib.import_module(f"r2med.retrieve.dense.{module}").build
        document_encoder = build_encoder(document, settings, resources)
        if query == document:
            return document_encoder, document_encoder
        return build_encoder(query, settings, resources), document_encoder

    return DenseRetriever(
        name=query if query == document else f"{query} and {document}",
        make_encoders=make_encoders,
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
    """A retriever with an encoder for queries and an encoder for documents, often the same one."""

    name: str
    make_encoders: Callable[[], tuple[Encoder, Encoder]]
    """Function that makes the encoders of queries and of documents; called on first use."""
    form: Callable[[Task, Side], Form]
    """Function that returns the instruction and limits for the texts of one side of a task."""
    storage: Storage = "float32"
    ragged: bool = False
    """Whether the rows of texts differ in width, as with several vectors per text."""
    resources: Resources = field(default_factory=Resources)
    worker_stage: StageSpec | None = None
    """The spec by which workers build this retriever; None if it exists only in this process."""

    @cached_property
    def batches(self) -> Batches:
        """The batch size, which is lowered if memory runs out."""
        return Batches(self.resources.options.batch_tokens, self.resources.warn)

    @cached_property
    def encoders(self) -> Mapping[Side, Encoder]:
        """The encoders by side; often the same object."""
        query, document = self.make_encoders()
        if document.identity is None:
            self.resources.warn(
                f"{self.name}: the model has no `identity`, so its embeddings are not cached; see "
                "docs/your-model.md."
            )
        return {"query": query, "document": document}

    def task_identity(self, task: Task) -> Mapping[str, object]:
        """Return the part of the identity that depends on the task: the forms of both sides."""
        forms = {side: asdict(self.form(task, side)) for side in SIDES}
        return {"text_forms": forms, "drops_query_id": drops_query_id(task)}

    def encode_documents(self, task: Task) -> Encoded:
        """Return the vectors of the documents.

        If an id is repeated, the text of its last row is used.
        """
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
        """Return the vectors of texts, encoded as queries or as documents.

        Args:
            task: The task, whose words fill in the instruction.
            side: "query" or "document".
            texts: The texts.
            name: Returns the name of a row's text for error messages.
            instructed: Whether the side's instruction is put before each text.

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
                f"{task.name}: {self.name} gives every {side} the same vector, so the ranking is "
                "meaningless."
            )
        return encoded

    def cache(self, side: Side) -> EmbeddingCache:
        """Open the embedding cache of the encoder of a side."""
        identity, warn = self.encoders[side].identity, self.resources.warn
        return open_cache("embeddings", identity, self.name, warn, storage=self.storage)


@dataclass(frozen=True, kw_only=True)
class DenseRetriever(EncoderRetriever):
    """A retriever with one vector per text."""

    similarity: Similarity = "cosine"
    dimensions: int = 0
    """How many of the leading dimensions of each vector are used; 0 uses all."""
    instruct_generated: bool = False
    """Whether text of a language model is encoded with the instruction for queries."""
    milvus: Milvus | None = None
    """The Milvus index to search; None searches exactly in this process."""
    extra_identity: Mapping[str, object] = field(default_factory=dict)
    """Settings that decide rankings but are not fields of a registry entry."""
    custom_model: object = None
    """The user's object that encodes; None for a registered encoder."""
    random_identity: str = field(default_factory=lambda: secrets.token_hex(8))
    """Identifies an encoder that has no `identity`; different in every run."""

    @property
    def identity(self) -> Mapping[str, object]:
        """Everything that decides rankings, except the settings.

        These are the content of the encoders' files, the index, and the version of the search.
        """
        unidentified = {"unidentified": self.random_identity}
        query, document = (dict(self.encoders[side].identity or unidentified) for side in SIDES)
        index = {"index": dict(self.milvus.identity)} if self.milvus else {}
        return {
            "query_encoder": query,
            "document_encoder": document,
            "algorithms": versions("vector-search"),
            **index,
            **self.extra_identity,
        }

    @property
    def approximate(self) -> bool:
        """Whether the index may miss documents that exact search finds."""
        return self.milvus is not None and self.milvus.index_type != "flat"

    def prepare(self, task: Task) -> DenseSearcher:
        """Encode the documents, or read their vectors from the embedding cache."""
        return DenseSearcher(self, task, self.encode_documents(task))


class DenseSearcher:
    """The vectors of a task's documents, ready to be searched."""

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
        """Return the nearest documents of every query, with facts for the record and the usage."""
        texts: list[str] = queries.texts.fill_null("").to_pylist()
        encoded = self._retriever.encode(self._task, "query", texts)
        run = self._run(queries.ids, encoded.matrix()[encoded.distinct], depth)
        return SearchOutput(run, {"queries": encoded.facts}, encoded.usage)

    def search_forms(self, forms: Sequence[QueryForm], *, depth: int) -> SearchOutput:
        """Search with expanded queries: a query's vector is the mean of its parts' vectors."""
        parts = [part for form in forms for part in form.dense]
        counts = np.array([len(form.dense) for form in forms], dtype=np.int64)
        is_instructed = np.array(
            [self._retriever.instruct_generated or not part.generated for part in parts]
        )
        rows, vectors = [], []
        facts: dict[str, object] = {}
        usage = Usage()
        for instructed, name in ((True, "queries"), (False, "generated")):
            chosen = np.flatnonzero(is_instructed == instructed)
            if len(chosen):
                texts = [parts[row].text for row in chosen]
                encoded = self._retriever.encode(self._task, "query", texts, instructed=instructed)
                facts[name] = encoded.facts
                usage += encoded.usage
                rows.append(chosen)
                vectors.append(encoded.matrix()[encoded.distinct])
        part_vectors = np.concatenate(vectors)[np.argsort(np.concatenate(rows))]
        sums = np.add.reduceat(part_vectors, offsets_of(counts)[:-1], axis=0)
        means = (sums / counts[:, None]).astype(np.float32)
        ids = pa.array([form.query_id for form in forms], type=pa.large_string())
        return SearchOutput(self._run(ids, means, depth), facts, usage)

    def facts(self) -> Mapping[str, object]:
        """Return facts for the record: encoders, document counts, the first document as encoded."""
        query, document = (dict(self._retriever.encoders[side].facts()) for side in SIDES)
        encoder = document if query == document else {"query": query, "document": document}
        return {"encoder": encoder, **self._facts}

    def _run(self, ids: pa.Array, vectors: Matrix, depth: int) -> Run:
        width = vectors.shape[1]
        if len(vectors) and self._index.width not in (0, width):
            raise DataError(
                f"{self._retriever.name}: queries have vectors of {width} numbers, documents of "
                f"{self._index.width}; expected the same width on both sides."
            )
        scaled = self._index.scale(vectors)
        # One document more than asked for, because the query's own id may be dropped.
        documents, scores = (self._milvus or self._index).search(scaled, depth=depth + 1)
        return run_of(ids, self._task, documents, scores, depth)


@dataclass(eq=False)
class ExactIndex:
    """Exact search over the vectors of documents, in memory if they fit, else read in blocks.

    Distinct texts are searched once, so equal texts have exactly equal scores.
    """

    documents: Encoded
    memory: int
    similarity: Similarity = "cosine"
    dimensions: int = 0
    """How many of the leading dimensions of each vector are used; 0 uses all."""

    def __post_init__(self) -> None:
        self.width = int(self.documents.matrix(0, 1).shape[1])
        if self.width and self.dimensions > self.width:
            raise UsageError(
                f"dimensions={self.dimensions}: the encoder's vectors have {self.width} "
                f"numbers. Use {self.width} or less, or 0 for all."
            )
        fits_in_memory = len(self.documents.indexes) * self.width * 4 <= self.memory
        self._in_memory = self.scale(self.documents.matrix()) if fits_in_memory else None

    def search(self, queries: Matrix, *, depth: int) -> tuple[NDArray[np.int64], Matrix]:
        """Return the best documents of every query and their scores; ties are in corpus order.

        `queries` must be scaled by `scale`. If a list has fewer documents than the others, it is
        filled up with -2.
        """
        count = len(self.documents.indexes)
        texts, scores = top(queries, self.rows, count, depth=depth, memory=self.memory)
        return spread_over(self.documents.distinct, texts, scores, depth)

    def rows(self, start: int, stop: int) -> Matrix:
        """Return the scaled vectors of a range of distinct texts."""
        if self._in_memory is not None:
            return self._in_memory[start:stop]
        return self.scale(self.documents.matrix(start, stop))

    def scale(self, vectors: Matrix) -> Matrix:
        """Return vectors cut to `dimensions` and normalised, so that dot products are scores."""
        shortened = vectors[:, : self.dimensions] if self.dimensions else vectors
        return unit(shortened) if self.similarity == "cosine" else shortened
