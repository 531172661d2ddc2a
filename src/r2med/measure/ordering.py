"""Tie orders, by which a list is sorted before it is measured; pipelines read runs by them too."""

from r2med.runs.ordering import TieOrder, ordered

__all__ = ["TieOrder", "ordered"]
