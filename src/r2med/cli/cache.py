"""`r2med cache`: what lies in the home folder, and clearing it; stored results are elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.group import command_group
from r2med.cli.options import Json, Yes, chosen

if TYPE_CHECKING:
    from pathlib import Path

cache = command_group(default="show", help="Show or clear data and caches; never results.")


@cache.command()
def show(as_json: Json = False) -> None:
    """Show what lies in R2MED_HOME and how large it is."""
    from r2med.home import SHELVES, home, shelf
    from r2med.models.vectors import stored_models
    from r2med.report.console import console, echo_json
    from r2med.report.table import Column, Grid, file_size

    sizes = {name: _size(shelf(name)) for name in SHELVES}
    models = sorted(stored_models(), key=lambda model: (model.name, model.folder.name))
    if as_json:
        shelves = [{"shelf": n, "bytes": sizes[n], "folder": str(shelf(n))} for n in SHELVES]
        embeddings = [
            {
                "model": m.name,
                "texts": m.texts(),
                "bytes": m.bytes,
                "folder": str(m.folder),
                "older": m.older,
            }
            for m in models
        ]
        echo_json({"home": str(home()), "shelves": shelves, "embeddings": embeddings})
        return
    out = console()
    out.print(str(home()), soft_wrap=True)
    columns = [Column("shelf", right=False), Column("size"), Column("holds", right=False)]
    out.print(Grid(columns, [[n, file_size(sizes[n]), held] for n, held in SHELVES.items()]))
    if models:
        columns = [
            *(Column(title, right=False) for title in ("embeddings of", "folder")),
            *(Column(title) for title in ("texts", "size")),
            Column("precision", right=False),
        ]
        rows = [
            [
                m.name,
                f"{m.folder.name[:8]}…",
                f"{m.texts():,}",
                file_size(m.bytes),
                f"{m.storage}, of an older version: not used" if m.older else m.storage,
            ]
            for m in models
        ]
        out.print()
        out.print(Grid(columns, rows))


@cache.command()
def clear(
    shelves: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SHELF...]", help="Shelves; by default all that cost nothing."),
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete the files of shelves; what they held is fetched or built again when needed.

    Shelves that may hold answers and vectors of paid models are cleared only by name.
    """
    import shutil

    from r2med.home import PAID, SHELVES, shelf
    from r2med.report.console import agreed, echo
    from r2med.report.table import file_size

    free = [name for name in SHELVES if name not in PAID]
    names = [chosen(name, tuple(SHELVES), "shelf") for name in shelves or free]
    sizes = {name: _size(shelf(name)) for name in names}
    listed = ", ".join(f"{name} ({file_size(size)})" for name, size in sizes.items())
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
