"""The command line: thin commands over the library, one file for each command or group."""

from r2med.cli.main import main

__all__ = ["main"]
