"""`r2med info`: versions, folders, and the systems and language models known by name."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from r2med.cli.group import command_group
from r2med.cli.options import Json

info = command_group(default="show", help="Show versions, known systems and language models.")


@info.command()
def show(as_json: Json = False) -> None:
    """Show versions, the machine and the home folder, for reports and reproduction."""
    from r2med.home import home
    from r2med.report.console import console, echo_json
    from r2med.report.table import pairs
    from r2med.results.record import library_versions, machine

    facts: dict[str, dict[str, object]] = {
        "versions": {**library_versions()},
        "machine": {**machine()},
        "folders": {"home": str(home())},
    }
    if as_json:
        echo_json(facts)
        return
    out = console()
    for title, values in facts.items():
        out.print(title, style="bold")
        out.print(pairs(((name, str(value)) for name, value in values.items()), indent=2))


@info.command()
def systems(as_json: Json = False) -> None:
    """List the systems known by name; docs/systems.md tells how they combine.

    Licences that restrict use are said, and settings that could not be verified.
    """
    from r2med.systems.registry import entries

    described = {}
    for name, entry in entries().items():
        protocols = ", ".join(entry.protocols)
        more = [
            f"Licence: {entry.licence}." if entry.licence else "",
            f"Not verified: {entry.unverified}." if entry.unverified else "",
            f"Further protocols: {protocols}." if protocols else "",
        ]
        sentence = f"{entry.description.rstrip('.')}."
        described[name] = " ".join(part for part in (sentence, *more) if part)
    _list(described, as_json)


@info.command()
def llms(as_json: Json = False) -> None:
    """List the language models known by name; docs/llms.md tells how to add one."""
    from r2med.remote.registry import llms as known
    from r2med.remote.server import install_line
    from r2med.report.console import echo

    _list({name: llm.description or llm.model for name, llm in known().items()}, as_json)
    for name, llm in known().items():
        if llm.local_package and not as_json:
            echo(f"\n{name} runs here after this one line, which compiles nothing:")
            echo(install_line(llm))


def analyze(
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    analyzer: Annotated[str, typer.Option("--analyzer", help="lucene or nano.")] = "lucene",
    as_json: Json = False,
) -> None:
    """Print the terms that BM25 indexes a text by, in order."""
    import pyarrow as pa

    from r2med.report.console import echo, echo_json
    from r2med.retrieve.bm25 import find_analyzer

    read = sys.stdin.read() if text == "-" else text
    terms = find_analyzer(analyzer).analyze(pa.array([read], type=pa.large_string())).row(0)
    if as_json:
        echo_json(terms)
    else:
        echo(" ".join(terms))


def _list(descriptions: dict[str, str], as_json: bool) -> None:
    from r2med.report.console import console, echo_json
    from r2med.report.table import pairs

    if as_json:
        echo_json(descriptions)
    else:
        console().print(pairs(descriptions.items()))
