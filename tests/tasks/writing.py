"""One small collection, written in each of the layouts that can be read."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

Row = Mapping[str, object]


@dataclass(frozen=True)
class Written:
    """Plain values: documents and queries as (id, text), judgements as (query, document, score)."""

    documents: tuple[tuple[str, str], ...] = (("d1", "one"), ("d2", "two"), ("d3", "three"))
    queries: tuple[tuple[str, str], ...] = (("1", "first"), ("2", "second"))
    judgements: tuple[tuple[str, str, int], ...] = (("1", "d1", 1), ("2", "d3", 2), ("2", "d2", 0))


def write_lines(file: Path, rows: Iterable[Row | str]) -> Path:
    """A file of JSON lines, or of the strings as they are; gzipped where its name says so."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    return write_bytes(file, "".join(f"{line}\n" for line in lines).encode())


def write_bytes(file: Path, content: bytes) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)
    return file


def write_parquet(file: Path, **columns: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(
        pa.table({name.replace("__", "-"): values for name, values in columns.items()}), file
    )
    return file


def write_r2med(folder: Path, written: Written | None = None, *, suffix: str = "") -> Path:
    data = written or Written()
    write_lines(folder / f"corpus.jsonl{suffix}", _records(data.documents))
    write_lines(folder / f"query.jsonl{suffix}", _records(data.queries))
    rows = [{"q_id": q, "p_id": d, "score": s} for q, d, s in data.judgements]
    write_lines(folder / f"qrels.jsonl{suffix}", rows)
    return folder


def write_r2med_gzipped(folder: Path, written: Written) -> Path:
    return write_r2med(folder, written, suffix=".gz")


def write_r2med_trec(folder: Path, written: Written) -> Path:
    write_r2med(folder, written)
    (folder / "qrels.jsonl").unlink()
    write_lines(folder / "qrels.txt", [f"{q}\t0\t{d}\t{s}" for q, d, s in written.judgements])
    return folder


def write_beir(folder: Path, written: Written | None = None) -> Path:
    data = written or Written()
    rows = [{"_id": i, "title": "", "text": text, "metadata": {}} for i, text in data.documents]
    write_lines(folder / "corpus.jsonl", rows)
    write_lines(folder / "queries.jsonl", [{"_id": i, "text": text} for i, text in data.queries])
    header = "query-id\tcorpus-id\tscore"
    judged = [f"{q}\t{d}\t{s}" for q, d, s in data.judgements]
    write_lines(folder / "qrels" / "test.tsv", [header, *judged])
    return folder


def write_nano(folder: Path, written: Written | None = None, *, split: str = "NanoTask") -> Path:
    data = written or Written()
    shard = f"{split}-00000-of-00001.parquet"
    for config, rows in (("corpus", data.documents), ("queries", data.queries)):
        ids, texts = _columns(rows)
        write_parquet(folder / config / shard, _id=ids, text=texts)
    query, document, score = (list(column) for column in zip(*data.judgements, strict=True))
    write_parquet(folder / "qrels" / shard, query__id=query, corpus__id=document, score=score)
    return folder


def write_hub_parquet(folder: Path, written: Written) -> Path:
    for config, rows in (("corpus", written.documents), ("query", written.queries)):
        ids, texts = _columns(rows)
        write_parquet(folder / config / "train" / "0000.parquet", id=ids, text=texts)
    query, document, score = (list(column) for column in zip(*written.judgements, strict=True))
    write_parquet(
        folder / "qrels" / "train" / "0000.parquet", q_id=query, p_id=document, score=score
    )
    return folder


LAYOUTS: dict[str, Callable[[Path, Written], Path]] = {
    "r2med": write_r2med,
    "gzipped": write_r2med_gzipped,
    "trec": write_r2med_trec,
    "beir": write_beir,
    "nano": write_nano,
    "hub": write_hub_parquet,
}


def _records(rows: Iterable[tuple[str, str]]) -> list[Row]:
    return [{"id": i, "text": text} for i, text in rows]


def _columns(rows: Iterable[tuple[str, str]]) -> tuple[list[str], list[str]]:
    ids, texts = zip(*rows, strict=True)
    return list(ids), list(texts)
