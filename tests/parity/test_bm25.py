"""BM25 against what independent tools answer, on collections that are not part of this project.

Set `R2MED_PARITY` to a folder with `oracle/` and `data/`; the tests are skipped without it.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from r2med.measure.scores import measure
from r2med.retrieve.bm25 import Bm25Retriever, find_analyzer
from r2med.runs import Run
from r2med.settings import parse_settings
from r2med.systems.registry import entries
from r2med.tasks.load import load_task

FOLDER = Path(os.environ.get("R2MED_PARITY", ""))
pytestmark = pytest.mark.skipif(
    "R2MED_PARITY" not in os.environ, reason="set R2MED_PARITY to a folder with oracle/ and data/"
)
#: The other tools hold scores as float32: documents that agree to this are tied.
TOLERANCE = 1e-4
METRICS = {
    "ndcg_cut_10": "ndcg@10",
    "map_cut_10": "map@10",
    "recall_100": "recall@100",
    "P_10": "precision@10",
    "recip_rank": "mrr",
}


def rows_of(name: str) -> Iterator[Any]:
    with gzip.open(FOLDER / "oracle" / name, "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def assert_terms(texts: list[str], expected: list[list[str]]) -> None:
    columns = find_analyzer("lucene").analyze(pa.array(texts, pa.large_string()))

    different = [
        (text, terms, columns.row(row))
        for row, (text, terms) in enumerate(zip(texts, expected, strict=True))
        if columns.row(row) != terms
    ]
    assert different == []


def test_hard_strings_have_lucenes_terms() -> None:
    texts, expected = zip(*rows_of("lucene_cases.jsonl.gz"), strict=True)
    assert_terms(list(texts), list(expected))


def test_every_code_point_has_lucenes_boundaries() -> None:
    points, expected = zip(*rows_of("lucene_codepoints.jsonl.gz"), strict=True)
    texts = ["x{0}y 1{0}2 {0}q q{0} {0}".format(chr(point)) for point in points]
    assert_terms(texts, list(expected))


def test_every_medical_word_has_lucenes_terms() -> None:
    with gzip.open(FOLDER / "oracle" / "lucene_words.tsv.gz", "rt", encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in lines]
    assert_terms([word for word, _ in pairs], [terms.split() for _, terms in pairs])


@pytest.mark.parametrize("part", ["corpus", "query"])
def test_every_text_of_a_collection_has_lucenes_terms(part: str) -> None:
    expected = dict(rows_of(f"lucene_tokens_nfcorpus_{part}.jsonl.gz"))
    with gzip.open(FOLDER / "data" / "nfcorpus" / f"{part}.jsonl.gz", "rt") as lines:
        texts = {row["id"]: row["text"] for row in map(json.loads, lines)}
    assert_terms([texts[name] for name in expected], list(expected.values()))


def assert_same_run(run: Run, expected: Run) -> None:
    """Equal scores at every rank, and equal documents unless their scores are tied."""
    assert expected.query_ids.to_pylist()
    for query in expected.query_ids.to_pylist():
        theirs = expected.ranking(query)
        ours = run.ranking(query)[: len(theirs)]
        our_scores = np.array([score for _, score in ours])
        their_scores = np.array([score for _, score in theirs])
        np.testing.assert_allclose(our_scores, their_scores, rtol=TOLERANCE, atol=TOLERANCE)
        lowest = their_scores[-1] * (1 + TOLERANCE) + TOLERANCE
        by_document = dict(theirs)
        for document, score in ours:
            if document in by_document:
                assert score == pytest.approx(by_document[document], rel=TOLERANCE, abs=TOLERANCE)
            else:
                assert score <= lowest, (query, document)


@pytest.mark.parametrize(
    ("system", "collection", "file"),
    [
        ("bm25", "nfcorpus", "bm25_query_side_nfcorpus"),
        ("bm25", "scifact", "bm25_query_side_scifact"),
        ("bm25", "pool41k_long", "bm25_query_side_pool41k_long"),
        ("bm25-nano", "nfcorpus", "bm25_nano_nfcorpus"),
        ("bm25-nano", "scifact", "bm25_nano_scifact"),
    ],
)
def test_runs_are_those_of_the_published_route(system: str, collection: str, file: str) -> None:
    task = load_task(FOLDER / "data" / collection)
    retriever = parse_settings(Bm25Retriever, entries()[system].fields, name=system)
    expected = Run.from_trec(FOLDER / "oracle" / f"{file}.trec.gz")
    depth = int(expected.lengths.max())

    run = retriever.prepare(task).search(task.queries, depth=depth)

    assert_same_run(run, expected)


@pytest.mark.parametrize("collection", ["nfcorpus", "scifact"])
def test_means_are_those_of_trec_eval(collection: str) -> None:
    path = FOLDER / "oracle" / "bm25_query_side_metrics.json"
    expected = json.loads(path.read_text())[collection]
    task = load_task(FOLDER / "data" / collection)
    retriever = parse_settings(Bm25Retriever, entries()["bm25"].fields, name="bm25")
    run = retriever.prepare(task).search(task.queries, depth=100)

    means = measure(run, task.judgements, list(METRICS.values())).means()

    assert {name: round(means[ours], 5) for name, ours in METRICS.items()} == pytest.approx(
        expected, abs=2e-5
    )
