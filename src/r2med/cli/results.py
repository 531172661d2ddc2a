"""`r2med results`: list what is stored, show or delete it, and export it for other tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import MissingError, UsageError, plural
from r2med.report.console import agreed, answer, console, echo, notice
from r2med.report.formats import draw
from r2med.report.formats import show as show_value

if TYPE_CHECKING:
    from r2med.results.record import Result

results = command_group(default="list", help="List, show, delete or export stored results.")

AnySystem = Annotated[
    str | None, typer.Option("--system", "-s", help="Only results of this system.")
]


@results.command("list")
def list_results(
    task: options.AnyTask = None,
    system: AnySystem = None,
    folder: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """List stored results: key, score, size and age, and what sets apart those of one name."""
    from r2med.results.evaluation import Stored

    shown = options.format_of(form, as_json)
    stored = Stored(_selected(folder, task, system))
    if stored.results or shown in ("json", "csv"):
        show_value(stored, shown)
    else:
        which = "of this choice " if task or system else ""
        echo(f"No stored result {which}in {folder}. Try: r2med eval bm25 --task demo")


@results.command()
def show(
    system: Annotated[
        str, typer.Argument(metavar="SYSTEM", help="A stored system, or a result's key.")
    ],
    task: options.AnyTask = None,
    folder: options.Results = options.RESULTS,
    as_json: options.Json = False,
) -> None:
    """Show what is recorded of a system's results; --json shows all of it."""
    from r2med.report.scores import result_details

    matching = _needed(folder, task, system)
    records = [
        {**json.loads(each.record.to_json()), "result": str(each.folder)} for each in matching
    ]
    answer(records, *map(result_details, matching), as_json=as_json)


@results.command()
def delete(
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SYSTEM|KEY...]", help="Stored systems, or keys of results."),
    ] = None,
    task: options.AnyTask = None,
    folder: options.Results = options.RESULTS,
    yes: options.Yes = False,
) -> None:
    """Delete stored results by system, key or task, after asking; nothing else is touched.

    Caches stay, so `r2med eval` makes the results again from kept vectors and answers.
    """
    from r2med.results.evaluation import Stored
    from r2med.results.store import Store

    if not systems and task is None:
        raise UsageError("Say what to delete: systems, keys that `r2med results` shows, or --task.")
    names: list[str | None] = [*systems] if systems else [None]
    named = [each for name in names for each in _needed(folder, task, name)]
    stored = Stored(list({each.folder: each for each in named}.values()))
    many = plural(len(stored.results), "result")
    if not yes:
        draw(stored, console())
        if not agreed(f"Delete {many}?"):
            echo("nothing was deleted")
            raise typer.Exit(1)
    for result in stored.results:
        Store(folder).delete(result)
    echo(f"deleted {many}")


@results.command()
def export(
    folder_out: Annotated[Path, options.out("Folder to write to.")],
    form: Annotated[
        Literal["trec", "csv", "mteb"], typer.Option("--to", help="trec, csv or mteb.")
    ] = "trec",
    task: options.AnyTask = None,
    system: AnySystem = None,
    folder: options.Results = options.RESULTS,
) -> None:
    """Write stored results as TREC run files, CSV tables or mteb JSON."""
    from r2med.results.export import EXPORTS

    for path in EXPORTS[form](_needed(folder, task, system), folder_out, notice):
        echo(str(path))


def _selected(folder: Path, task: str | None, system: str | None) -> list[Result]:
    """The readable results that match; damaged ones are named on standard error."""
    from r2med.results.lookup import all_results, of_system, own_tasks
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import resolve

    own = own_tasks(folder)
    names = None if task is None else task_names(resolve(task, own), own)
    stored = sorted(all_results(folder, notice), key=lambda each: str(each.folder))
    among = [result for result in stored if names is None or result.task in names]
    return among if system is None else list(of_system(system, among))


def _needed(folder: Path, task: str | None, system: str | None) -> list[Result]:
    if matching := _selected(folder, task, system):
        return matching
    what = " ".join(filter(None, [system and f"of {system}", task and f"on {task}"]))
    raise MissingError(
        f"{folder}: no stored result {what}".rstrip() + ". `r2med results` lists what is stored."
    )
