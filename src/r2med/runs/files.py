"""Read and write run files: TREC (`query Q0 document rank score tag`, also gzipped), Parquet.

A Parquet run has the columns query_id, document_id, score and optionally rank; the metadata
lists every query id, so that queries with an empty list survive.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from r2med.errors import DataError
from r2med.runs.run import Run, distinct_entries, offsets_of, trec_scores
from r2med.storage import atomic_file, write_file
from r2med.tasks.reading.fields import Field
from r2med.tasks.reading.lines import lines

Form = Literal["trec", "parquet"]
Repeats = Literal["refuse", "first", "last"]
"""The treatment of a document that a file lists twice for one query.

`refuse` raises an error, `first` keeps the first line, `last` the last. Runs on corpora with
repeated ids have such lines.
"""

_FORM = "Each line is `query Q0 document rank score tag`, separated by spaces or tabs."
_QUERIES_KEY = b"r2med.queries"
_COLUMNS = (
    Field("query_id", "query", "id"),
    Field("document_id", "document", "id"),
    Field("rank", "rank", "number"),
    Field("score", "score", "number"),
)


@dataclass(frozen=True)
class Oddities:
    """Counts of problems that do not make a run file unreadable."""

    repeated_documents: int = 0
    odd_ranks: int = 0
    """Lists in which a rank occurs twice or contradicts the scores."""
    without_scores: bool = False


def read_run(
    path: Path,
    *,
    form: Form | None = None,
    repeats: Repeats = "refuse",
    content: bytes | None = None,
) -> tuple[Run, Oddities]:
    """Read a run file.

    The lists of a TREC file are sorted by score (float32), then by line; as in trec_eval, ranks are
    used only if there are no scores. The lists of a Parquet file are sorted by the column `rank`;
    without that column, they are in the order of the rows.

    Args:
        path: The file.
        form: The format of the file; by default the name of the file decides.
        repeats: How to treat a document that is listed twice for one query.
        content: The bytes of a Parquet file, if the caller has already read them.
    """
    form = form or ("parquet" if path.suffix == ".parquet" else "trec")
    listing = _parquet_listing(path, content) if form == "parquet" else _trec_listing(path)
    for field, values in (("rank", listing.ranks), ("score", listing.scores)):
        if values is not None and not np.isfinite(values).all():
            row = int(np.argmin(np.isfinite(values)))
            raise DataError(f"{listing.locate(row)}: {field} {values[row]} is not a finite number.")
    entries = _drop_repeats(listing, repeats)
    order = entries[np.argsort(listing.queries[entries], kind="stable")]
    queries, ranks = listing.queries[order], listing.ranks[order]
    scores = None if listing.scores is None else listing.scores[order]
    run = Run(
        query_ids=listing.query_ids,
        document_ids=listing.document_ids,
        offsets=offsets_of(np.bincount(queries, minlength=len(listing.query_ids))),
        documents=listing.documents[order],
        scores=-ranks if scores is None else scores,
    )
    if form == "trec":
        run = run.take(np.lexsort((-trec_scores(run.scores), run.query_rows)))
    repeated = len(listing.queries) - len(entries)
    return run, Oddities(repeated, _count_odd_ranks(queries, ranks, scores), scores is None)


def write_trec(run: Run, path: Path, *, tag: str) -> None:
    """Write a TREC run file, gzipped if its name ends in .gz; ids with spaces are an error."""
    _refuse_spaces(pa.array([tag], pa.large_string()), "tag")
    _refuse_spaces(run.query_ids, "query id")
    _refuse_spaces(run.document_ids.take(pa.array(np.unique(run.documents))), "document id")
    if not np.isfinite(run.scores).all():
        raise DataError(f"{path}: a score is not a finite number, which run files cannot hold.")
    table = run.to_table()
    fields = [table["query_id"], "Q0", table["document_id"], table["rank"], table["score"], tag]
    texts = [field if isinstance(field, str) else field.cast("string") for field in fields]
    rows = pc.binary_join_element_wise(*texts, " ").combine_chunks().to_pylist()
    data = "".join(f"{row}\n" for row in rows).encode()
    if path.suffix == ".gz":
        import gzip

        data = gzip.compress(data, mtime=0)
    write_file(path, data)


def write_parquet(run: Run, path: Path) -> None:
    """Write a Parquet run file; its metadata lists all queries, also those without documents."""
    queries = json.dumps(run.query_ids.to_pylist()).encode()
    table = run.to_table().replace_schema_metadata({_QUERIES_KEY: queries})
    with atomic_file(path) as draft:
        pq.write_table(table, draft)


@dataclass(frozen=True, eq=False)
class _Listing:
    """The columns of a run file, in file order and unchecked."""

    query_ids: pa.LargeStringArray
    document_ids: pa.LargeStringArray
    queries: NDArray[np.int32]
    """For every entry, the index of its query in `query_ids`. `documents` are indexes likewise."""
    documents: NDArray[np.int32]
    ranks: NDArray[np.float64]
    """The rank of every entry; if the file has no ranks, the position in the file."""
    scores: NDArray[np.float64] | None
    locate: Callable[[int], object]


def _trec_listing(path: Path) -> _Listing:
    """Read a TREC file; each id is stored once, so that a large file needs little memory."""
    queries, documents, numbers = array("i"), array("i"), array("q")
    ranks, scores = array("d"), array("d")
    query_codes: dict[bytes, int] = {}
    document_codes: dict[bytes, int] = {}
    for number, line in lines(path):
        fields = line.split()
        if not 4 <= len(fields) <= 6:
            count = len(fields)
            raise DataError(f"{path}, line {number}: {count} fields, expected 6.\n{_FORM}")
        numbers.append(number)
        queries.append(query_codes.setdefault(fields[0], len(query_codes)))
        documents.append(document_codes.setdefault(fields[2], len(document_codes)))
        try:
            ranks.append(int(fields[3]))
            if len(fields) > 4:
                scores.append(float(fields[4]))
        except (ValueError, OverflowError):
            values = b" ".join(fields[3:5])[:40].decode(errors="replace")
            raise DataError(
                f"{path}, line {number}: rank or score is not a number: {values!r}.\n{_FORM}"
            ) from None
        if scores and len(scores) < len(numbers):
            raise DataError(
                f"{path}, line {number}: the score is missing, or only this line has one.\n{_FORM}"
            )
    if not numbers:
        raise DataError(f"{path}: the file holds no run.\n{_FORM}")
    return _Listing(
        query_ids=_decode_ids(query_codes, path),
        document_ids=_decode_ids(document_codes, path),
        queries=np.frombuffer(queries, np.int32),
        documents=np.frombuffer(documents, np.int32),
        ranks=np.frombuffer(ranks),
        scores=np.frombuffer(scores) if scores else None,
        locate=lambda row: f"{path}, line {numbers[row]}",
    )


def _decode_ids(codes: Mapping[bytes, int], path: Path) -> pa.LargeStringArray:
    try:
        return pa.array([name.decode() for name in codes], pa.large_string())
    except UnicodeDecodeError as problem:
        raise DataError(
            f"{path}: the id {problem.object!r} is not UTF-8 text. Save the file as UTF-8."
        ) from None


def _parquet_listing(path: Path, content: bytes | None) -> _Listing:
    from r2med.tasks.reading.parquet import read_parquet

    rows = read_parquet([path], _COLUMNS, content=content)
    ranks, scores = (rows.columns[name] for name in ("rank", "score"))
    if scores.null_count and ranks.null_count and len(rows):
        raise DataError(
            f"{path}: column 'score' is missing; "
            "a run has the columns query_id, document_id, score and optionally rank."
        )
    queries, documents = (rows.columns[name].dictionary_encode() for name in ("query", "document"))
    query_ids, positions = _all_queries(path, content, queries.dictionary)
    sorted_by = np.arange(float(len(rows))) if ranks.null_count else ranks.to_numpy()
    order = np.argsort(sorted_by, kind="stable")
    return _Listing(
        query_ids=query_ids,
        document_ids=documents.dictionary,
        queries=positions[queries.indices.to_numpy(zero_copy_only=False)][order],
        documents=documents.indices.to_numpy(zero_copy_only=False)[order],
        ranks=sorted_by[order],
        scores=None if scores.null_count else scores.to_numpy()[order],
        locate=lambda row: rows.locate(int(order[row])),
    )


def _all_queries(
    path: Path, content: bytes | None, ranked_queries: pa.LargeStringArray
) -> tuple[pa.LargeStringArray, NDArray[np.int32]]:
    """Return all query ids of a Parquet run, and the indexes of the queries that have documents."""
    schema = pq.read_schema(path if content is None else pa.BufferReader(content))
    text = (schema.metadata or {}).get(_QUERIES_KEY)
    if text is None:
        return ranked_queries, np.arange(len(ranked_queries), dtype=np.int32)
    try:
        queries = pa.array(json.loads(text), pa.large_string())
        positions = pc.index_in(ranked_queries, value_set=queries)
        if positions.null_count or len(queries.unique()) < len(queries):
            raise ValueError("some are repeated, or rows have a query that is not listed")
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as problem:
        raise DataError(f"{path}: the queries in its metadata are damaged ({problem}).") from None
    return queries, positions.to_numpy(zero_copy_only=False)


def _drop_repeats(listing: _Listing, repeats: Repeats) -> NDArray[np.int64]:
    """Return the rows to keep if a document is repeated for a query, in file order."""
    count, width = len(listing.queries), len(listing.document_ids)
    rows = distinct_entries(listing.queries, listing.documents, width, last=repeats == "last")
    if repeats == "refuse" and len(rows) < count:
        row = int(np.setdiff1d(np.arange(count), rows)[0])
        document = listing.document_ids[int(listing.documents[row])].as_py()
        query = listing.query_ids[int(listing.queries[row])].as_py()
        raise DataError(
            f"{listing.locate(row)}: document {document!r} appears twice for query {query!r}; "
            "a ranking holds each document once.\n"
            "To keep one of its lines, use run:PATH[repeats=first] in a spec, or "
            "`r2med score --repeats first`."
        )
    return rows


def _count_odd_ranks(
    queries: NDArray[np.int32], ranks: NDArray[np.float64], scores: NDArray[np.float64] | None
) -> int:
    """Return how many queries have a rank twice, or ranks that contradict the scores."""
    order = np.lexsort((ranks, queries))
    rows, sorted_ranks = queries[order], ranks[order]
    is_odd = sorted_ranks[1:] == sorted_ranks[:-1]
    if scores is not None:
        sorted_scores = trec_scores(scores)[order]
        is_odd |= sorted_scores[1:] > sorted_scores[:-1]
    is_same_query = rows[1:] == rows[:-1]
    return len(np.unique(rows[1:][is_odd & is_same_query]))


def _refuse_spaces(names: pa.Array, field: str) -> None:
    """Raise DataError for an id or tag that a reader of TREC files would split or change."""
    # A reader also drops a byte order mark and ends strings at NUL.
    unwritable = r"[\s\x0b\x00]|^$|^\x{feff}"
    refused = names.filter(pc.match_substring_regex(names, unwritable))
    if len(refused):
        raise DataError(
            f"{field} {refused[0].as_py()!r}: TREC run files separate fields by spaces, so ids and "
            "tags must not be empty or hold any; write Parquet instead (`Run.to_parquet`)."
        )
