"""Dense retrieval: encoders as data, an embedding store, exact search."""

from r2med.retrieve.dense.build import build

__all__ = ["build"]
