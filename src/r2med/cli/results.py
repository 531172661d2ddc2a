"""`r2med results`: list, show, delete or export stored results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli import options
from r2med.cli.app import command_group
from r2med.errors import MissingError, UsageError, plural
from r2med.report.console import agreed, answer, console, echo, notice
from r2med.report.drawing import draw
from r2med.report.formats import show as show_value

if TYPE_CHECKING:
    from r2med.results.record import Result

results = command_group(default="list", help="List, show, delete or export stored results.")

AnySystem = Annotated[
    str | None, options.option("--system", "-s", help="Only results of this system.")
]


@results.command("list")
def list_results(
    task: options.AnyTask = None,
    system: AnySystem = None,
    folder: options.Results = options.RESULTS,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """List stored results: key, score, size and age, and how results of one name differ."""
    from r2med.results.evaluation import Stored

    output_format = options.format_of(form, as_json)
    stored = Stored(_select(folder, task, system))
    if stored.results or output_format in ("json", "csv"):
        show_value(stored, output_format)
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
    """Show the records of a system's results; --json shows every field."""
    from r2med.report.scores import result_details

    matching = _require(folder, task, system)
    records = [
        {**json.loads(result.record.to_json()), "result": str(result.folder)} for result in matching
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
    """Delete stored results by system, key or task, after asking for confirmation.

    Caches stay, so `r2med eval` makes the results again from kept vectors and answers.
    """
    from r2med.results.evaluation import Stored
    from r2med.results.store import Store

    if not systems and task is None:
        raise UsageError("Say what to delete: systems, keys that `r2med results` shows, or --task.")
    names: list[str | None] = [*systems] if systems else [None]
    matching = [found_result for name in names for found_result in _require(folder, task, name)]
    stored = Stored(list({found_result.folder: found_result for found_result in matching}.values()))
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
        str,
        options.option(
            "--to",
            heading=options.OUTPUT,
            metavar="FORMAT",
            help="trec, csv, mteb, hakari, model-card, mlflow, wandb, tensorboard, or a format "
            "that a plugin adds.",
        ),
    ] = "trec",
    task: options.AnyTask = None,
    system: AnySystem = None,
    folder: options.Results = options.RESULTS,
) -> None:
    """Write stored results for another tool.

    TREC run files, CSV tables, files for mteb or HAKARI-Bench, a Hugging Face model card, or runs
    of MLflow, Weights & Biases (offline) or TensorBoard. Files contain ids and scores, no texts
    and no folders of this machine.
    """
    from r2med.callbacks.exporters import find_exporter
    from r2med.explore.sharing import hide_folders

    stored = hide_folders(_require(folder, task, system))
    for path in find_exporter(form)(stored, folder_out, notice):
        echo(str(path))


@results.command()
def pack(
    path: Annotated[Path, options.out("Archive to write, such as results.zip.")],
    task: options.AnyTask = None,
    system: AnySystem = None,
    prompts: options.Prompts = None,
    folder: options.Results = options.RESULTS,
) -> None:
    """Pack results with runs, generations, prompts and checksums into one archive.

    Corpora and judgements are not part of it; stored generations contain the queries.
    """
    from r2med.results.pack import pack_results

    matching = _require(folder, task, system)
    hashes = pack_results(matching, path, prompts=prompts, warn=notice)
    echo(f"{path}: {plural(len(matching), 'result')}, {plural(len(hashes), 'file')}")


@results.command()
def verify(
    archive: Annotated[
        Path, typer.Argument(metavar="ARCHIVE", help="An archive of `r2med results pack`.")
    ],
    data_root: options.DataRoot = None,
    form: options.Format = None,
    as_json: options.Json = False,
) -> None:
    """Check the files of an archive and measure its runs again.

    A result is measured again where the data of its task is here. Exits with 1 when a file is
    damaged or a score differs.
    """
    from r2med.results.pack import verify_archive

    verification = verify_archive(archive, data_root)
    show_value(verification, options.format_of(form, as_json))
    if not verification.passed:
        raise typer.Exit(1)


def _select(folder: Path, task: str | None, system: str | None) -> list[Result]:
    """Return the results that match; damaged results are reported on standard error."""
    from r2med.results.select import ResultSet
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import resolve

    result_set = ResultSet.open(folder, notice, samples=True)
    local_tasks = result_set.local_tasks
    names = None if task is None else task_names(resolve(task, local_tasks), local_tasks)
    matching = result_set.results if system is None else result_set.find_results(system)
    on_tasks = [result for result in matching if names is None or result.task in names]
    return sorted(on_tasks, key=lambda result: str(result.folder))


def _require(folder: Path, task: str | None, system: str | None) -> list[Result]:
    if matching := _select(folder, task, system):
        return matching
    selection = " ".join(filter(None, [system and f"of {system}", task and f"on {task}"]))
    raise MissingError(
        f"{folder}: no stored result {selection}".rstrip()
        + ". `r2med results` lists the stored results."
    )
