"""Dense retrieval: encoders as data, an embedding store, exact search."""

from r2med.retrieve.dense.retriever import Settings, build

__all__ = ["Settings", "build"]
