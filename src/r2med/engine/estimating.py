"""What systems would ask of models, before anything is asked.

`estimates` reads a task's texts and counts what paid models would be asked. `loads` needs neither
data nor model: it reckons all work of all models from published counts and mean lengths.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from r2med.expand.generations import FromFile
from r2med.expand.writing import Bound, FromModel
from r2med.remote.budget import CHARACTERS_PER_TOKEN, Estimate
from r2med.rerank.llm import LlmReranker
from r2med.retrieve.api import ApiRetriever
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval, Stage
from r2med.tasks.registry import TaskEntry
from r2med.tasks.task import Corpus, Judgements, Queries, Task, counts, statistics

#: The text of all that decides what is asked, so that equal work has one name, and its estimate.
Paid = tuple[str, Estimate]


def estimates(stage: Stage, task: Task, expansion: Bound | None = None) -> Iterator[Paid]:
    """Every part of a system that asks a model on a task, with queries that may be expanded."""
    match stage:
        case Retrieval(name=name, retriever=ApiRetriever() as retriever):
            yield from _encoding(name, retriever, task, expansion)
        case Fused(members=members):
            for member in members:
                yield from estimates(member, task, expansion)
        case Expanding(name=name, first=first):
            bound = stage.bound(task)
            if isinstance(bound, FromModel):
                yield name, bound.estimate()
            for part, estimate in estimates(first, task, bound):
                yield f"{name} | {part}", estimate
        case Reranking(name=name, first=first, reranker=reranker):
            yield from estimates(first, task)
            if isinstance(reranker, LlmReranker):
                depth = min(stage.reranked, first.depth)
                yield f"{first.text} | {name}", reranker.estimate(task, depth)


def _encoding(
    name: str, retriever: ApiRetriever, task: Task, expansion: Bound | None
) -> Iterator[Paid]:
    """Documents and queries, and what an expander makes of these."""
    queries = None
    if isinstance(expansion, FromFile):
        forms = [form for variant in expansion.expand().variants for form in variant]
        queries = [part.text for form in forms for part in form.dense]
    elif expansion is not None:
        asked = task.queries.texts.to_pylist()
        made = _texts(len(asked) * expansion.method.n, expansion.expected_tokens)[1]
        queries = [*asked, *made]
    yield name, retriever.estimate(task, queries)


LoadStage = Literal["documents", "queries", "generate", "rerank"]
#: Engines of retrievers that run a model on texts, and those of them that keep one vector per text.
_ENCODING = ("dense", "api", "sparse", "late", "custom")
_ONE_VECTOR = ("dense", "api", "custom")
#: Documents of a collection that stands for one that is not here: more than any reranker reads.
_STAND_IN = 1000


@dataclass(frozen=True)
class Sizes:
    """How much text a task holds; lengths are means, in tokens."""

    task: str
    entry: TaskEntry | None
    documents: int
    """Distinct texts, since equal ones are encoded once."""
    document_tokens: float
    queries: int
    query_tokens: float

    @classmethod
    def of(cls, task: TaskEntry | Task, passages: int | None = None) -> Sizes:
        """As published for a registered task, or of data that is here.

        `passages` counts that many documents, each as long as the task's are in the mean.
        """
        entry = task if isinstance(task, TaskEntry) else task.entry
        if isinstance(task, TaskEntry):
            counted, texts, tokens = task.counts, task.statistics, task.readme
        else:
            counted, texts, tokens = counts(task), statistics(task), {}
        means = {
            side: texts[f"{name}_text"]["average_text_length"] / CHARACTERS_PER_TOKEN
            for side, name in (("doc", "documents"), ("query", "queries"))
        }
        return cls(
            task.name,
            entry,
            passages or texts["documents_text"].get("unique_texts") or counted["documents"],
            tokens.get("doc_len_tokens", means["doc"]),
            counted["queries"],
            tokens.get("query_len_tokens", means["query"]),
        )

    @cached_property
    def stand_in(self) -> Task:
        """A small collection of texts of the mean lengths, with as many queries."""
        count = min(self.documents, _STAND_IN)
        documents = _texts(count, self.document_tokens)
        return Task(
            name=self.task,
            suite=None,
            corpus=Corpus(*(pa.array(column, pa.large_string()) for column in documents)),
            queries=Queries.of(*_texts(self.queries, self.query_tokens)),
            judgements=Judgements.none(),
            source=Path(),
            entry=self.entry,
        )


@dataclass(frozen=True)
class Load:
    """What one stage of a system would take on one task, reckoned from sizes alone."""

    task: str
    part: str
    stage: LoadStage
    texts: int
    """Texts, pairs, or requests of a language model."""
    tokens: int
    """Read and written, after long texts are cut to the model's limit."""
    vector_bytes: int | None = 0
    """What the store would hold; None where the width of a vector is not known."""
    bill: float | None = None
    """US dollars that a server asks, where its price is known."""


def loads(
    stage: Stage, sizes: Sizes, width: int | None = None, *, written: float = 0
) -> Iterator[Load]:
    """Everything that models would do for a system on a task; neither has to be here.

    `width` is the number of dimensions of a vector, which only the model itself knows, `written`
    the tokens that a language model writes for each query, to be searched with.
    """
    match stage:
        case Retrieval(entry=entry) if entry.engine in _ENCODING:
            yield from _encoded(stage, sizes, width, written)
        case Fused(members=members):
            for member in members:
                yield from loads(member, sizes, width, written=written)
        case Expanding(name=name, expander=expander, first=first):
            method = expander.method
            bound = expander.live(sizes.stand_in)
            if method.generations in ("auto", "live"):
                yield _asked("generate", name, bound.estimate(), sizes)
            yield from loads(first, sizes, width, written=method.n * bound.expected_tokens)
        case Reranking(name=name, first=first, reranker=reranker):
            yield from loads(first, sizes, width)
            depth = min(stage.reranked, first.depth, sizes.documents)
            if isinstance(reranker, LlmReranker):
                yield _asked("rerank", name, reranker.estimate(sizes.stand_in, depth), sizes)
            else:
                pair = sizes.query_tokens + sizes.document_tokens
                pairs = sizes.queries * depth
                tokens = round(pairs * min(pair, _limit(stage.settings, "max_length")))
                yield Load(sizes.task, name, "rerank", pairs, tokens)


def _encoded(stage: Retrieval, sizes: Sizes, width: int | None, written: float) -> Iterator[Load]:
    settings, engine = stage.settings, stage.entry.engine
    numbers = int(str(settings.get("dimensions") or 0)) or width
    vector: int | None = None
    if numbers and engine in _ONE_VECTOR:
        vector = numbers * (2 if settings.get("storage") == "float16" else 4)
    api = stage.retriever if isinstance(stage.retriever, ApiRetriever) else None
    price = api.settings.known_price() if api else None
    sides: tuple[tuple[LoadStage, str, int, float], ...] = (
        ("documents", "document_max_length", sizes.documents, sizes.document_tokens),
        ("queries", "query_max_length", sizes.queries, sizes.query_tokens + written),
    )
    for name, limit, count, length in sides:
        tokens = round(count * min(length, _limit(settings, limit, "max_length")))
        held = None if vector is None else count * vector
        bill = price.of(tokens) if price else None
        yield Load(sizes.task, stage.name, name, count, tokens, held, bill)


def _limit(settings: Mapping[str, object], *names: str) -> float:
    """The tokens at which a model cuts a text, by the first setting that says so."""
    return next((float(str(settings[name])) for name in names if settings.get(name)), np.inf)


def _asked(stage: LoadStage, part: str, estimate: Estimate, sizes: Sizes) -> Load:
    tokens = estimate.prompt_tokens + estimate.completion_tokens
    return Load(sizes.task, part, stage, estimate.calls, tokens, bill=estimate.money)


def _texts(count: int, tokens: float) -> tuple[list[str], list[str]]:
    """Ids, and texts of a mean length, each of its own: equal requests would be asked once."""
    rest = " vivit" * max(0, round(tokens * CHARACTERS_PER_TOKEN / 6) - 1)
    return [str(row) for row in range(count)], [f"{row:05d}{rest}" for row in range(count)]
