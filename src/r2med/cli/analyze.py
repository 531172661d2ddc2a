"""`r2med analyze`: the terms that a BM25 analysis makes of a text."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer


def analyze(
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    analyzer: Annotated[str, typer.Option(help="lucene or nano.")] = "lucene",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Print the terms that BM25 indexes a text by, in order."""
    import pyarrow as pa

    from r2med.retrieve.bm25 import find_analyzer

    read = sys.stdin.read() if text == "-" else text
    terms = find_analyzer(analyzer).analyze(pa.array([read], type=pa.large_string())).row(0)
    typer.echo(json.dumps(terms, ensure_ascii=False) if as_json else " ".join(terms))
