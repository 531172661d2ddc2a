"""BM25 side by side: this project, bm25s, and the published route (gensim), on the same files.

    python bench/bm25.py DATA [DATA ...] [--rounds 3]

DATA is a folder with corpus.jsonl.gz, query.jsonl.gz and qrels.jsonl.gz. Every figure is a new
process, from the data files to a written run of 100 documents a query: wall seconds and processor
seconds (best of the rounds, which take turns so that all see the same machine) and peak memory.
`x4` is the corpus four times over, with fresh ids. Floors are the project's promises, in wall
seconds; the exit status tells whether all are met.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

DEPTH = 100


@dataclass(frozen=True)
class Figure:
    seconds: float
    cpu: float
    megabytes: float

    def better(self, other: Figure | None) -> Figure:
        if other is None:
            return self
        return Figure(*map(min, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Floor:
    """A promise: a ratio or a figure, and the least or most that it may be."""

    promise: str
    ratio: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.ratio >= self.bound if self.at_least else self.ratio <= self.bound


def ours(data: Path, out: Path) -> None:
    from r2med import settings
    from r2med.retrieve.bm25 import Bm25Retriever
    from r2med.systems.registry import entries
    from r2med.tasks.load import load_task

    retriever = settings.read(Bm25Retriever, entries()["bm25"].fields)
    task = load_task(data)
    searcher = retriever.prepare(task)
    searcher.search(task.queries, depth=DEPTH).to_trec(out)


def bm25s_default(data: Path, out: Path, backend: str = "numpy") -> None:
    import bm25s
    import Stemmer

    ids, texts = read(data / "corpus.jsonl.gz")
    query_ids, query_texts = read(data / "query.jsonl.gz")
    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    model = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend=backend)
    model.index(tokens, show_progress=False)
    asked = bm25s.tokenize(query_texts, stopwords="en", stemmer=stemmer, show_progress=False)
    rows, scores = model.retrieve(asked, k=DEPTH, show_progress=False)
    ranked = (
        [(ids[row], score) for row, score in zip(*pair, strict=True)]
        for pair in zip(rows, scores, strict=True)
    )
    write(out, query_ids, ranked)


def bm25s_numba(data: Path, out: Path) -> None:
    bm25s_default(data, out, backend="numba")


def gensim_route(data: Path, out: Path) -> None:
    """As the published code does it, with the fastest tokens a line of Python gives."""
    import re

    import Stemmer
    from gensim.corpora import Dictionary
    from gensim.models import LuceneBM25Model
    from gensim.similarities import SparseMatrixSimilarity

    stemmer = Stemmer.Stemmer("porter")

    def tokens(text: str) -> list[str]:
        words: list[str] = stemmer.stemWords(re.findall(r"\w+", text.lower()))
        return words

    ids, texts = read(data / "corpus.jsonl.gz")
    query_ids, query_texts = read(data / "query.jsonl.gz")
    corpus = [tokens(text) for text in texts]
    dictionary = Dictionary(corpus)
    model = LuceneBM25Model(dictionary=dictionary, k1=0.9, b=0.4)
    weighted = model[list(map(dictionary.doc2bow, corpus))]
    index = SparseMatrixSimilarity(
        weighted,
        num_docs=len(corpus),
        num_terms=len(dictionary),
        normalize_queries=False,
        normalize_documents=False,
    )

    def ranked(text: str) -> list[tuple[str, float]]:
        scores = dict(
            zip(ids, index[model[dictionary.doc2bow(tokens(text))]].tolist(), strict=True)
        )
        return sorted(scores.items(), key=lambda pair: pair[1], reverse=True)[:DEPTH]

    write(out, query_ids, map(ranked, query_texts))


ROUTES = {
    "ours": ours,
    "bm25s": bm25s_default,
    "bm25s-numba": bm25s_numba,
    "gensim": gensim_route,
}


def read(path: Path) -> tuple[list[str], list[str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [row["id"] for row in rows], [row["text"] for row in rows]


def write(out: Path, query_ids: list[str], ranked: Iterable[list[tuple[str, float]]]) -> None:
    with out.open("w", encoding="utf-8") as file:
        for query_id, documents in zip(query_ids, ranked, strict=True):
            for rank, (document, score) in enumerate(documents, start=1):
                file.write(f"{query_id} Q0 {document} {rank} {score:.6f} bench\n")


def measured(route: str, data: Path, home: Path, script: str = __file__) -> Figure:
    """One new process; its peak memory is what the system says when it ends."""
    command = [sys.executable, script, "--route", route, str(data), str(home / "run.trec")]
    environment = {**os.environ, "R2MED_HOME": str(home / "r2med"), "PYTHONWARNINGS": "ignore"}
    began = time.perf_counter()
    child = subprocess.Popen(command, env=environment)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - began
    if status:
        raise SystemExit(f"{route} failed on {data}")
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Figure(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def replicated(data: Path, folder: Path, times: int = 4) -> Path:
    """The same collection with its corpus several times over, each copy under fresh ids."""
    target = folder / f"{data.name}-x{times}"
    target.mkdir()
    ids, texts = read(data / "corpus.jsonl.gz")
    with gzip.open(target / "corpus.jsonl.gz", "wt", compresslevel=6, encoding="utf-8") as file:
        for copy in range(times):
            for document, text in zip(ids, texts, strict=True):
                name = f"{document}-{copy}" if copy else document
                file.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
    for name in ("query.jsonl.gz", "qrels.jsonl.gz"):
        (target / name).write_bytes((data / name).read_bytes())
    return target


def collection(data: Path, rounds: int, *, peers: bool) -> dict[str, Figure]:
    """All figures of one collection; the slower bm25s backend is timed once, gensim too."""
    best: dict[str, Figure] = {}

    def note(name: str, figure: Figure) -> None:
        best[name] = figure.better(best.get(name))

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        once = ["bm25s", "bm25s-numba", "gensim"] if peers else ["bm25s"]
        for route in once:
            note(route, measured(route, data, home))
        backend = min((r for r in best if r.startswith("bm25s")), key=lambda r: best[r].seconds)
        for number in range(rounds):
            fresh = home / str(number)
            fresh.mkdir()
            note("cold", measured("ours", data, fresh))
            note("warm", measured("ours", data, fresh))
            note(backend, measured(backend, data, fresh))
    best["bm25s, best"] = best[backend]
    return best


def floors(figures: dict[str, Figure], large: dict[str, Figure]) -> list[Floor]:
    cold, warm, peer = figures["cold"], figures["warm"], figures["bm25s, best"]
    return [
        Floor("cold, times faster than bm25s", peer.seconds / cold.seconds, 2.5, True),
        Floor("cold, times faster than gensim", figures["gensim"].seconds / cold.seconds, 10, True),
        Floor("warm, part of bm25s's time", warm.seconds / peer.seconds, 0.2, False),
        Floor("peak memory, part of bm25s's", cold.megabytes / peer.megabytes, 1.5, False),
        Floor("x4 corpus, times the time", large["cold"].seconds / cold.seconds, 4.6, False),
        Floor(
            "x4 corpus, times faster than bm25s",
            large["bm25s, best"].seconds / large["cold"].seconds,
            2.5,
            True,
        ),
    ]


def show(title: str, figures: dict[str, Figure]) -> None:
    print(f"\n{title}\n{'':24}{'seconds':>9}{'cpu s':>9}{'peak MB':>9}")
    for name, figure in figures.items():
        print(f"{name:24}{figure.seconds:9.2f}{figure.cpu:9.2f}{figure.megabytes:9.0f}")


def show_floors(floors: Iterable[Floor]) -> int:
    """Print promises beside what was measured, and return how many are missed."""
    print(f"\n{'promise':40}{'found':>8}{'floor':>8}")
    missed = 0
    for floor in floors:
        sign = ">=" if floor.at_least else "<="
        print(
            f"{floor.promise:40}{floor.ratio:8.2f} {sign}{floor.bound:5g}  "
            f"{'met' if floor.met else 'MISSED'}"
        )
        missed += not floor.met
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--route", choices=ROUTES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.route:
        ROUTES[arguments.route](*arguments.data)
        return 0
    missed = 0
    for data in arguments.data:
        figures = collection(data, arguments.rounds, peers=True)
        show(data.name, figures)
        with tempfile.TemporaryDirectory() as folder:
            large = collection(replicated(data, Path(folder)), arguments.rounds, peers=False)
        show(f"{data.name}, corpus x4", large)
        missed += show_floors(floors(figures, large))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
