"""BM25 in the named variants of this benchmark's publications, with exactly their scores."""

from r2med.retrieve.bm25.analyzers import ANALYZERS, find_analyzer
from r2med.retrieve.bm25.retriever import Bm25Retriever, Bm25Searcher, build

__all__ = ["ANALYZERS", "Bm25Retriever", "Bm25Searcher", "build", "find_analyzer"]
