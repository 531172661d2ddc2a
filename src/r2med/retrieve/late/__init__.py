"""Late interaction: a vector for every token, compared by MaxSim."""

from r2med.retrieve.late.retriever import build

__all__ = ["build"]
