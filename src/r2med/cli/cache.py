"""`r2med cache`: what lies in the home folder, and clearing it; stored results are elsewhere."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

cache = typer.Typer(
    invoke_without_command=True, help="Show or clear data and caches; never touches results."
)


@cache.callback()
def show(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show what lies in R2MED_HOME and how large it is; `clear` empties it."""
    if context.invoked_subcommand is not None:
        return
    from r2med.home import SHELVES, home, shelf
    from r2med.retrieve.dense.store import stored_models

    sizes = {name: _size(shelf(name)) for name in SHELVES}
    if as_json:
        rows = [{"shelf": n, "bytes": sizes[n], "folder": str(shelf(n))} for n in SHELVES]
        models = [
            {"model": m.name, "texts": m.texts(), "bytes": m.bytes, "folder": str(m.folder)}
            for m in stored_models()
        ]
        told = {"home": str(home()), "shelves": rows, "embeddings": models}
        typer.echo(json.dumps(told, indent=2))
        return
    from rich.table import Table

    from r2med.report.console import console

    table = Table("shelf", "size", "holds", box=None, pad_edge=False)
    table.columns[1].justify = "right"
    for name, holds in SHELVES.items():
        table.add_row(name, _megabytes(sizes[name]), holds)
    out = console()
    out.print(str(home()), soft_wrap=True)
    out.print(table)
    held = sorted(stored_models(), key=lambda model: (model.name, model.folder.name))
    if held:
        columns = ("embeddings of", "folder", "texts", "size", "precision")
        by_model = Table(*columns, box=None, pad_edge=False)
        for model in held:
            by_model.add_row(
                model.name,
                f"{model.folder.name[:8]}…",
                f"{model.texts():,}",
                _megabytes(model.bytes),
                model.storage,
            )
        out.print()
        out.print(by_model)


@cache.command()
def clear(
    shelves: Annotated[
        list[str] | None, typer.Argument(metavar="[SHELF...]", help="Shelves; all by default.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete the files of shelves; everything on them can be fetched or built again."""
    import shutil

    from r2med.cli.choices import chosen
    from r2med.home import SHELVES, shelf

    names = [chosen(name, tuple(SHELVES), "shelf") for name in shelves or SHELVES]
    sizes = {name: _size(shelf(name)) for name in names}
    told = ", ".join(f"{name} ({_megabytes(size)})" for name, size in sizes.items())
    if not yes:
        typer.confirm(f"Delete {told}?", abort=True, err=True)
    for name in names:
        shutil.rmtree(shelf(name), ignore_errors=True)
    typer.echo(f"cleared: {told}")


def _size(folder: Path) -> int:
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
