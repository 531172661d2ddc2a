"""A registry of tasks small enough to write in a test: two of R2MED, one of NanoR2MED."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from r2med.tasks import registry
from tests.hub_server import sha256


def jsonl(*rows: Mapping[str, object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(columns: Mapping[str, list[str]]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink)
    return sink.getvalue()


def task_files(documents: int) -> dict[str, bytes]:
    """A task with two queries, each with one relevant document."""
    return {
        "corpus.jsonl": jsonl(*({"id": f"d{i}", "text": f"text {i}"} for i in range(documents))),
        "query.jsonl": jsonl({"id": "1", "text": "first"}, {"id": "2", "text": "second"}),
        "qrels.jsonl": jsonl(
            {"q_id": "1", "p_id": "d0", "score": 1}, {"q_id": "2", "p_id": "d1", "score": 1}
        ),
    }


BIOLOGY = task_files(3)
MEDQA = task_files(5)
NANO = {
    f"{config}/NanoR2MEDBiology-00000-of-00001.parquet": parquet(columns)
    for config, columns in {
        "corpus": {"_id": ["a", "b"], "text": ["one", "three"]},
        "queries": {"_id": ["1"], "text": ["which"]},
        "qrels": {"query-id": ["1"], "corpus-id": ["b"]},
    }.items()
}

_WORDS = """
family = "Q&A reference"
scenario = "biomedical reference"
kind = "Biology post"
purpose = "retrieve"
description = "A small task."
"""
_FULL = f"""
[suite]
name = "full"
title = "R2MED"
citation = "none"

[[task]]
name = "Biology"
aliases = ["full/Biology"]
{_WORDS}
hub = {{ repo = "R2MED/Biology", revision = "{"a" * 40}" }}
counts = {{ queries = 2, documents = 3, judgements = 2 }}
statistics.documents_text = {{ total_text_length = 18, average_text_length = 6.0 }}
files."corpus.jsonl" = {{ sha256 = "{sha256(BIOLOGY["corpus.jsonl"])}", bytes = 1 }}
files."query.jsonl" = {{ sha256 = "{sha256(BIOLOGY["query.jsonl"])}", bytes = 1 }}
files."qrels.jsonl" = {{ sha256 = "{sha256(BIOLOGY["qrels.jsonl"])}", bytes = 1 }}

[[task]]
name = "MedQA-Diag"
{_WORDS}
hub = {{ repo = "R2MED/MedQA-Diag", revision = "{"b" * 40}" }}
counts = {{ queries = 2, documents = 5, judgements = 2 }}
"""
_NANO = """
[suite]
name = "nano"
title = "NanoR2MED"
citation = "none"

[[task]]
name = "NanoR2MEDBiology"
source = "Biology"
split = "NanoR2MEDBiology"
aliases = ["nano/Biology"]
description = "A small pool."
hub = { repo = "hakari-bench/NanoR2MED" }
counts = { queries = 1, documents = 2, judgements = 1 }
statistics.documents_text = { average_text_length = 4.0000004 }
"""
_DEMO = """
task = []

[suite]
name = "demo"
title = "Demo"
citation = "none"
"""


@pytest.fixture
def small_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put the small manifests in the place of the real ones."""
    for name, text in (("full", _FULL), ("nano", _NANO), ("demo", _DEMO)):
        (tmp_path / f"{name}.toml").write_text(text)
    monkeypatch.setattr(registry, "MANIFESTS", tmp_path)
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for remembered in (registry._index, registry._suite, registry._read):
        remembered.cache_clear()


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder
