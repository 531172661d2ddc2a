"""Runs: ranked lists with scores, and the files they are kept in."""

from r2med.runs.run import Run

__all__ = ["Run"]
