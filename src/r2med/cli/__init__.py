"""The command line: thin commands over the library, one file each."""

from r2med.cli.main import main

__all__ = ["main"]
