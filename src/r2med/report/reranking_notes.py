"""What a reader of reranked scores must know: how deep they reach, and what was put there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from r2med.measure.names import parse_metric
from r2med.results.record import Result


def reranking_notes(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    """Sentences to stand below a table; each only where it applies."""
    if any(result.record.reranking for result in results):
        yield "ceiling: what a perfect reranker of the same candidates would score."
    yield from dict.fromkeys(_deeper(results, metrics))
    for result in results:
        yield from _safeguard(result, metrics)


def _deeper(results: Sequence[Result], metrics: Sequence[str]) -> Iterator[str]:
    for result in results:
        told = result.record.reranking
        deeper = [name for name in metrics if told and _reach(name) > told.depth]
        if told and deeper:
            below = (
                "below them stands the first stage's order"
                if told.tail == "keep"
                else "the list ends there"
            )
            read = "reads" if len(deeper) == 1 else "read"
            yield (
                f"{', '.join(deeper)} {read} deeper than the {told.depth} documents that "
                f"{result.system} reranks: {below} (tail={told.tail})."
            )


def _reach(name: str) -> int:
    return parse_metric(name).cutoff or 0


def _safeguard(result: Result, metrics: Sequence[str]) -> Iterator[str]:
    told = result.record.safeguard
    if not told:
        return
    name = metrics[0]
    queries = "1 query has a positive" if told.queries == 1 else f"{told.queries} queries have one"
    yield (
        f"{result.task}, {result.system}: safeguard on, {queries} put at rank 101; without it "
        f"{name} is {100 * told.metrics_without[name]:.2f}, not {100 * result.metrics[name]:.2f}."
    )
