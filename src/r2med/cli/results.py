"""`r2med results`: list what is stored, and export it for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from r2med.results.record import Result

results = typer.Typer(help="List stored results, or export them.", invoke_without_command=True)

Folder = Annotated[Path, typer.Option("--results", help="The results folder.")]
Task = Annotated[str | None, typer.Option("--task", "-t", help="Only these tasks or suites.")]
System = Annotated[str | None, typer.Option("--system", "-s", help="Only this system.")]


@results.callback()
def list_results(
    context: typer.Context,
    folder: Folder = Path("r2med-results"),
    task: Task = None,
    system: System = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """List stored results, or export them with `r2med results export`."""
    if context.invoked_subcommand:
        return
    found = _selected(folder, task, system)
    if as_json:
        typer.echo(json.dumps([_summary(result) for result in found], indent=2))
        return
    _show(found, folder)


@results.command()
def export(
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")],
    form: Annotated[str, typer.Option("--format", help="trec, csv or mteb.")] = "trec",
    folder: Folder = Path("r2med-results"),
    task: Task = None,
    system: System = None,
) -> None:
    """Write stored results as TREC run files, CSV tables or mteb JSON."""
    from r2med.cli.choices import chosen
    from r2med.errors import MissingError
    from r2med.results.export import EXPORTS

    write = EXPORTS[chosen(form, tuple(EXPORTS), "--format")]
    found = _selected(folder, task, system)
    if not found:
        raise MissingError(f"{folder}: no stored result matches. `r2med results` lists them.")
    for path in write(found, out):
        typer.echo(str(path))


def _selected(folder: Path, task: str | None, system: str | None) -> list[Result]:
    """The readable results that match; damaged ones are named on standard error."""
    from r2med.report.console import notice
    from r2med.results.lookup import all_results

    results = all_results(folder, notice)
    results.sort(key=lambda result: str(result.folder))
    return [result for result in results if _matches(result, task, system)]


def _matches(result: Result, task: str | None, system: str | None) -> bool:
    from r2med.systems.registry import registered
    from r2med.systems.spec import parse
    from r2med.tasks.registry import resolve

    if system is not None and str(registered(parse(system))) != result.system:
        return False
    if task is None:
        return True
    names = [item.name for item in resolve(task)]
    return result.task in names


def _summary(result: Result) -> dict[str, object]:
    return {
        "system": result.system,
        "task": result.task,
        "suite": result.suite,
        "ndcg@10": result.metrics.get("ndcg@10"),
        "created": result.record.created,
        "older": result.record.older,
        "result": str(result.folder),
    }


def _show(found: list[Result], folder: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from r2med.report.console import console

    out = console()
    if not found:
        out.print(f"No stored result in {folder}. Try: r2med eval bm25 --task demo")
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("suite", "task", "system"):
        table.add_column(name, overflow="fold")
    table.add_column("nDCG@10", justify="right")
    table.add_column("created")
    for result in found:
        ndcg = result.metrics.get("ndcg@10")
        score = "-" if ndcg is None else f"{100 * ndcg:.2f}"
        when = result.record.created[:16].replace("T", " ")
        when += " (older)" if result.record.older else ""
        named = (result.suite or "local", result.task, result.system)
        table.add_row(*(Text(cell) for cell in named), score, when)
    out.print(table)
    if any(result.record.older for result in found):
        out.print(
            "older: stored by an older version that did not record all settings; tables and "
            "comparisons leave these out. `r2med eval` runs them again."
        )
