"""Vectors in Milvus, exercised on embedded Milvus: what is built, found, kept and refused."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import r2med
from r2med.errors import MissingError, UsageError
from r2med.execution.resources import Resources
from r2med.report.drawing import draw
from r2med.results.evaluation import Evaluation
from r2med.retrieve.dense import milvus
from r2med.retrieve.dense.milvus import Milvus, MilvusIndex, connect
from r2med.retrieve.dense.retriever import ExactIndex
from r2med.systems.build import System
from tests.retrieve.dense.test_index import encoded, random_vectors

pytest.importorskip("pymilvus")
pytest.importorskip("milvus_lite")
COUNT, WIDTH, DEPTH = 900, 16, 100
VECTORS = random_vectors(COUNT, WIDTH, 1)
QUERIES = random_vectors(8, WIDTH, 2)
Opened = Callable[..., MilvusIndex]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One file for all tests of this module: collections never meet."""
    from milvus_lite.server_manager import server_manager_instance

    folder = tmp_path_factory.mktemp("milvus")
    yield folder
    server_manager_instance.release_all()


@pytest.fixture
def opened(folder: Path) -> Opened:
    def index(text: str = "", vectors: np.ndarray = VECTORS, **places: list[int]) -> MilvusIndex:
        documents = encoded(vectors, **places)
        rows = ExactIndex(documents, 10**8, "dot").rows
        options = f"index=milvus:{folder / 'v.db'}{',' * bool(text)}{text}"
        found = System.from_spec(f"wordllama[{options}]").stage.retriever.milvus  # type: ignore[union-attr]
        return MilvusIndex(found, rows, documents.distinct, len(documents.indexes), Resources())

    return index


def exact(vectors: np.ndarray = VECTORS, **places: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return ExactIndex(encoded(vectors, **places), 10**8, "dot").search(QUERIES, depth=DEPTH)


def recall(index: MilvusIndex) -> float:
    found, _ = index.search(QUERIES, depth=DEPTH)
    pairs = zip(found, exact()[0], strict=True)
    return float(np.mean([len(set(ours) & set(best)) / DEPTH for ours, best in pairs]))


def test_flat_ranks_as_exact_search_does_and_documents_of_one_text_tie(opened: Opened) -> None:
    shared = [*range(COUNT), 5, 5, 17]

    found, scores = opened(distinct=shared).search(QUERIES, depth=DEPTH)
    documents, expected = exact(distinct=shared)

    np.testing.assert_allclose(scores, expected, atol=1e-5)
    np.testing.assert_array_equal(found, documents)


def test_parameters_reach_the_engine_are_read_back_and_change_what_is_found(opened: Opened) -> None:
    sparse = opened("index_kind=hnsw,m=2,ef_construction=4")
    dense = opened("index_kind=hnsw,m=32,ef_construction=200,ef=800")
    one = opened("index_kind=ivf_flat,nlist=16,nprobe=1")
    every = opened("index_kind=ivf_flat,nlist=16,nprobe=16")

    assert recall(sparse) < 0.9 < recall(dense)
    assert recall(one) < 0.5 and recall(every) == 1
    built = {"index_type": "HNSW", "metric_type": "IP", "M": 2, "efConstruction": 4}
    assert sparse.facts["built"] == built | {"total_rows": COUNT}
    assert sparse.facts["searched_with"] == {"ef": DEPTH}
    assert dense.facts["searched_with"] == {"ef": 800}
    assert every.facts["inserted"] == 0  # the same index, searched otherwise
    found, _ = one.search(QUERIES, depth=COUNT)
    assert (found[:, -1] == -2).all()  # a cell holds fewer documents than were asked for


def test_a_whole_collection_is_used_again_and_one_that_is_not_is_built_anew(
    opened: Opened, folder: Path
) -> None:
    vectors = random_vectors(300, WIDTH, 3)
    first = opened(vectors=vectors)
    client, name = connect(Milvus(str(folder / "v.db"))), first.facts["collection"]

    again = opened(vectors=vectors)
    client.delete(name, filter="row >= 100 and row < 140")
    mended = opened(vectors=vectors)

    assert [index.facts["inserted"] for index in (first, again, mended)] == [300, 0, 300]
    np.testing.assert_array_equal(mended.search(QUERIES, depth=DEPTH)[0], exact(vectors)[0])
    assert opened(vectors=vectors[:299]).facts["collection"] != name


KILLED = """
import os, signal, sys
import numpy as np
from r2med.execution.resources import Resources
from r2med.retrieve.dense import milvus

VECTORS = np.load(sys.argv[2])
milvus._MOST_ROWS = 100
kill = lambda what, done, *_: done >= 300 and os.kill(os.getpid(), signal.SIGKILL)
milvus.MilvusIndex(
    milvus.Milvus(sys.argv[1]), lambda a, b: VECTORS[a:b], np.arange(900), 900,
    Resources(progress=kill),
)
"""


def test_what_a_killed_run_left_is_built_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "killed.db")
    np.save(tmp_path / "vectors.npy", VECTORS)
    command = [sys.executable, "-c", KILLED, path, str(tmp_path / "vectors.npy")]
    ended = subprocess.run(command, capture_output=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    monkeypatch.setattr(milvus, "_MOST_ROWS", 100)

    index = MilvusIndex(
        Milvus(path), lambda a, b: VECTORS[a:b], np.arange(COUNT), COUNT, Resources()
    )

    assert index.facts["inserted"] == COUNT
    np.testing.assert_array_equal(index.search(QUERIES, depth=DEPTH)[0], exact()[0])


def test_rows_that_an_interrupted_run_left_outside_the_index_are_brought_under_it(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pymilvus import MilvusClient

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    cells = "index_kind=ivf_flat,nlist=20,nprobe=1"
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(MilvusClient, "flush", interrupt)
        opened(cells)

    again = opened(cells)

    assert again.facts["inserted"] == 0
    assert recall(again) < 0.5


@pytest.mark.parametrize("shortened", ["", "dimensions=64"])
def test_scores_are_those_of_exact_search(tmp_path: Path, folder: Path, shortened: str) -> None:
    pytest.importorskip("wordllama")
    place = f"index=milvus:{folder / 'v.db'}"

    runs = [
        r2med.evaluate(f"wordllama[{options}]@20", "demo/biology", results=tmp_path).run
        for options in (shortened or "dimensions=0", f"{place},{shortened}".strip(","))
    ]

    np.testing.assert_allclose(runs[0].scores, runs[1].scores, rtol=1e-5)


def test_what_an_approximate_index_costs_stands_beside_the_score(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wordllama")
    monkeypatch.setenv("R2MED_MILVUS_TOKEN", "root:secret-word")
    results = tmp_path / "results"
    text = f"wordllama[index=milvus:{folder / 'v.db'},index_kind=ivf_flat,nlist=8,nprobe=1]"

    approximate = r2med.evaluate(text, "demo/biology", results=results)
    plain = r2med.evaluate("wordllama", "demo/biology", results=results)

    loss = approximate.record.facts[approximate.system]["loss"]
    drop = approximate.metrics["ndcg@10"] - plain.metrics["ndcg@10"]
    lists = [
        tuple(set(one.run.ranked_documents(query)[:100]) for one in (approximate, plain))
        for query in plain.run.query_ids.to_pylist()
    ]
    share = sum(len(a & b) for a, b in lists) / sum(len(b) for _, b in lists)
    assert plain.reused  # exact search was run once, as a result of its own
    assert loss["difference"] == pytest.approx(drop) and drop < 0
    assert loss["low"] < drop < loss["high"]
    assert loss["recall_of_exact_100"] == pytest.approx(share)
    paper = StringIO()
    draw(Evaluation([approximate]), Console(file=paper, width=80))
    shown = " ".join(paper.getvalue().split())
    assert f"finds {100 * share:.0f} % of the exact first 100 on demo/biology" in shown
    assert f"{100 * drop:+.2f} [" in shown and "against exact wordllama." in shown
    stored = [path.read_bytes() for path in results.rglob("*") if path.is_file()]
    assert not any(b"secret-word" in content for content in stored)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("m=8", "m=8 has no effect without an index"),
        ("index_kind=hnsw", "index_kind=hnsw has no effect without an index"),
        ("index=milvus:v.db,m=8", "m=8 has no effect without an index of index_kind=hnsw"),
        ("index=milvus:v.db,index_kind=hnsw,nlist=8", "without an index of index_kind=ivf_flat"),
        ("index=milvus:v.db,index_kind=ivf_flat,nlist=8,nprobe=9", "more than the nlist=8 cells"),
        ("index=milvus:v.db,index_kind=diskann", "expected one of flat, hnsw, ivf_flat"),
        ("index=faiss:v.db", "expected milvus:PATH.db"),
        ("index=milvus:v", "expected milvus:PATH.db"),
        ('index="milvus:http://root:word@host"', "R2MED_MILVUS_TOKEN"),
    ],
)
def test_settings_without_effect_or_with_secrets_are_refused(options: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        System.from_spec(f"wordllama[{options}]")


def test_no_more_cells_are_searched_than_there_are() -> None:
    system = System.from_spec("wordllama[index=milvus:v.db,index_kind=ivf_flat,nlist=8]")

    assert system.stage.retriever.milvus.searching == {"nprobe": 8}  # type: ignore[union-attr]


def test_what_the_engine_would_change_silently_is_refused(opened: Opened) -> None:
    with pytest.raises(UsageError, match="Set nlist to 20 or less"):
        opened("index_kind=ivf_flat", vectors=random_vectors(20, WIDTH, 4))
    with pytest.raises(UsageError, match="Set ef=100 or more"):
        opened("index_kind=hnsw,m=2,ef_construction=4,ef=10").search(QUERIES, depth=DEPTH)


def test_an_engine_that_builds_something_else_is_refused(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pymilvus import MilvusClient

    describe = MilvusClient.describe_index
    ignoring = {"params": {"nlist": "128"}}
    monkeypatch.setattr(MilvusClient, "describe_index", lambda *given: describe(*given) | ignoring)

    with pytest.raises(UsageError, match=r"nlist=16 was requested, but Milvus built .*nlist=128"):
        opened("index_kind=ivf_flat,nlist=16,nprobe=1")


def test_a_missing_client_and_a_cluster_that_does_not_answer_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(MissingError, match=r"http://127.0.0.1:1: Milvus cannot be opened"):
        connect(Milvus("http://127.0.0.1:1"))
    monkeypatch.setattr("r2med.errors.find_spec", lambda name: None)
    with pytest.raises(MissingError, match=r"needs pymilvus: pip install 'r2med\[milvus\]'"):
        connect(Milvus("http://127.0.0.1:1"))
