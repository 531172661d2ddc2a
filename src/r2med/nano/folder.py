"""A Nano folder: Parquet configurations as on the hub, the R2MED layout beside them, a record.

Equal content gives equal bytes: nothing written carries a time, a path or a host.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from r2med.nano.pool import Pool
from r2med.nano.staging import RECORD
from r2med.runs import Run
from r2med.tasks.location import NANO_CONFIGS
from r2med.tasks.provenance import sha256_of

R2MED_PART = "r2med"
"""The subfolder of the R2MED layout: `<folder>/r2med/<split>/corpus.jsonl`, ..."""
_ROWS_A_GROUP = 10_000


def shard(config: str, split: str) -> str:
    """Where the rows of one split of one configuration lie."""
    return f"{config}/{split}-00000-of-00001.parquet"


def write_hub_layout(pool: Pool, folder: Path, split: str) -> None:
    """Corpus {_id, text}, queries {_id, text}, qrels {query-id, corpus-id}: all are positives."""
    _write(folder / shard("corpus", split), {"_id": pool.corpus.ids, "text": pool.corpus.texts})
    _write(folder / shard("queries", split), {"_id": pool.queries.ids, "text": pool.queries.texts})
    judged = pool.judgements
    columns = {"query-id": judged.query_ids, "corpus-id": judged.document_ids}
    _write(folder / shard("qrels", split), columns)


def write_candidates(run: Run, folder: Path, config: str, split: str) -> None:
    """{query-id, corpus-ids}: the lists alone, best first, as published."""
    names = run.document_ids.take(pa.array(run.documents)).cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(run.offsets, pa.int32()), names)
    _write(folder / shard(config, split), {"query-id": run.query_ids, "corpus-ids": lists})


def write_r2med_layout(pool: Pool, folder: Path, split: str) -> None:
    """corpus.jsonl, query.jsonl with the source's annotations, qrels.jsonl."""
    place = folder / R2MED_PART / split
    _lines(
        place / "corpus.jsonl",
        (
            {"id": i, "text": text}
            for i, text in zip(
                pool.corpus.ids.to_pylist(), pool.corpus.texts.to_pylist(), strict=True
            )
        ),
    )
    pairs = list(
        zip(
            pool.judgements.query_ids.to_pylist(),
            pool.judgements.document_ids.to_pylist(),
            strict=True,
        )
    )
    _lines(place / "query.jsonl", _query_rows(pool, pairs))
    _lines(place / "qrels.jsonl", ({"q_id": q, "p_id": d, "score": 1} for q, d in pairs))


def write_record(folder: Path, record: Mapping[str, object]) -> None:
    """The record, with the sha256 of every other file; written last."""
    files = {
        path.relative_to(folder).as_posix(): sha256_of(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != RECORD
    }
    told = {"schema": 1, **record, "files": files}
    text = json.dumps(told, indent=1, sort_keys=True, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def configs_of(files: Iterable[str]) -> dict[str, list[str]]:
    """Configuration to splits, from the paths of a folder's files; the published order first."""
    found: dict[str, list[str]] = {}
    for path in sorted(files):
        config, _, name = path.partition("/")
        if name.endswith(".parquet") and "/" not in name:
            found.setdefault(config, []).append(name.removesuffix("-00000-of-00001.parquet"))
    known = [config for config in (*NANO_CONFIGS, "bm25") if config in found]
    late = [config for config in ("reranking_hybrid",) if config in found]
    between = sorted(set(found) - {*known, *late})
    return {config: found[config] for config in (*known, *between, *late)}


def _query_rows(pool: Pool, pairs: Sequence[tuple[str, str]]) -> Iterable[dict[str, object]]:
    positives: dict[str, list[str]] = {}
    for query, document in pairs:
        positives.setdefault(query, []).append(document)
    queries = pool.queries
    columns = (
        queries.ids,
        queries.texts,
        queries.answers,
        queries.body_systems,
        queries.reasonings,
    )
    for query, text, answer, body_system, reasoning in zip(
        *(column.to_pylist() for column in columns), strict=True
    ):
        row = {"id": query, "text": text, "doc_id": positives[query]}
        notes = {"answer": answer, "body_system": body_system, "reasoning": reasoning}
        yield row | {name: note for name, note in notes.items() if note is not None}


def _lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write(path: Path, columns: Mapping[str, pa.Array]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = {
        name: column.cast(pa.string()) if pa.types.is_large_string(column.type) else column
        for name, column in columns.items()
    }
    pq.write_table(
        pa.table(plain),
        path,
        compression="zstd",
        compression_level=3,
        version="2.6",
        data_page_version="1.0",
        row_group_size=_ROWS_A_GROUP,
        store_schema=False,
    )
