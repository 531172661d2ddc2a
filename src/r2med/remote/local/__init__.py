"""A language model on this machine: weights from a Python package, llama.cpp from another."""

from r2med.remote.local.running import LocalServer

__all__ = ["LocalServer"]
