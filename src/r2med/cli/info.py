"""`r2med info` and `r2med cache`: versions, systems and models by name, and the home folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.home import PAID, SHELVES, home, shelf
from r2med.report.console import agreed, answer, echo
from r2med.report.table import Grid, columns_of, pairs, scaled

info = command_group(default="show", help="Show versions, known systems and language models.")
cache = command_group(default="show", help="Show or clear data and caches; never results.")


@info.command()
def show(as_json: options.Json = False) -> None:
    """Show versions, the machine and the home folder, for reports and reproduction."""
    from rich.text import Text

    from r2med.results.record import library_versions, machine

    facts: dict[str, Mapping[str, object]] = {
        "versions": library_versions(),
        "machine": machine(),
        "folders": {"home": str(home())},
    }
    parts: list[object] = []
    for title, values in facts.items():
        parts.append(Text(title, style="bold"))
        parts.append(pairs(((name, str(value)) for name, value in values.items()), indent=2))
    answer(facts, *parts, as_json=as_json)


@info.command()
def systems(as_json: options.Json = False) -> None:
    """List the systems known by name; docs/systems.md tells how they combine.

    Licences that restrict use are said, and settings that could not be verified.
    """
    from r2med.systems.registry import entries

    described = {}
    for name, entry in entries().items():
        sentences = {
            "": entry.description.rstrip("."),
            "Licence: ": entry.licence,
            "Not verified: ": entry.unverified,
            "Further protocols: ": ", ".join(entry.protocols),
        }
        described[name] = " ".join(f"{what}{text}." for what, text in sentences.items() if text)
    answer(described, pairs(described.items()), as_json=as_json)


@info.command()
def llms(as_json: options.Json = False) -> None:
    """List the language models known by name; docs/llms.md tells how to add one."""
    from r2med.remote.registry import llms as known
    from r2med.remote.server import install_line

    described = {name: llm.description or llm.model for name, llm in known().items()}
    local = {name: llm for name, llm in known().items() if llm.local_package}
    lines = [
        f"\n{name} runs here after this one line, which compiles nothing:\n{install_line(llm)}"
        for name, llm in local.items()
    ]
    answer(described, pairs(described.items()), *lines, as_json=as_json)


def analyze(
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    analyzer: Annotated[str, typer.Option("--analyzer", help="lucene or nano.")] = "lucene",
    as_json: options.Json = False,
) -> None:
    """Print the terms that BM25 indexes a text by, in order."""
    import pyarrow as pa

    from r2med.retrieve.bm25 import find_analyzer

    read = sys.stdin.read() if text == "-" else text
    terms = find_analyzer(analyzer).analyze(pa.array([read], type=pa.large_string())).row(0)
    answer(terms, " ".join(terms), as_json=as_json)


@cache.command("show")
def show_cache(as_json: options.Json = False) -> None:
    """Show what lies in R2MED_HOME and how large it is."""
    from r2med.models.vectors import stored_models

    sizes = {name: _size(shelf(name)) for name in SHELVES}
    shelves = [{"shelf": n, "bytes": sizes[n], "folder": str(shelf(n))} for n in SHELVES]
    embeddings, rows = [], []
    for model in sorted(stored_models(), key=lambda model: (model.name, model.folder.name)):
        shown = {"model": model.name, "texts": model.texts, "bytes": model.bytes}
        embeddings.append({**shown, "folder": str(model.folder)})
        folder, size = f"{model.folder.name[:8]}…", scaled(model.bytes, "B")
        rows.append([model.name, folder, f"{shown['texts']:,}", size, model.storage])
    held = [[name, scaled(sizes[name], "B"), holds] for name, holds in SHELVES.items()]
    parts: list[object] = [str(home()), Grid(columns_of("shelf", ">size", "holds"), held)]
    if rows:
        columns = columns_of("embeddings of", "folder", ">texts", ">size", "precision")
        parts += ["", Grid(columns, rows)]
    facts = {"home": str(home()), "shelves": shelves, "embeddings": embeddings}
    answer(facts, *parts, as_json=as_json)


@cache.command()
def clear(
    shelves: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SHELF...]", help="Shelves; by default all that cost nothing."),
    ] = None,
    yes: options.Yes = False,
) -> None:
    """Delete the files of shelves; what they held is fetched or built again when needed.

    Shelves that may hold answers and vectors of paid models are cleared only by name.
    """
    import shutil

    free = [name for name in SHELVES if name not in PAID]
    names = [options.chosen(name, tuple(SHELVES), "shelf") for name in shelves or free]
    sizes = {name: _size(shelf(name)) for name in names}
    listed = ", ".join(f"{name} ({scaled(size, 'B')})" for name, size in sizes.items())
    if not yes and not agreed(f"Delete {listed}?"):
        echo("nothing was deleted")
        raise typer.Exit(1)
    for name in names:
        if shelf(name).exists():
            shutil.rmtree(shelf(name))
    echo(f"cleared: {listed}")
    if not shelves:
        echo(f"kept: {', '.join(PAID)}, which may have cost money; name a shelf to clear it")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
