"""Runs: ranked lists with scores, and the files in which they are stored."""

from r2med.runs.run import Run

__all__ = ["Run"]
