"""Learned sparse retrieval: a model weighs the words of its vocabulary, a product compares them."""

from r2med.retrieve.sparse.retriever import build

__all__ = ["build"]
