"""BM25 as a first stage: a variant's settings, and a corpus made ready for searching."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from r2med.atomic import let_go
from r2med.errors import DamagedError
from r2med.retrieve.bm25.analyzers import ANALYZERS, find_analyzer
from r2med.retrieve.bm25.index import Index, build_index, index_path, read_index, write_index
from r2med.retrieve.bm25.scoring import IDFS, QUERIES, Scorer, Weights
from r2med.retrieve.conditions import Conditions
from r2med.runs import Run
from r2med.settings import setting
from r2med.tasks.task import Corpus, Queries, Task


@dataclass(frozen=True)
class Bm25Retriever:
    """A BM25 variant; its fields are the settings of `variants.toml`."""

    analyzer: str = setting(choices=ANALYZERS)
    k1: float = setting(least=0)
    b: float = setting(least=0, most=1)
    idf: str = setting(choices=IDFS)
    query: str = setting(choices=QUERIES)
    unmatched: str = setting(choices=("fill", "drop"))
    """What becomes of documents without any term of the query."""

    @property
    def identity(self) -> Mapping[str, object]:
        """The analysis in its present behaviour."""
        return {"analysis": find_analyzer(self.analyzer).identity}

    def prepare(self, task: Task) -> Bm25Searcher:
        """Take the kept index of this corpus and analysis, or build and keep one."""
        return Bm25Searcher(self, task.corpus)


def build(settings: Bm25Retriever, conditions: Conditions) -> Bm25Retriever:
    """The settings are the retriever; conditions change nothing."""
    return settings


class Bm25Searcher:
    """A corpus under one variant."""

    def __init__(self, retriever: Bm25Retriever, corpus: Corpus) -> None:
        self._retriever = retriever
        self._analyzer = find_analyzer(retriever.analyzer)
        self._corpus = corpus
        self._index, self._origin = self._obtain()
        k1, b, idf, query = retriever.k1, retriever.b, retriever.idf, retriever.query
        self._scorer = Scorer(self._index, k1=k1, b=b, idf=idf, query=query)

    def _obtain(self) -> tuple[Index, str]:
        """The index, and where it came from."""
        path = index_path(self._corpus.hash, self._analyzer.identity)
        origin = "built"
        try:
            return read_index(path), "cached"
        except (FileNotFoundError, NotADirectoryError):
            pass
        except DamagedError as problem:
            origin = f"rebuilt: {problem}"
        tokens = self._analyzer.grouped(self._corpus.texts)
        let_go()
        index = build_index(tokens)
        try:
            write_index(index, path)
        except OSError as problem:
            origin += f", not kept ({problem})"
        return index, origin

    def search(self, queries: Queries, *, depth: int) -> Run:
        """The best documents of every query; of equal scores the id that comes first in the corpus.

        Where an id repeats, its last row's score counts, at its first row's place.
        """
        last_rows = self._corpus.last_rows
        among = None if len(last_rows) == len(self._corpus) else last_rows
        documents: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        scores: list[Weights] = [np.empty(0)]
        asked = self._analyzer.analyze(queries.texts)
        for best, found in self._scorer.best(asked, depth, among=among):
            kept = found > 0 if self._retriever.unmatched == "drop" else slice(None)
            documents.append(best[kept])
            scores.append(found[kept])
        return Run(
            query_ids=queries.ids,
            document_ids=self._corpus.document_ids,
            offsets=np.cumsum([len(best) for best in documents], dtype=np.int64),
            documents=np.concatenate(documents).astype(np.int32),
            scores=np.concatenate(scores),
        )

    def contributions(self, query: str, document_id: str) -> dict[str, float]:
        """What each term of a query adds to a document's score; they sum to it."""
        code = self._corpus.document_ids.index(document_id).as_py()
        text = self._analyzer.analyze(pa.array([query], type=pa.large_string()))
        return self._scorer.contributions(text, int(self._corpus.last_rows[code]))

    def facts(self) -> Mapping[str, object]:
        """The index and the first document as analysed."""
        first = self._analyzer.analyze(self._corpus.texts[:1])
        return {
            "index": self._origin,
            "cached": len(self._index) if self._origin == "cached" else 0,
            "documents": len(self._index),
            "terms": len(self._index.keys),
            "average_length": self._index.average_length,
            "first_document_terms": first.row(0) if len(first) else [],
        }
