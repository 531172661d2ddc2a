"""Read the files of a source, each in the way of its layout."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from r2med.errors import DataError
from r2med.tasks.reading import fields
from r2med.tasks.reading.collection import Collection, collect
from r2med.tasks.reading.fields import Rows
from r2med.tasks.reading.jsonl import read_jsonl
from r2med.tasks.reading.judgement_lines import holds_json, read_judgement_lines
from r2med.tasks.reading.source import Source


def read_collection(source: Source) -> Collection:
    """The task in its files, checked; every error names file, line or row, and field."""
    documents, queries, judgements = _READERS[source.layout](source)
    _check_not_empty(documents, source.corpus[0], "documents")
    _check_not_empty(queries, source.queries[0], "queries")
    _check_not_empty(judgements, source.judgements[0], "judgements")
    return collect(documents, queries, judgements, only_judged=source.layout == "beir")


def _read_r2med(source: Source) -> tuple[Rows, Rows, Rows]:
    return (
        read_jsonl(source.corpus[0], fields.DOCUMENT),
        read_jsonl(source.queries[0], fields.QUERY),
        _read_judgements(source.judgements[0]),
    )


def _read_judgements(path: Path) -> Rows:
    """By name, or by content where a text file may hold either form."""
    if ".jsonl" in path.suffixes or holds_json(path):
        return read_jsonl(path, fields.JUDGEMENT)
    return read_judgement_lines(path)


def _read_beir(source: Source) -> tuple[Rows, Rows, Rows]:
    documents = read_jsonl(source.corpus[0], fields.BEIR_DOCUMENT)
    columns = {"id": documents.columns["id"], "text": _titled(documents)}
    return (
        Rows(columns, documents.place, documents.repaired),
        read_jsonl(source.queries[0], fields.BEIR_QUERY),
        read_judgement_lines(source.judgements[0]),
    )


def _titled(documents: Rows) -> pa.LargeStringArray:
    """Title, a space and the text, as BEIR's own tools join them; either may be empty."""
    texts, titles = documents.columns["text"], documents.columns["title"]
    alone = pc.or_(pc.is_null(titles), pc.equal(texts, ""))
    gaps = pc.if_else(alone, "", " ").cast(pa.large_string())
    nothing = pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(pc.fill_null(titles, ""), gaps, texts, nothing)


def _read_parquet(source: Source) -> tuple[Rows, Rows, Rows]:
    from r2med.tasks.reading.parquet import read_parquet

    return (
        read_parquet(source.corpus, fields.BEIR_QUERY[:2], fields.DOCUMENT),
        read_parquet(source.queries, fields.BEIR_QUERY, fields.QUERY),
        read_parquet(source.judgements, fields.BEIR_JUDGEMENT, fields.JUDGEMENT),
    )


_READERS = {"r2med": _read_r2med, "beir": _read_beir, "parquet": _read_parquet}


def _check_not_empty(rows: Rows, file: Path, what: str) -> None:
    if not len(rows):
        raise DataError(f"{file} holds no {what}.")
