"""Dense retrieval: encoders as data, an embedding store, exact search."""

from r2med.retrieve.dense.retriever import build
from r2med.retrieve.dense.settings import Settings

__all__ = ["Settings", "build"]
