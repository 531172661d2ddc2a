"""A task: queries, a corpus and judgements, as Arrow columns."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from r2med.storage import release_memory
from r2med.tables import html_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from r2med.tasks.registry import TaskEntry


#: The suite of tasks that are samples of others.
SAMPLE = "sample"
_SHOWN_QUERIES, _SHOWN_TEXT = 5, 120
#: Bytes that are hashed at once.
_HASHED_BYTES = 1 << 28


class _Columns:
    """Base of classes whose fields are columns of equal length.

    `repr` shows only the number of rows.
    """

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} rows)"


@dataclass(frozen=True, eq=False)
class StoredHash:
    """A corpus hash that was computed before, with the columns from which it was computed.

    `dataclasses.replace` copies this field to a corpus with other columns, so `is_of` must be
    checked before the hash is used.
    """

    value: str
    ids: pa.LargeStringArray
    texts: pa.LargeStringArray

    def is_of(self, ids: pa.LargeStringArray, texts: pa.LargeStringArray) -> bool:
        """Return whether the hash was computed from these column objects."""
        return ids is self.ids and texts is self.texts


@dataclass(frozen=True, eq=False, repr=False)
class Corpus(_Columns):
    """Documents in the order of the file; an id may occur in several rows."""

    ids: pa.LargeStringArray
    texts: pa.LargeStringArray
    stored_hash: StoredHash | None = None
    """The hash that was stored with the columns; None if no hash was stored."""

    @cached_property
    def hash(self) -> str:
        """Hash of the ids, texts and their order; the layout of the files does not matter."""
        if self.stored_hash is not None and self.stored_hash.is_of(self.ids, self.texts):
            return self.stored_hash.value
        return column_hash([self.ids, self.texts])

    @cached_property
    def document_ids(self) -> pa.LargeStringArray:
        """Each id once, in order of first appearance.

        In runs of retrievers, `documents` are indexes of these ids.
        """
        return self._encoded.dictionary

    @cached_property
    def codes(self) -> NDArray[np.int32]:
        """For every row, the index of its id in `document_ids`."""
        codes: NDArray[np.int32] = self._encoded.indices.to_numpy(zero_copy_only=False)
        return codes

    @cached_property
    def last_rows(self) -> NDArray[np.int64]:
        """For every id in `document_ids`, its last row, whose text dense retrieval uses."""
        rows = np.zeros(len(self.document_ids), dtype=np.int64)
        np.maximum.at(rows, self.codes, np.arange(len(self), dtype=np.int64))
        return rows

    def document_texts(self) -> list[str]:
        """Return one text for each of `document_ids`: the text of the last row with the id."""
        texts: list[str] = self.texts.take(pa.array(self.last_rows)).fill_null("").to_pylist()
        return texts

    @cached_property
    def _encoded(self) -> pa.DictionaryArray:
        return self.ids.dictionary_encode()


@dataclass(frozen=True, eq=False, repr=False)
class Queries(_Columns):
    """Queries in the order of the file; annotations are null if the data has none."""

    ids: pa.LargeStringArray
    texts: pa.LargeStringArray
    answers: pa.LargeStringArray
    body_systems: pa.LargeStringArray
    reasonings: pa.LargeStringArray
    excluded_ids: pa.LargeStringArray
    """JSON lists of the documents that do not count for a query; see `Task.exclusions`."""

    @classmethod
    def of(cls, ids: Sequence[str], texts: Sequence[str]) -> Queries:
        """Make queries without annotations."""
        none = pa.nulls(len(ids), pa.large_string())
        return cls(
            pa.array(ids, pa.large_string()),
            pa.array(texts, pa.large_string()),
            answers=none,
            body_systems=none,
            reasonings=none,
            excluded_ids=none,
        )

    def items(self) -> Iterator[tuple[str, str]]:
        """Yield the id and text of each query."""
        return zip(self.ids.to_pylist(), self.texts.to_pylist(), strict=True)

    def filter(self, chosen: pa.BooleanArray) -> Queries:
        """Return the queries where `chosen` is true, with their annotations."""
        return Queries(**{name: column.filter(chosen) for name, column in vars(self).items()})


@dataclass(frozen=True, eq=False, repr=False)
class Judgements(_Columns):
    """Scores of pairs of query and document: whole numbers, relevant if above 0."""

    query_ids: pa.LargeStringArray
    document_ids: pa.LargeStringArray
    scores: NDArray[np.int32]

    @classmethod
    def none(cls) -> Judgements:
        """Return judgements without rows."""
        ids = pa.array([], pa.large_string())
        return cls(ids, ids, np.zeros(0, dtype=np.int32))

    def filter(self, chosen: pa.BooleanArray) -> Judgements:
        """Return the judgements where `chosen` is true."""
        return Judgements(
            self.query_ids.filter(chosen),
            self.document_ids.filter(chosen),
            self.scores[chosen.to_numpy(zero_copy_only=False)],
        )

    def by_query(self) -> dict[str, dict[str, int]]:
        """Return the scores by query id, then by document id."""
        judged: dict[str, dict[str, int]] = {}
        ids = zip(self.query_ids.to_pylist(), self.document_ids.to_pylist(), strict=True)
        for (query, document), score in zip(ids, self.scores.tolist(), strict=True):
            judged.setdefault(query, {})[document] = score
        return judged


@dataclass(frozen=True, eq=False)
class Task:
    """A named collection with judgements; `notices` are warnings for users."""

    name: str
    suite: str | None
    corpus: Corpus
    queries: Queries
    judgements: Judgements
    source: Path
    split: str | None = None
    """The split in the task's folder; None if the folder has no splits."""
    entry: TaskEntry | None = None
    notices: tuple[str, ...] = ()
    differences: tuple[str, ...] = ()
    """How the data differs from the manifest of a registered task."""

    def __repr__(self) -> str:
        return (
            f"Task({self.name!r}, {len(self.queries):,} queries, {len(self.corpus):,} documents, "
            f"{len(self.judgements):,} judgements)"
        )

    def _repr_html_(self) -> str:
        """Return HTML for notebooks: a summary, the first queries and the warnings."""
        first_queries = islice(self.queries.items(), _SHOWN_QUERIES)
        rows = [[query, text[:_SHOWN_TEXT]] for query, text in first_queries]
        return html_table(repr(self), ["query", "text"], rows, self.notices)

    def sample(self, queries: int) -> Task:
        """Return the same corpus with `queries` judged queries, sampled with a fixed seed.

        The suite of the sample is `sample`, so that no mean or leaderboard takes it for the whole
        task. A larger sample contains every smaller one. A sample of all judged queries is the task
        itself.
        """
        judged = self.judgements.query_ids.unique().to_pylist()
        if queries >= len(judged):
            return self
        drawn = sorted(judged, key=lambda name: hashlib.sha256(f"sample/{name}".encode()).digest())
        chosen = pa.array(drawn[:queries], pa.large_string())
        is_query_chosen = pc.is_in(self.queries.ids, value_set=chosen)
        is_judgement_chosen = pc.is_in(self.judgements.query_ids, value_set=chosen)
        return replace(
            self,
            name=f"{self.name} ({queries} of {len(judged)} queries)",
            suite=SAMPLE,
            queries=self.queries.filter(is_query_chosen),
            judgements=self.judgements.filter(is_judgement_chosen),
        )

    @cached_property
    def exclusions(self) -> Mapping[str, frozenset[str]]:
        """By query id, the ids of documents that do not count; queries without any are left out."""
        return {
            query_id: frozenset(json.loads(excluded))
            for query_id, excluded in zip(
                self.queries.ids.to_pylist(), self.queries.excluded_ids.to_pylist(), strict=True
            )
            if excluded is not None
        }

    @cached_property
    def hash(self) -> str:
        """Hash of all data that a score depends on: corpus, queries, exclusions and judgements."""
        columns = [
            self.queries.ids,
            self.queries.texts,
            self.judgements.query_ids,
            self.judgements.document_ids,
            pa.array(self.judgements.scores),
        ]
        if self.exclusions:
            columns.append(self.queries.excluded_ids)
        other_columns = column_hash(columns)
        return hashlib.sha256(f"{self.corpus.hash}/{other_columns}".encode()).hexdigest()

    def document(self, document_id: str) -> str:
        """Return the text of a document; if the id occurs in several rows, that of the last row."""
        return str(self.corpus.texts[_last_row(self.corpus.ids, document_id)])

    def query(self, query_id: str) -> str:
        """Return the text of a query."""
        return str(self.queries.texts[_last_row(self.queries.ids, query_id)])


def positives_of(judgements: Judgements) -> dict[str, list[str]]:
    """Return the sorted ids of the positive documents, by query id.

    Queries without any are absent.
    """
    judged = judgements.by_query()
    positives = {
        query: sorted(d for d in judged_documents if judged_documents[d] > 0)
        for query, judged_documents in judged.items()
    }
    return {query: documents for query, documents in positives.items() if documents}


def column_hash(columns: Iterable[pa.Array]) -> str:
    """Return a sha256 of the columns' lengths, values and boundaries.

    The hash does not depend on chunking or offsets.
    """
    digest = hashlib.sha256()
    for column in columns:
        digest.update(f"{column.type}:{len(column)};".encode())
        wide = pa.types.is_large_string(column.type)
        if wide or pa.types.is_string(column.type):
            lengths = pc.binary_length(column).fill_null(-1)
            digest.update(lengths.to_numpy(zero_copy_only=False).tobytes())
            _, offsets_buffer, bytes_buffer = column.buffers()
            if bytes_buffer is not None and len(column):
                offsets = np.frombuffer(offsets_buffer, np.int64 if wide else np.int32)
                first, last = offsets[column.offset], offsets[column.offset + len(column)]
                _update_in_parts(digest, memoryview(bytes_buffer)[int(first) : int(last)])
        else:
            digest.update(column.to_numpy(zero_copy_only=False).tobytes())
    return digest.hexdigest()


def _update_in_parts(digest: Any, data: memoryview) -> None:
    """Add bytes to a digest in parts, releasing the memory of parts of a mapped file."""
    for start in range(0, len(data), _HASHED_BYTES):
        digest.update(data[start : start + _HASHED_BYTES])
        if start:
            release_memory()


def _last_row(ids: pa.Array, row_id: str) -> int:
    rows = pc.indices_nonzero(pc.equal(ids, row_id)).to_pylist()
    if not rows:
        raise KeyError(f"{row_id!r} is not in this task")
    return int(rows[-1])


def counts(task: Task) -> dict[str, int]:
    """Return how many queries, documents and judgements a task has."""
    return {
        "queries": len(task.queries),
        "documents": len(task.corpus),
        "judgements": len(task.judgements),
    }


def statistics(task: Task) -> dict[str, Any]:
    """Return text lengths in characters, distinct texts, and relevant documents per query."""
    return {
        "documents": len(task.corpus),
        "documents_text": _text_statistics(task.corpus.texts),
        "queries_text": _text_statistics(task.queries.texts),
        "relevant_docs": _relevance_statistics(task.judgements),
    }


def figures(nested: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of nested statistics with its dotted name, such as `a.b`."""
    for name, value in nested.items():
        if isinstance(value, Mapping):
            yield from figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float):
            yield f"{prefix}{name}", value


def _text_statistics(texts: pa.LargeStringArray) -> dict[str, int | float]:
    lengths = pc.utf8_length(texts).to_numpy(zero_copy_only=False)
    total = int(lengths.sum())
    return {
        "total_text_length": total,
        "min_text_length": int(lengths.min()),
        "average_text_length": total / len(lengths),
        "max_text_length": int(lengths.max()),
        "unique_texts": len(texts.unique()),
    }


def _relevance_statistics(judgements: Judgements) -> dict[str, int | float]:
    """Return statistics of relevant documents per judged query; a query without any counts as 0."""
    relevant = judgements.scores > 0
    queries = judgements.query_ids.dictionary_encode()
    codes = queries.indices.to_numpy(zero_copy_only=False)
    per_query = np.bincount(codes[relevant], minlength=len(queries.dictionary))
    documents = judgements.document_ids.filter(pa.array(relevant))
    return {
        "num_relevant_docs": int(per_query.sum()),
        "min_relevant_docs_per_query": int(per_query.min()),
        "average_relevant_docs_per_query": float(per_query.mean()),
        "max_relevant_docs_per_query": int(per_query.max()),
        "unique_relevant_docs": int(pc.count_distinct(documents).as_py()),
    }


_NUMBERED = re.compile(r"(.+?)[-_#:./ ]+(?:p|s|passage|chunk|part|para)?[-_ ]?\d+(?:\.[a-z]{1,5})?")
#: A stem on more documents than both of these is the corpus's own name (`doc-17`), not a source.
_MOST_PASSAGES, _MOST_OF_CORPUS = 10, 0.05


def sources_of(document_ids: Iterable[str]) -> dict[str, str]:
    """Return by document id the source of which the document is a passage (`PMC123_4`, `book-7#2`).

    Two ids have the same source if they differ only in the number of the passage. Documents without
    such a number, and single passages of a source, are left out.
    """
    stems = passage_stems(document_ids)
    sizes = Counter(stems.values())
    return {name: stem for name, stem in stems.items() if sizes[stem] > 1}


def passage_stems(document_ids: Iterable[str]) -> dict[str, str]:
    """Return the part of each id before its passage number, unless too many ids have this part."""
    ids = list(document_ids)
    stems = {name: match[1] for name in ids if (match := _NUMBERED.fullmatch(name))}
    sizes = Counter(stems.values())
    most = max(_MOST_PASSAGES, _MOST_OF_CORPUS * len(ids))
    return {name: stem for name, stem in stems.items() if sizes[stem] <= most}
