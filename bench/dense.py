"""Dense retrieval against its floors: overhead, reuse and exact search, in one run.

    python bench/dense.py DATA [--passages 3000] [--quality]

DATA holds the collections pool41k, nfcorpus and scifact in the R2MED layout.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from r2med import load_task
from r2med.execution.resources import Resources
from r2med.measure import measure
from r2med.retrieve.topk import top
from r2med.systems.build import Builder
from r2med.systems.spec import Unit, parse
from r2med.systems.stages import Retrieval
from r2med.tasks.task import Corpus, Task


def main() -> None:
    """Run what was asked for and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--passages", type=int, default=3000)
    parser.add_argument("--quality", action="store_true")
    told = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["R2MED_HOME"] = home
        exact_search()
        overhead(thinned(load_task(told.data / "pool41k"), told.passages))
        if told.quality:
            quality(told.data, ["wordllama", "minilm"])


def thinned(task: Task, documents: int) -> Task:
    """The task with an even choice of its documents."""
    rows = np.linspace(0, len(task.corpus) - 1, documents).astype(np.int64)
    ids, texts = task.corpus.ids.take(rows), task.corpus.texts.take(rows)
    return replace(task, corpus=Corpus(ids, texts))


def exact_search() -> None:
    """623 x 41,104 x 384: the product alone, the search, and sorting every row."""
    chance = np.random.default_rng(0)
    queries = chance.standard_normal((623, 384), dtype=np.float32)
    documents = chance.standard_normal((41_104, 384), dtype=np.float32)
    product = best_of(5, lambda: queries @ documents.T)
    search = best_of(
        5,
        lambda: top(queries, lambda a, b: documents[a:b], 41_104, depth=100, memory=2**29),
    )
    sort = best_of(2, lambda: np.argsort(-(queries @ documents.T), axis=1)[:, :100])
    print(f"exact top-100: {search:.3f} s; bare product {product:.3f} s ({search / product:.2f}x)")
    print(f"  sorting each row {sort:.3f} s ({sort / search:.1f}x slower; floor 5x)")


def overhead(task: Task) -> None:
    """A whole evaluation of minilm beside the library's own encode, then again from the store."""
    from sentence_transformers import SentenceTransformer

    from r2med.models.checkpoint import locate
    from r2med.retrieve.dense.transformer import TransformerEncoder

    folder = locate("sentence-transformers/all-MiniLM-L6-v2").folder
    library = SentenceTransformer(str(folder), device="cpu")
    texts = task.corpus.texts.to_pylist() + task.queries.texts.to_pylist()
    library.encode(texts[:64])
    alone = seconds(lambda: library.encode(texts))
    with timed(TransformerEncoder, "inputs", "encode") as inside_of:
        whole = evaluated("minilm", task)
    inside = sum(inside_of)
    again = evaluated("minilm", task)
    print(f"minilm on {len(task.corpus)} passages and {len(task.queries)} queries: {whole:.1f} s")
    print(f"  outside forward pass and tokeniser {whole - inside:.2f} s "
          f"({(whole - inside) / whole:.1%}; floor 5 %)")  # fmt: skip
    print(f"  SentenceTransformer.encode alone {alone:.1f} s ({whole / alone:.2f}x)")
    print(f"  again from the store {again:.2f} s ({again / whole:.1%}; floor 5 %)")


def quality(data: Path, specs: list[str]) -> None:
    """nDCG@10 on the judged collections."""
    for name in ("nfcorpus", "scifact"):
        task = load_task(data / name)
        for spec in specs:
            searcher = retriever(spec).prepare(task)
            run = searcher.search(task.queries, depth=100)
            ndcg = measure(run, task.judgements, ["ndcg@10"]).means()["ndcg@10"]
            print(f"  {spec} on {name}: nDCG@10 {ndcg:.4f}")


@contextmanager
def timed(owner: type, *methods: str) -> Iterator[list[float]]:
    """The seconds of every call of some methods, which are timed meanwhile."""
    spent: list[float] = []

    def timing(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*values: Any) -> Any:
            start = time.perf_counter()
            result = method(*values)
            spent.append(time.perf_counter() - start)
            return result

        return call

    with ExitStack() as patches:
        for name in methods:
            patches.enter_context(patch.object(owner, name, timing(getattr(owner, name))))
        yield spent


def evaluated(spec: str, task: Task) -> float:
    """Seconds of preparing, searching and measuring."""
    start = time.perf_counter()
    searcher = retriever(spec).prepare(task)
    run = searcher.search(task.queries, depth=100)
    measure(run, task.judgements, ["ndcg@10"])
    return time.perf_counter() - start


def retriever(spec: str) -> Any:
    """The retriever of a system of one stage."""
    (unit,) = parse(spec).fused
    assert isinstance(unit, Unit)
    stage = Builder(Resources(), {}).system(unit)
    assert isinstance(stage, Retrieval)
    return stage.retriever


def seconds(work: Callable[[], object]) -> float:
    """How long the work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def best_of(times: int, work: Callable[[], object]) -> float:
    """The shortest of several runs: the one least disturbed."""
    return min(seconds(work) for _ in range(times))


if __name__ == "__main__":
    main()
