"""Encoders behind an API: paid for once, kept the moment they arrive."""

from r2med.retrieve.api.encoder import build
from r2med.retrieve.api.settings import ApiSettings

__all__ = ["ApiSettings", "build"]
