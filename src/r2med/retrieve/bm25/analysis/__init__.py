"""Text to terms: the analyzers that the BM25 variants name."""

from r2med.retrieve.bm25.analysis.analyzer import Analyzer
from r2med.retrieve.bm25.analysis.chains import ANALYZERS, find_analyzer
from r2med.retrieve.bm25.analysis.tokens import TokenColumns

__all__ = ["ANALYZERS", "Analyzer", "TokenColumns", "find_analyzer"]
