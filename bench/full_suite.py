"""Load: the whole suite, many systems and large corpora, on made-up texts of the published sizes.

    python bench/full_suite.py [--part suite|scoring|passages] [--scale 1] [--keep FOLDER]

suite     `bm25` over eight collections with the published numbers of documents, queries and words
          (357,080 documents, 82 million words), beside bm25s: cold, then warm
scoring   100 systems on the eight tasks, 1,000 documents per query, measured from stored runs
passages  `bm25` on 0.5, 1 and 5 million passages of 100 words, 100 queries

Words follow Zipf's law, common ones are short. Every figure is a new process, from the data files
to a written run; making the data is not counted. `--scale 0.01` takes a hundredth of the documents
and shows that everything works; floors are held against full size only, and the exit status tells
whether all are met.
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
    bm25s_default,
    bm25s_numba,
    measured,
    ours,
    show,
    show_floors,
)
from r2med.tasks.registry import find_suite

VOCABULARY = 200_000
SYSTEMS, LISTED = 100, 1000
PASSAGES, WORDS, ASKED = (500_000, 1_000_000, 5_000_000), 100, 100
#: How much worse than in proportion time and memory may grow: what a busy machine varies by.
LINEAR = 1.15
_BLOCK = 20_000


@dataclass(frozen=True)
class Shape:
    """How large a collection is; words are means."""

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


def made(shape: Shape, folder: Path, seed: int = 1) -> Path:
    """A collection of that shape in the reference layout; one that is there already is kept."""
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
    """Words by frequency, each of its own; the common ones are short."""
    letters = "etaoinshrdlucmfwypvbgkqjxz"

    def word(number: int) -> str:
        text = ""
        while number:
            number, place = divmod(number - 1, len(letters))
            text += letters[place]
        return text

    return np.array([word(number + 27) for number in range(VOCABULARY)], dtype=object)


def suite(scale: float, folder: Path) -> list[Floor]:
    data = folder / f"suite-{scale:g}"
    for number, shape in enumerate(published()):
        made(shape.scaled(scale), data, seed=number)
    home = Path(tempfile.mkdtemp(dir=folder))
    peers = ["bm25s", "bm25s-numba"][: 2 if find_spec("numba") else 1]
    figures = {name: measured(name, data, home, script=__file__) for name in peers}
    peer = min(figure.seconds for figure in figures.values())
    for name in ("cold", "warm"):
        figures[name] = measured("ours", data, home, script=__file__)
    show(f"suite: bm25 on eight collections, scale {scale:g}", figures)
    cold = figures["cold"]
    return [
        Floor("cold, times faster than bm25s", peer / cold.seconds, 5, True),
        Floor("cold, peak MB", cold.megabytes, 1500, False),
        Floor("warm, seconds", figures["warm"].seconds, 3, False),
    ]


def all_of(route: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    """A route over every collection of a folder, in one process."""

    def over(data: Path, out: Path) -> None:
        for folder in sorted(data.iterdir()):
            route(folder, out)

    return over


def scoring(scale: float, folder: Path) -> list[Floor]:
    """Runs are stored by one process and measured by another."""
    home = Path(tempfile.mkdtemp(dir=folder))
    (home / "scale").write_text(str(scale))
    for number in range(len(published())):
        random_runs(number, scale, home)
    figure = measured("scoring", home, folder, script=__file__)
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
        shape = Shape(f"{count}", count, WORDS, ASKED, 20, 3).scaled(scale)
        data = made(shape, folder / f"passages-{scale:g}")
        home = Path(tempfile.mkdtemp(dir=folder))
        figures[f"{shape.documents:,} passages"] = measured("ours", data, home)
        shutil.rmtree(home)
    show(f"passages: bm25 from files to a run, scale {scale:g}", figures)
    small, _, large = figures.values()
    growth = PASSAGES[-1] / PASSAGES[0] * LINEAR
    return [
        Floor("5 million, peak MB", large.megabytes, 8192, False),
        Floor("0.5 to 5 million, times the time", large.seconds / small.seconds, growth, False),
        Floor("0.5 to 5 million, times the MB", large.megabytes / small.megabytes, growth, False),
    ]


PARTS = {"suite": suite, "scoring": scoring, "passages": passages}
ROUTES = {
    "ours": all_of(ours),
    "bm25s": all_of(bm25s_default),
    "bm25s-numba": all_of(bm25s_numba),
    "scoring": score_all,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument(
        "--keep",
        type=Path,
        help="a folder for the data, which is used again when it is there; 4 GB at full size",
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
            began = time.perf_counter()
            floors = PARTS[part](arguments.scale, folder)
            if arguments.scale == 1:
                missed += show_floors(floors)
            print(f"{part}: {time.perf_counter() - began:.0f} seconds in all, data included")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
