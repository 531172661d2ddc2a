"""BM25 compared with tantivy, bm25s and the published route (gensim), on the same files.

    python bench/bm25.py DATA [DATA ...] [--rounds 3] [--peers tantivy,bm25s,gensim]

DATA is a folder with corpus.jsonl, query.jsonl and qrels.jsonl, or the same files with .gz. Every
figure is a new process: wall seconds, processor seconds and peak memory, the best of the rounds.
Rounds alternate between the routes, so that all of them run under the same conditions. For r2med it
is the whole command (`r2med eval bm25`: reading, searching 1,000 documents per query, measuring and
storing), cold with empty caches, then warm with the copy of the data and the index, but without
results. The peers read the same files, search 100 documents per query and write a run. `x4` is the
corpus four times, with new ids.

Floors are promises of this project, as ratios of wall seconds; the exit status is 1 if one is
missed. They apply to collections of 10,000 documents or more: with fewer, most of the time goes
into starting Python and importing modules. Settings of the peers:

tantivy   2 threads for indexing and searching, `en_stem` tokenizer, frequencies without positions,
          index on disk, a fast field for ids, orjson
bm25s     its numba backend if that is faster, English stop words and PyStemmer, k1 0.9, b 0.4
gensim    LuceneBM25Model on both sides, as the published code does it
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

DEPTH = 100
#: Floors apply to collections of this size or more.
FLOOR_DOCUMENTS = 10_000
PEERS = ("tantivy", "bm25s", "gensim")
_COMMAND = "import sys; from r2med.cli import main; sys.exit(main())"


@dataclass(frozen=True)
class Figure:
    """What one process took."""

    seconds: float
    cpu: float
    megabytes: float

    def best(self, other: Figure | None) -> Figure:
        """The lower value of each field."""
        if other is None:
            return self
        return Figure(*map(min, astuple(self), astuple(other)))


@dataclass(frozen=True)
class Floor:
    """A promise: a measured value, and the least or most that it may be."""

    promise: str
    value: float
    bound: float
    at_least: bool

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def search_with_tantivy(data: Path, out: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    import tantivy

    ids: list[str] = []
    query_ids, query_texts = read_collection(find_file(data, "query"))
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field("row", fast=True)
    builder.add_text_field("text", tokenizer_name="en_stem", index_option="freq")
    with tempfile.TemporaryDirectory() as folder:
        index = tantivy.Index(builder.build(), path=folder)
        writer = index.writer(heap_size=256 << 20, num_threads=2)
        for row, record in enumerate(read_records(find_file(data, "corpus"))):
            ids.append(record["id"])
            writer.add_document(tantivy.Document(row=row, text=record["text"]))
        writer.commit()
        index.reload()
        searcher = index.searcher()

        def search(text: str) -> list[tuple[str, float]]:
            query = index.parse_query(re.sub(r"\W+", " ", text).lower(), ["text"])
            hits = searcher.search(query, DEPTH, count=False).hits
            addresses = [address for _, address in hits]
            rows = [int(row or 0) for row in searcher.fast_field_values("row", addresses)]
            return [(ids[row], score) for row, (score, _) in zip(rows, hits, strict=True)]

        with ThreadPoolExecutor(2) as pool:
            write_run(out, query_ids, pool.map(search, query_texts))


def search_with_bm25s(data: Path, out: Path, backend: str = "numpy") -> None:
    import bm25s
    import Stemmer

    ids, texts = read_collection(find_file(data, "corpus"))
    query_ids, query_texts = read_collection(find_file(data, "query"))
    stemmer = Stemmer.Stemmer("english")
    tokens = bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False)
    model = bm25s.BM25(method="lucene", k1=0.9, b=0.4, backend=backend)
    model.index(tokens, show_progress=False)
    queries = bm25s.tokenize(query_texts, stopwords="en", stemmer=stemmer, show_progress=False)
    rows, scores = model.retrieve(queries, k=DEPTH, show_progress=False)
    ranked = (
        [(ids[row], score) for row, score in zip(*pair, strict=True)]
        for pair in zip(rows, scores, strict=True)
    )
    write_run(out, query_ids, ranked)


def search_with_bm25s_numba(data: Path, out: Path) -> None:
    search_with_bm25s(data, out, backend="numba")


def search_with_gensim(data: Path, out: Path) -> None:
    """As the published code does it, with the fastest tokens that a line of Python gives."""
    import Stemmer
    from gensim.corpora import Dictionary
    from gensim.models import LuceneBM25Model
    from gensim.similarities import SparseMatrixSimilarity

    stemmer = Stemmer.Stemmer("porter")

    def tokenize(text: str) -> list[str]:
        words: list[str] = stemmer.stemWords(re.findall(r"\w+", text.lower()))
        return words

    ids, texts = read_collection(find_file(data, "corpus"))
    query_ids, query_texts = read_collection(find_file(data, "query"))
    corpus = [tokenize(text) for text in texts]
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

    def search(text: str) -> list[tuple[str, float]]:
        scores = index[model[dictionary.doc2bow(tokenize(text))]].tolist()
        pairs = zip(ids, scores, strict=True)
        return sorted(pairs, key=lambda pair: pair[1], reverse=True)[:DEPTH]

    write_run(out, query_ids, map(search, query_texts))


ROUTES = {
    "tantivy": search_with_tantivy,
    "bm25s": search_with_bm25s,
    "bm25s-numba": search_with_bm25s_numba,
    "gensim": search_with_gensim,
}


def find_file(data: Path, name: str) -> Path:
    """The file `name` of a collection, compressed or not."""
    for path in (data / f"{name}.jsonl.gz", data / f"{name}.jsonl"):
        if path.is_file():
            return path
    raise SystemExit(f"{data}: there is neither {name}.jsonl.gz nor {name}.jsonl")


def read_records(path: Path) -> Iterator[dict[str, str]]:
    """The objects of a file, with a fast JSON parser."""
    import orjson

    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rb") as file:
        for line in file:
            yield orjson.loads(line)


def read_collection(path: Path) -> tuple[list[str], list[str]]:
    """All ids and all texts of a file."""
    rows = list(read_records(path))
    return [row["id"] for row in rows], [row["text"] for row in rows]


def write_run(
    out: Path, query_ids: Iterable[str], ranked: Iterable[list[tuple[str, float]]]
) -> None:
    with out.open("w", encoding="utf-8") as file:
        for query_id, documents in zip(query_ids, ranked, strict=True):
            for rank, (document, score) in enumerate(documents, start=1):
                file.write(f"{query_id} Q0 {document} {rank} {score:.6f} bench\n")


def run_process(command: Sequence[str], home: Path) -> Figure:
    """Run a new process, as a user would; its peak memory is what the system reports."""
    environment = {**os.environ, "R2MED_HOME": str(home / "r2med"), "PYTHONWARNINGS": "ignore"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.perf_counter()
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return Figure(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / unit)


def run_peer(route: str, data: Path, home: Path, script: str = __file__) -> Figure:
    """One route in a new process."""
    arguments = ["--route", route, str(data), str(home / "run.trec")]
    return run_process([sys.executable, script, *arguments], home)


def run_command(tasks: Sequence[Path], home: Path) -> Figure:
    """The whole command `r2med eval bm25` on some collections, with a new results folder."""
    command = [sys.executable, "-c", _COMMAND, "eval", "bm25"]
    command += ["--task", ",".join(map(str, tasks)), "--results", tempfile.mkdtemp(dir=home)]
    return run_process(command, home)


def replicate(data: Path, folder: Path, times: int = 4) -> Path:
    """The same collection with its corpus several times, each copy under new ids."""
    target = folder / f"{data.name}-x{times}"
    target.mkdir()
    ids, texts = read_collection(find_file(data, "corpus"))
    with gzip.open(target / "corpus.jsonl.gz", "wt", compresslevel=6, encoding="utf-8") as file:
        for copy in range(times):
            for document, text in zip(ids, texts, strict=True):
                name = f"{document}-{copy}" if copy else document
                file.write(json.dumps({"id": name, "text": text}, ensure_ascii=False) + "\n")
    for name in ("query", "qrels"):
        source = find_file(data, name)
        shutil.copyfile(source, target / source.name)
    return target


def measure_collection(data: Path, rounds: int, peers: Sequence[str]) -> dict[str, Figure]:
    """The best figures of one collection; slow peers run once."""
    figures: dict[str, Figure] = {}

    def record(name: str, figure: Figure) -> None:
        figures[name] = figure.best(figures.get(name))

    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        run_command([data], home)  # writes the bytecode of all modules
        repeated = [peer for peer in peers if peer == "tantivy"]
        if "bm25s" in peers:
            backends = ("bm25s", "bm25s-numba")
            for backend in backends:
                record(backend, run_peer(backend, data, home))
            repeated.append(min(backends, key=lambda backend: figures[backend].seconds))
        if "gensim" in peers:
            record("gensim", run_peer("gensim", data, home))
        for number in range(rounds):
            new_home = home / str(number)
            new_home.mkdir()
            record("r2med cold", run_command([data], new_home))
            record("r2med warm", run_command([data], new_home))
            for peer in repeated:
                record(peer, run_peer(peer, data, new_home))
    return figures


def list_floors(figures: dict[str, Figure], *, long_queries: bool) -> list[Floor]:
    cold, warm = figures["r2med cold"], figures["r2med warm"]
    floors = [Floor("cold, peak MB", cold.megabytes, 220, False)]
    if "tantivy" in figures:
        peer = figures["tantivy"].seconds
        bound = 3.0 if long_queries else 1.3
        floors += [
            Floor("cold, times faster than tantivy", peer / cold.seconds, bound, True),
            Floor("warm, share of tantivy's time", warm.seconds / peer, 0.35, False),
        ]
    bm25s = [figure.seconds for name, figure in figures.items() if name.startswith("bm25s")]
    if bm25s:
        ratio = min(bm25s) / cold.seconds
        floors.append(Floor("cold, times faster than bm25s", ratio, 2.5, True))
    if "gensim" in figures:
        ratio = figures["gensim"].seconds / cold.seconds
        floors.append(Floor("cold, times faster than gensim", ratio, 10, True))
    return floors


def has_long_queries(data: Path) -> bool:
    """Whether queries have more than 100 words on average."""
    _, texts = read_collection(find_file(data, "query"))
    return sum(len(text.split()) for text in texts) > 100 * len(texts)


def show(title: str, figures: dict[str, Figure]) -> None:
    print(f"\n{title}\n{'':24}{'seconds':>9}{'cpu s':>9}{'peak MB':>9}")
    for name, figure in figures.items():
        print(f"{name:24}{figure.seconds:9.2f}{figure.cpu:9.2f}{figure.megabytes:9.0f}")


def show_floors(floors: Iterable[Floor]) -> int:
    """Print promises with the measured values, and return how many are missed."""
    print(f"\n{'promise':40}{'value':>8}{'floor':>8}")
    missed = 0
    for floor in floors:
        sign = ">=" if floor.at_least else "<="
        outcome = "met" if floor.is_met else "MISSED"
        print(f"{floor.promise:40}{floor.value:8.2f} {sign}{floor.bound:5g}  {outcome}")
        missed += 0 if floor.is_met else 1
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peers", default=",".join(PEERS), help="comma-separated")
    parser.add_argument("--without-x4", action="store_true", help="skip the corpus four times")
    parser.add_argument("--route", choices=ROUTES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.route:
        ROUTES[arguments.route](*arguments.data)
        return 0
    peers = [peer for peer in arguments.peers.split(",") if peer]
    missed = 0
    for data in arguments.data:
        figures = measure_collection(data, arguments.rounds, peers)
        show(data.name, figures)
        floors = list_floors(figures, long_queries=has_long_queries(data))
        if not arguments.without_x4:
            with tempfile.TemporaryDirectory() as folder:
                copy = replicate(data, Path(folder))
                large = measure_collection(copy, arguments.rounds, [])
            show(f"{data.name}, corpus x4", large)
            growth = large["r2med cold"].seconds / figures["r2med cold"].seconds
            floors.append(Floor("x4 corpus, times the time", growth, 4.6, False))
        documents = sum(1 for _ in read_records(find_file(data, "corpus")))
        if documents >= FLOOR_DOCUMENTS:
            missed += show_floors(floors)
        else:
            print(f"\nno floors: {documents:,} documents, fewer than {FLOOR_DOCUMENTS:,}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
