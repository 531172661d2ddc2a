"""What systems would ask of paid models, before anything is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from r2med.expand.generations import FromFile
from r2med.expand.writing import Bound, FromModel
from r2med.remote.budget import Estimate
from r2med.rerank.llm import LlmReranker
from r2med.retrieve.api.encoder import ApiRetriever
from r2med.systems.stages import Expanding, Fused, Reranking, Retrieval, bind
from r2med.systems.work import Part, Stage
from r2med.tasks.task import Task


class Paid(NamedTuple):
    """A part of a system that asks a model, and what it would use."""

    part: str
    """The text of all that decides what is asked, so that equal work has one name."""
    estimate: Estimate
    turns: int = 1
    """Requests that an agent may take per text; the estimate expects one of them."""


def estimates(part: Part, task: Task) -> Iterator[Paid]:
    """Every part of a system that asks a model on a task."""
    yield from _estimates(bind(part, task).stage, task)


def of_generating(bound: FromModel, name: str) -> Paid:
    """What a method's generations would use."""
    return Paid(name, bound.estimate(), bound.plan.most_turns)


def _estimates(stage: Stage, task: Task, expansion: Bound | None = None) -> Iterator[Paid]:
    match stage:
        case Retrieval(name=name, retriever=ApiRetriever() as retriever):
            yield from _encoding(name, retriever, task, expansion)
        case Fused(members=members):
            for member in members:
                yield from _estimates(member.stage, task, expansion)
        case Expanding(name=name, first=first):
            bound = stage.bound(task)
            if isinstance(bound, FromModel):
                yield of_generating(bound, name)
            for paid in _estimates(first.stage, task, bound):
                yield paid._replace(part=f"{name} | {paid.part}")
        case Reranking(name=name, first=first, reranker=reranker):
            yield from _estimates(first.stage, task)
            if isinstance(reranker, LlmReranker):
                depth = min(stage.reranked, first.stage.depth)
                yield Paid(f"{first.text} | {name}", reranker.estimate(task, depth))


def _encoding(
    name: str, retriever: ApiRetriever, task: Task, expansion: Bound | None
) -> Iterator[Paid]:
    """Documents and queries, and what an expander makes of these."""
    if isinstance(expansion, FromFile):
        forms = [form for variant in expansion.expand().variants for form in variant]
        yield Paid(name, retriever.estimate(task, [part.text for f in forms for part in f.dense]))
        return
    yield Paid(name, retriever.estimate(task))
    if expansion is not None:
        llm, method = expansion.chat.llm, expansion.method
        most = method.max_tokens or llm.longest_answer
        expected = min(llm.expected_tokens, most or llm.expected_tokens)
        count = len(task.queries) * method.n
        texts = retriever.estimate_generated(count, expected, most)
        yield Paid(f"{name} (generated texts)", texts)
