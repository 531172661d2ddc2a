"""Encoders behind an API: paid for once, kept the moment they arrive."""

from r2med.retrieve.api.build import build

__all__ = ["build"]
