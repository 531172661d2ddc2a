"""`r2med info` and `r2med cache`: versions, systems and models by name, and the home folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.number_format import format_count
from r2med.paths import CACHE_FOLDERS, PAID_FOLDERS, cache_folder, home_folder
from r2med.report.console import agreed, answer, echo
from r2med.report.table import Grid, make_columns, name_value_table

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
        "folders": {"home": str(home_folder())},
    }
    parts: list[object] = []
    for title, values in facts.items():
        parts.append(Text(title, style="bold"))
        parts.append(
            name_value_table(((name, str(value)) for name, value in values.items()), indent=2)
        )
    answer(facts, *parts, as_json=as_json)


@info.command()
def systems(as_json: options.Json = False) -> None:
    """List the systems known by name; docs/systems.md tells how they combine.

    Also shows licences that restrict use, and settings that could not be verified.
    """
    from r2med.systems.registry import entries

    described = {}
    for name, entry in entries().items():
        sentences = {
            "": entry.description.rstrip("."),
            "Licence: ": entry.licence,
            "As published: ": "; ".join(entry.peculiarities),
            "Not verified: ": entry.unverified,
            "Further protocols: ": ", ".join(entry.protocols),
        }
        described[name] = " ".join(
            f"{heading}{text}." for heading, text in sentences.items() if text
        )
    answer(described, name_value_table(described.items()), as_json=as_json)


@info.command()
def llms(as_json: options.Json = False) -> None:
    """List the language models known by name; docs/llms.md tells how to add one."""
    from r2med.remote.registry import llms as known
    from r2med.remote.server import install_command

    described = {name: llm.description or llm.model for name, llm in known().items()}
    local = {name: llm for name, llm in known().items() if llm.local_package}
    lines = [
        f"\n{name} runs here after this one line, which compiles nothing:\n{install_command(llm)}"
        for name, llm in local.items()
    ]
    answer(described, name_value_table(described.items()), *lines, as_json=as_json)


def analyze(
    text: Annotated[str, typer.Argument(help="The text; - reads it from standard input.")],
    analyzer: Annotated[str, options.option("--analyzer", help="lucene or nano.")] = "lucene",
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
    """Show the caches in R2MED_HOME and their sizes."""
    from r2med.models.embedding_cache import cached_models

    sizes = {name: _size(cache_folder(name)) for name in CACHE_FOLDERS}
    caches = [
        {"cache": n, "bytes": sizes[n], "folder": str(cache_folder(n))} for n in CACHE_FOLDERS
    ]
    embeddings, rows = [], []
    for model in sorted(cached_models(), key=lambda model: (model.name, model.folder.name)):
        facts_of_model = {"model": model.name, "texts": model.texts, "bytes": model.bytes}
        embeddings.append({**facts_of_model, "folder": str(model.folder)})
        folder, size = f"{model.folder.name[:8]}…", format_count(model.bytes, "B")
        rows.append([model.name, folder, f"{facts_of_model['texts']:,}", size, model.storage])
    held = [[name, format_count(sizes[name], "B"), holds] for name, holds in CACHE_FOLDERS.items()]
    parts: list[object] = [str(home_folder()), Grid(make_columns("cache", ">size", "holds"), held)]
    if rows:
        columns = make_columns("embeddings of", "folder", ">texts", ">size", "precision")
        parts += ["", Grid(columns, rows)]
    facts = {"home": str(home_folder()), "caches": caches, "embeddings": embeddings}
    answer(facts, *parts, as_json=as_json)


@cache.command()
def clear(
    caches: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[CACHE...]", help="Caches to clear; by default those that cost no money."
        ),
    ] = None,
    yes: options.Yes = False,
) -> None:
    """Delete cached files; they are downloaded or computed again when needed.

    Caches of answers and embeddings of paid models are cleared only by name.
    """
    free = [name for name in CACHE_FOLDERS if name not in PAID_FOLDERS]
    names = [options.check_choice(name, tuple(CACHE_FOLDERS), "cache") for name in caches or free]
    sizes = {name: _size(cache_folder(name)) for name in names}
    listed = ", ".join(f"{name} ({format_count(size, 'B')})" for name, size in sizes.items())
    if not yes and not agreed(f"Delete {listed}?"):
        echo("nothing was deleted")
        raise typer.Exit(1)
    for name in names:
        _delete_content(cache_folder(name))
    echo(f"cleared: {listed}")
    if not caches:
        echo(f"kept: {', '.join(PAID_FOLDERS)}, which may have cost money; name them to clear them")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def _delete_content(folder: Path) -> None:
    """Delete a folder; if it is a symbolic link, delete the content of its target."""
    if not folder.exists():
        return
    if not folder.is_symlink():
        shutil.rmtree(folder)
        return
    for entry in folder.resolve().iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
