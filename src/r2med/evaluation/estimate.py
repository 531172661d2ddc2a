"""Estimate the use of a system on a task: requests, tokens, money, disk and memory.

Nothing is run and no server is contacted. Requests to paid models are counted on the task's texts
if its data is here, and otherwise on texts of the published number and mean length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from r2med.expand.expander import Generations, LiveGenerations
from r2med.expand.generations import StoredGenerations
from r2med.remote.budget import CHARACTERS_PER_TOKEN, RequestEstimate
from r2med.rerank.llm import LlmReranker
from r2med.retrieve.api import ApiRetriever
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval, Stage
from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Corpus, Judgements, Queries, Task, counts, statistics

#: The name of a stage, with the stages before it, and the estimate of its requests.
StageRequests = tuple[str, RequestEstimate]
WorkType = Literal[
    "index", "documents", "queries", "encode", "generate", "rerank", "answer", "judge"
]
#: Work that is repeated for every query, in contrast to work on the corpus.
PER_QUERY: tuple[WorkType, ...] = ("queries", "generate", "rerank", "answer")
#: Retrievers that run a model on texts, and those of them that store one vector per text.
_ENCODERS = ("dense", "api", "sparse", "late", "custom")
_SINGLE_VECTOR = ("dense", "api", "custom")
#: Documents in the placeholder of a missing corpus: more than any reranker reads per query.
_PLACEHOLDER_DOCUMENTS = 1000
#: BM25, measured on four collections of 6 to 180 million characters: bytes of the index per
#: character (0.44 to 0.47), and peak memory as a fixed part plus bytes per character.
_INDEX_BYTES_PER_CHARACTER = 0.47
_MEMORY_FIXED = 210e6
_MEMORY_BYTES_PER_CHARACTER = 4.0
_MEASURED_BASIS = "index size and memory by measurements on four collections"
_LOCAL_BASIS = f"{CHARACTERS_PER_TOKEN} characters per token; prompts of local models not counted"


def estimate_requests(
    stage: Stage, task: Task, expansion: Generations | None = None
) -> Iterator[StageRequests]:
    """Yield the estimated requests of each stage that calls a model over HTTP.

    `expansion` holds the generations with which an expander changes the queries of this stage.
    """
    match stage:
        case Retrieval(name=name, retriever=ApiRetriever() as retriever):
            yield name, _estimate_embedding_requests(retriever, task, expansion)
        case Fused(members=members):
            for member in members:
                yield from estimate_requests(member, task, expansion)
        case Expanding(name=name, first=first):
            bound = stage.generations(task)
            if isinstance(bound, LiveGenerations):
                yield name, bound.estimate()
            for inner_name, estimate in estimate_requests(first, task, bound):
                yield f"{name} | {inner_name}", estimate
        case Reranking(first=first, reranker=reranker):
            yield from estimate_requests(first, task)
            if isinstance(reranker, LlmReranker):
                depth = min(stage.reranked, first.depth)
                yield f"{first.text} | {stage.name}", reranker.estimate(task, depth)


def _estimate_embedding_requests(
    retriever: ApiRetriever, task: Task, expansion: Generations | None
) -> RequestEstimate:
    queries = None
    if isinstance(expansion, StoredGenerations):
        forms = [form for variant in expansion.expand().variants for form in variant]
        queries = [part.text for form in forms for part in form.dense]
    elif expansion is not None:
        originals = task.queries.texts.to_pylist()
        count = len(originals) * expansion.method.n
        _, generations = _make_texts(count, expansion.expected_tokens)
        queries = [*originals, *generations]
    return retriever.estimate(task, queries)


@dataclass(frozen=True)
class TaskSize:
    """The amount of text in a task: numbers of texts and their mean lengths."""

    task: str
    entry: TaskEntry | None
    documents: int
    """Number of distinct document texts; equal texts are encoded once."""
    document_tokens: float
    document_characters: float
    queries: int
    query_tokens: float
    data: Task | None = None
    """The loaded task; None if its data is not here or its number of documents is replaced."""

    @classmethod
    def measure(cls, task: TaskEntry | Task, passages: int | None = None) -> TaskSize:
        """Return the size of a task: published figures, or counts of the texts if it is loaded.

        `passages` replaces the number of documents; their mean length stays that of the task.
        """
        entry: TaskEntry | None
        data: Task | None
        if isinstance(task, TaskEntry):
            entry, data = task, None
            counted, texts, tokens = task.counts, task.statistics, task.readme
        else:
            entry, data = task.entry, task if passages is None else None
            counted, texts, tokens = counts(task), statistics(task), {}
        document_characters = texts["documents_text"]["average_text_length"]
        query_characters = texts["queries_text"]["average_text_length"]
        distinct = texts["documents_text"].get("unique_texts") or counted["documents"]
        return cls(
            task=task.name,
            entry=entry,
            documents=distinct if passages is None else passages,
            document_tokens=tokens.get(
                "doc_len_tokens", document_characters / CHARACTERS_PER_TOKEN
            ),
            document_characters=document_characters,
            queries=counted["queries"],
            query_tokens=tokens.get("query_len_tokens", query_characters / CHARACTERS_PER_TOKEN),
            data=data,
        )

    @cached_property
    def placeholder(self) -> Task:
        """A made-up task: as many queries as the real one, fewer documents, mean lengths."""
        count = min(self.documents, _PLACEHOLDER_DOCUMENTS)
        ids, texts = _make_texts(count, self.document_tokens)
        return Task(
            name=self.task,
            suite=None,
            corpus=Corpus(pa.array(ids, pa.large_string()), pa.array(texts, pa.large_string())),
            queries=Queries.of(*_make_texts(self.queries, self.query_tokens)),
            judgements=Judgements.none(),
            source=Path(),
            entry=self.entry,
        )

    def describe_basis(self, basis: str) -> str:
        """Return the basis of an estimate, with a note if means are used instead of the data."""
        return basis if self.data is not None else f"published counts and mean lengths; {basis}"

    @property
    def texts(self) -> Task:
        """The task whose requests are counted: the loaded task, or else the placeholder."""
        return self.data or self.placeholder


@dataclass(frozen=True)
class StageEstimate:
    """The estimated use of one stage of a system on one task."""

    task: str
    stage: str
    work: WorkType
    texts: int
    """Documents, queries, query-document pairs, or requests to a language model."""
    tokens: int
    """Tokens read and written, after long texts are cut to the model's limit."""
    cached: int = 0
    """Texts or requests whose answers are stored already; no other count includes them."""
    disk_bytes: int | None = 0
    """Size of the stored vectors or index; None if unknown."""
    memory_bytes: int | None = None
    """Peak memory of the process; None if unknown."""
    money: float | None = 0.0
    """US dollars charged by a server: 0 for work on local hardware, None if no price is known."""
    basis: str = ""

    @property
    def needs_hardware(self) -> bool:
        """Whether the work runs on the user's hardware: local, or a server without a price."""
        return self.tokens > 0 and not self.money


def estimate_stages(
    stage: Stage, size: TaskSize, vector_width: int | None = None
) -> list[StageEstimate]:
    """Estimate every stage of a system on one task.

    Args:
        stage: The last stage of the system, which contains the others.
        size: The amount of text in the task.
        vector_width: Dimensions of a vector, for models that do not declare them.

    """
    return list(_walk(stage, size, vector_width, None))


def estimate_daily_use(
    stage: Stage, size: TaskSize, queries_per_day: int, vector_width: int | None = None
) -> list[StageEstimate]:
    """Estimate a day's work on new queries, none of them cached, without work on the corpus."""
    uncached = replace(size, data=None)
    factor = queries_per_day / max(size.queries, 1)
    return [
        replace(
            row,
            texts=round(row.texts * factor),
            tokens=round(row.tokens * factor),
            disk_bytes=0,
            memory_bytes=None,
            money=None if row.money is None else row.money * factor,
        )
        for row in estimate_stages(stage, uncached, vector_width)
        if row.work in PER_QUERY
    ]


def _walk(
    stage: Stage, size: TaskSize, width: int | None, expansion: Generations | None
) -> Iterator[StageEstimate]:
    match stage:
        case Retrieval(entry=entry) if entry.backend == "bm25":
            yield _estimate_index(stage, size)
        case Retrieval(retriever=ApiRetriever() as retriever) if size.data is not None:
            estimate = _estimate_embedding_requests(retriever, size.data, expansion)
            name = (
                stage.name if expansion is None else f"{_name_expander(expansion)} | {stage.name}"
            )
            yield _from_requests("encode", name, estimate, size)
        case Retrieval(entry=entry) if entry.backend in _ENCODERS:
            yield from _estimate_encoding(stage, size, width, expansion)
        case Fused(members=members):
            for member in members:
                yield from _walk(member, size, width, expansion)
        case Expanding(name=name, first=first):
            bound = (
                stage.generations(size.data)
                if size.data
                else stage.expander.bind_live(size.placeholder)
            )
            asks_model = stage.expander.method.generations in ("auto", "live")
            if isinstance(bound, LiveGenerations) and (size.data is not None or asks_model):
                yield _from_requests("generate", name, bound.estimate(), size)
            yield from _walk(first, size, width, bound)
        case Reranking(first=first, reranker=reranker):
            yield from _walk(first, size, width, None)
            depth = min(stage.reranked, first.depth, size.documents)
            if isinstance(reranker, LlmReranker):
                estimate = reranker.estimate(size.texts, depth)
                yield _from_requests("rerank", stage.text, estimate, size)
            else:
                yield _estimate_scoring(stage, size, depth)


def _estimate_index(stage: Retrieval, size: TaskSize) -> StageEstimate:
    characters = size.documents * size.document_characters
    return StageEstimate(
        size.task,
        stage.name,
        "index",
        texts=size.documents,
        tokens=0,
        disk_bytes=round(characters * _INDEX_BYTES_PER_CHARACTER),
        memory_bytes=round(_MEMORY_FIXED + characters * _MEMORY_BYTES_PER_CHARACTER),
        basis=size.describe_basis(_MEASURED_BASIS),
    )


def _estimate_encoding(
    stage: Retrieval, size: TaskSize, width: int | None, expansion: Generations | None
) -> Iterator[StageEstimate]:
    settings = stage.settings
    dimensions = int(str(settings.get("dimensions") or 0)) or width
    vector_bytes = None
    if dimensions and stage.entry.backend in _SINGLE_VECTOR:
        vector_bytes = dimensions * (2 if settings.get("storage") == "float16" else 4)
    price, is_api = None, isinstance(stage.retriever, ApiRetriever)
    if isinstance(stage.retriever, ApiRetriever):
        price = stage.retriever.settings.known_price()
    generated, query_stage = 0.0, stage.name
    if expansion is not None:
        generated = expansion.method.n * _expected_tokens(expansion)
        query_stage = f"{_name_expander(expansion)} | {stage.name}"

    def row(work: WorkType, name: str, count: int, length: float, limit: float) -> StageEstimate:
        tokens = round(count * min(length, limit))
        return StageEstimate(
            size.task,
            name,
            work,
            texts=count,
            tokens=tokens,
            disk_bytes=None if vector_bytes is None else count * vector_bytes,
            money=(price.of(tokens) if price else None) if is_api else 0.0,
            basis=size.describe_basis(_LOCAL_BASIS),
        )

    limit = _token_limit(settings, "document_max_length", "max_length")
    yield row("documents", stage.name, size.documents, size.document_tokens, limit)
    limit = _token_limit(settings, "query_max_length", "max_length")
    yield row("queries", query_stage, size.queries, size.query_tokens + generated, limit)


def _estimate_scoring(stage: Reranking, size: TaskSize, depth: int) -> StageEstimate:
    pairs = size.queries * depth
    limit = _token_limit(stage.settings, "max_length")
    tokens = round(pairs * min(size.query_tokens + size.document_tokens, limit))
    basis = size.describe_basis(_LOCAL_BASIS)
    return StageEstimate(size.task, stage.text, "rerank", texts=pairs, tokens=tokens, basis=basis)


def _from_requests(
    work: WorkType, name: str, estimate: RequestEstimate, size: TaskSize
) -> StageEstimate:
    return StageEstimate(
        size.task,
        name,
        work,
        texts=estimate.calls,
        tokens=estimate.prompt_tokens + estimate.completion_tokens,
        cached=estimate.cached,
        money=estimate.money,
        basis=size.describe_basis(estimate.basis),
    )


def _expected_tokens(expansion: Generations) -> float:
    if isinstance(expansion, LiveGenerations):
        return expansion.expected_tokens
    texts = [sample.answer for query in expansion.expand().queries for sample in query.samples]
    return sum(map(len, texts)) / max(len(texts), 1) / CHARACTERS_PER_TOKEN


def _name_expander(expansion: Generations) -> str:
    return f"{expansion.method.prompts}:{expansion.method.llm}"


def _token_limit(settings: Mapping[str, object], *names: str) -> float:
    """Return the value of the first named setting that limits tokens; infinity if none does."""
    for name in names:
        if settings.get(name):
            return float(str(settings[name]))
    return float(np.inf)


def _make_texts(count: int, tokens: float) -> tuple[list[str], list[str]]:
    """Return ids and texts of a given length; the texts differ, as equal requests count once."""
    filler = " vivit" * max(0, round(tokens * CHARACTERS_PER_TOKEN / 6) - 1)
    return [str(row) for row in range(count)], [f"{row:05d}{filler}" for row in range(count)]
