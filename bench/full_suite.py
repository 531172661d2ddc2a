"""Load: the whole suite, many systems and large corpora, on synthetic texts of the published sizes.

    python bench/full_suite.py [--part suite|scoring|passages] [--scale 1] [--keep FOLDER]

suite     `r2med eval bm25` on eight collections with the published numbers of documents, queries
          and words (357,080 documents, 82 million words), cold, then warm; with tantivy and bm25s
scoring   100 systems on the eight tasks, 1,000 documents per query, measured from stored runs
passages  `r2med eval bm25` on 0.5, 1 and 5 million passages of 100 words, 100 queries; with tantivy
          on 5 million

Words follow Zipf's law, and common words are short. Every figure is a new process; making the data
is not counted. `--scale 0.01` takes a hundredth of the documents and shows that everything works;
floors apply to full size only, and the exit status is 1 if one is missed. The settings of the peers
are those of bench/bm25.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bm25 import (  # type: ignore[import-not-found]
    Figure,
    Floor,
    run_command,
    run_peer,
    search_with_bm25s,
    search_with_bm25s_numba,
    search_with_tantivy,
    show,
    show_floors,
)
from r2med.tasks.registry import find_suite

VOCABULARY = 200_000
SYSTEMS, LISTED = 100, 1000
PASSAGES = (500_000, 1_000_000, 5_000_000)
PASSAGE_WORDS, PASSAGE_QUERIES = 100, 100
#: How much faster than the corpus time and memory may grow, because a busy machine varies.
LINEAR = 1.15
_BLOCK = 20_000


@dataclass(frozen=True)
class Shape:
    """The size of a collection; words are means."""

    name: str
    documents: int
    document_words: float
    queries: int
    query_words: float
    positives: int

    def scaled(self, scale: float) -> Shape:
        count = max(LISTED // 5, round(self.documents * scale))
        return Shape(
            self.name,
            min(self.documents, count),
            self.document_words,
            max(2, round(self.queries * min(1.0, 10 * scale))),
            self.query_words,
            self.positives,
        )


def published() -> list[Shape]:
    """The eight tasks, with the figures of their cards."""
    return [
        Shape(
            entry.name,
            entry.counts["documents"],
            entry.readme["doc_len_tokens"],
            entry.counts["queries"],
            entry.readme["query_len_tokens"],
            round(entry.readme["avg_positives"]),
        )
        for entry in find_suite("full").entries
    ]


def make_collection(shape: Shape, folder: Path, seed: int = 1) -> Path:
    """Write a collection of this shape, unless it exists, and return its folder."""
    target = folder / shape.name
    if (target / "qrels.jsonl.gz").exists():
        return target
    random = np.random.default_rng(seed)
    words = vocabulary()
    shares = 1 / np.arange(1, VOCABULARY + 1)
    ladder = np.cumsum(shares) / shares.sum()

    def texts(count: int, mean: float) -> Iterator[str]:
        for start in range(0, count, _BLOCK):
            size = min(_BLOCK, count - start)
            spread = random.lognormal(-0.125, 0.5, size)
            lengths = np.maximum(1, np.round(mean * spread)).astype(np.int64)
            drawn = words[np.searchsorted(ladder, random.random(int(lengths.sum())))]
            for text in np.split(drawn, np.cumsum(lengths)[:-1]):
                yield " ".join(text.tolist())

    target.mkdir(parents=True)
    for name, letter, count, mean in (
        ("corpus", "d", shape.documents, shape.document_words),
        ("query", "q", shape.queries, shape.query_words),
    ):
        with gzip.open(target / f"{name}.jsonl.gz", "wt", compresslevel=1) as file:
            for row, text in enumerate(texts(count, mean)):
                file.write(json.dumps({"id": f"{letter}{row}", "text": text}) + "\n")
    with gzip.open(target / "qrels.jsonl.gz", "wt", compresslevel=1) as file:
        for query in range(shape.queries):
            for row in random.choice(shape.documents, shape.positives, replace=False).tolist():
                file.write(json.dumps({"q_id": f"q{query}", "p_id": f"d{row}", "score": 1}) + "\n")
    return target


def vocabulary() -> np.ndarray:
    """Distinct words by frequency; common ones are short."""
    letters = "etaoinshrdlucmfwypvbgkqjxz"

    def word(number: int) -> str:
        text = ""
        while number:
            number, index = divmod(number - 1, len(letters))
            text += letters[index]
        return text

    return np.array([word(number + 27) for number in range(VOCABULARY)], dtype=object)


def suite(scale: float, folder: Path) -> list[Floor]:
    data = folder / f"suite-{scale:g}"
    tasks = [
        make_collection(shape.scaled(scale), data, seed=number)
        for number, shape in enumerate(published())
    ]
    home = Path(tempfile.mkdtemp(dir=folder))
    peers = ["tantivy", "bm25s"]
    if find_spec("numba"):
        peers.append("bm25s-numba")
    figures = {name: run_peer(name, data, home, script=__file__) for name in peers}
    for name in ("r2med cold", "r2med warm"):
        figures[name] = run_command(tasks, home)
    show(f"suite: bm25 on eight collections, scale {scale:g}", figures)
    cold, warm = figures["r2med cold"], figures["r2med warm"]
    tantivy = figures["tantivy"].seconds
    bm25s = min(figures[name].seconds for name in peers[1:])
    return [
        Floor("cold, times faster than tantivy", tantivy / cold.seconds, 1.3, True),
        Floor("cold, times faster than bm25s", bm25s / cold.seconds, 5, True),
        Floor("cold, peak MB", cold.megabytes, 1500, False),
        Floor("warm, share of tantivy's time", warm.seconds / tantivy, 0.35, False),
    ]


def search_all_with(route: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """A route over every collection of a folder, in one process."""

    def search_all(data: Path, out: Path) -> None:
        for folder in sorted(data.iterdir()):
            route(folder, out)

    return search_all


def scoring(scale: float, folder: Path) -> list[Floor]:
    """Runs are stored by one process and measured by another."""
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "scale").write_text(str(scale))
    for number in range(len(published())):
        random_runs(number, scale, home)
    figure = run_peer("scoring", home, folder, script=__file__)
    show(
        f"scoring: {systems(scale)} systems x 8 tasks, scale {scale:g}",
        {"from stored runs": figure},
    )
    return [Floor("scoring, seconds", figure.seconds, 60, False)]


def systems(scale: float) -> int:
    return max(2, round(SYSTEMS * min(1.0, 10 * scale)))


def random_runs(number: int, scale: float, home: Path) -> None:
    import pyarrow as pa

    from r2med.runs import Run

    shape = published()[number].scaled(scale)
    random = np.random.default_rng(number)
    depth = min(LISTED, shape.documents)
    queries, names = (
        pa.array([f"{letter}{row}" for row in range(count)], type=pa.large_string())
        for letter, count in (("q", shape.queries), ("d", shape.documents))
    )
    offsets = np.arange(shape.queries + 1, dtype=np.int64) * depth
    step = next(prime for prime in (7919, 104729) if shape.documents % prime)
    for system in range(systems(scale)):
        starts = random.integers(shape.documents, size=(shape.queries, 1))
        documents = (starts + np.arange(depth) * step) % shape.documents
        scores = -np.sort(-random.random((shape.queries, depth)), axis=1)
        run = Run(queries, names, offsets, documents.ravel().astype(np.int32), scores.ravel())
        run.to_parquet(home / f"{number}-{system}.parquet")


def score_all(home: Path, out: Path) -> None:
    import pyarrow as pa

    from r2med.measure import measure
    from r2med.measure.metrics import stored_metrics
    from r2med.runs import Run
    from r2med.tasks.task import Judgements

    scale = float((home / "scale").read_text())
    means = []
    for number, whole in enumerate(published()):
        shape = whole.scaled(scale)
        random = np.random.default_rng(number)
        pairs = [
            (f"q{query}", f"d{row}")
            for query in range(shape.queries)
            for row in random.choice(shape.documents, shape.positives, replace=False).tolist()
        ]
        queries, documents = (
            pa.array(side, type=pa.large_string()) for side in zip(*pairs, strict=True)
        )
        judged = Judgements(queries, documents, np.ones(len(pairs), dtype=np.int32))
        for path in sorted(home.glob(f"{number}-*.parquet")):
            means.append(measure(Run.from_parquet(path), judged, stored_metrics()).means())
    out.write_text(json.dumps(means))


def passages(scale: float, folder: Path) -> list[Floor]:
    figures: dict[str, Figure] = {}
    for count in PASSAGES:
        shape = Shape(f"{count}", count, PASSAGE_WORDS, PASSAGE_QUERIES, 20, 3).scaled(scale)
        data = make_collection(shape, folder / f"passages-{scale:g}")
        home = Path(tempfile.mkdtemp(dir=folder))
        figures[f"{shape.documents:,} passages"] = run_command([data], home)
        shutil.rmtree(home)
    small, _, large = figures.values()
    home = Path(tempfile.mkdtemp(dir=folder))
    figures["tantivy, the largest"] = tantivy = run_peer("tantivy", data, home)
    shutil.rmtree(home)
    show(f"passages: bm25 from files to stored results, scale {scale:g}", figures)
    growth = PASSAGES[-1] / PASSAGES[0] * LINEAR
    return [
        Floor("5 million, times faster than tantivy", tantivy.seconds / large.seconds, 1.2, True),
        Floor("5 million, peak MB", large.megabytes, 4000, False),
        Floor("0.5 to 5 million, times the time", large.seconds / small.seconds, growth, False),
        Floor("0.5 to 5 million, times the MB", large.megabytes / small.megabytes, growth, False),
    ]


PARTS = {"suite": suite, "scoring": scoring, "passages": passages}
ROUTES = {
    "tantivy": search_all_with(search_with_tantivy),
    "bm25s": search_all_with(search_with_bm25s),
    "bm25s-numba": search_all_with(search_with_bm25s_numba),
    "scoring": score_all,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the data, which is reused by later runs; 4 GB at full size",
    )
    parser.add_argument("--route", choices=ROUTES, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.route:
        ROUTES[arguments.route](*arguments.paths)
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        for part in arguments.part or PARTS:
            start = time.perf_counter()
            floors = PARTS[part](arguments.scale, folder)
            if arguments.scale == 1:
                missed += show_floors(floors)
            print(
                f"{part}: {time.perf_counter() - start:.0f} seconds in total, with making the data"
            )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
