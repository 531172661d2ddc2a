"""Agents as systems: their traces, from any source, and the scores of traces."""
