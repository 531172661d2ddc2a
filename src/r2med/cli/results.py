"""`r2med results`: list what is stored, show one result, and export them for other tools."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.group import command_group
from r2med.cli.options import RESULTS, AnyTask, Json, Results, chosen, out

if TYPE_CHECKING:
    from r2med.results.record import Result

results = command_group(default="list", help="List, show or export stored results.")

AnySystem = Annotated[
    str | None, typer.Option("--system", "-s", help="Only results of this system.")
]


@results.command("list")
def list_results(
    task: AnyTask = None,
    system: AnySystem = None,
    folder: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """List stored results."""
    from r2med.report.console import console, echo_json
    from r2med.report.table import Column, Grid, SystemName, points
    from r2med.results.lookup import shared_names

    matching = _selected(folder, task, system)
    screen = console()
    if as_json:
        echo_json([_summary(result) for result in matching])
    elif not matching:
        screen.print(f"No stored result in {folder}. Try: r2med eval bm25 --task demo")
    else:
        rows = [
            [
                result.suite or "local",
                SystemName(result.task),
                SystemName(result.system),
                points(result.metrics.get("ndcg@10")),
                _when(result),
            ]
            for result in matching
        ]
        titles = ("suite", "task", "system", "nDCG@10", "created")
        columns = [Column(title, right=title == "nDCG@10") for title in titles]
        screen.print(Grid(columns, rows))
        for note in (*shared_names(matching), *_other_data(matching)):
            screen.print(note)
        if any(result.record.older for result in matching):
            screen.print(
                "older: stored by an older version that did not record all settings; tables and "
                "comparisons leave these out. `r2med eval` runs them again."
            )


@results.command()
def show(
    system: Annotated[str, typer.Argument(metavar="SYSTEM", help="A stored system.")],
    task: AnyTask = None,
    folder: Results = RESULTS,
    as_json: Json = False,
) -> None:
    """Show everything that is recorded of a system's results."""
    from r2med.errors import MissingError
    from r2med.report.console import console, echo_json
    from r2med.report.table import pairs

    matching = _selected(folder, task, system)
    if not matching:
        raise MissingError(f"{folder}: no stored result matches. `r2med results` lists them.")
    if as_json:
        records = [json.loads(result.record.to_json()) for result in matching]
        echo_json(
            [{**each, "result": str(r.folder)} for each, r in zip(records, matching, strict=True)]
        )
        return
    screen = console()
    for result in matching:
        screen.print(f"{result.system} · {result.task}", style="bold")
        screen.print(pairs(_facts(result), indent=2))


@results.command()
def export(
    folder_out: Annotated[Path, out("Folder to write to.")],
    form: Annotated[str, typer.Option("--to", help="trec, csv or mteb.")] = "trec",
    task: AnyTask = None,
    system: AnySystem = None,
    folder: Results = RESULTS,
) -> None:
    """Write stored results as TREC run files, CSV tables or mteb JSON."""
    from r2med.errors import MissingError
    from r2med.report.console import echo, notice
    from r2med.results.export import EXPORTS

    write = EXPORTS[chosen(form, tuple(EXPORTS), "--to")]
    matching = _selected(folder, task, system)
    if not matching:
        raise MissingError(f"{folder}: no stored result matches. `r2med results` lists them.")
    for path in write(matching, folder_out, notice):
        echo(str(path))


def _selected(folder: Path, task: str | None, system: str | None) -> list[Result]:
    """The readable results that match; damaged ones are named on standard error."""
    from r2med.report.console import notice
    from r2med.results.lookup import all_results, own_tasks
    from r2med.systems.registry import registered
    from r2med.systems.spec import parse
    from r2med.tasks.load import task_names
    from r2med.tasks.registry import resolve

    spec = None if system is None else str(registered(parse(system)))
    own = own_tasks(folder)
    names = None if task is None else task_names(resolve(task, own), own)
    return [
        result
        for result in sorted(all_results(folder, notice), key=lambda each: str(each.folder))
        if (spec is None or result.system == spec) and (names is None or result.task in names)
    ]


def _when(result: Result) -> str:
    older = " (older)" if result.record.older else ""
    return result.record.created[:16].replace("T", " ") + older


def _other_data(results: Sequence[Result]) -> list[str]:
    """A note for every task of a suite with results on other data than the suite now has."""
    from r2med.results.reproduction import other_data

    reasons = Counter(reason for each in results if each.suite and (reason := other_data(each)))
    return [f"{reason} ({count} of the results listed)." for reason, count in reasons.items()]


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


def _facts(result: Result) -> list[tuple[str, str]]:
    """What a reader asks of a stored result; --json has the rest."""
    record = result.record
    task = record.task
    facts = [
        ("stored in", str(result.folder)),
        ("created", record.created),
        ("data", f"{task.documents:,} documents, {task.queries:,} queries, hash {task.hash[:12]}"),
        ("metrics × 100", ", ".join(f"{n} {100 * v:.2f}" for n, v in record.metrics.items())),
        ("seconds", ", ".join(f"{name} {value:.2f}" for name, value in record.seconds.items())),
        ("depth, tie order", f"{record.system.depth}, {record.system.ties}"),
        ("published as", record.system.published_as or "not published"),
        ("versions", ", ".join(f"{name} {number}" for name, number in record.versions.items())),
    ]
    facts += [("deviation", text) for text in record.system.deviations]
    return facts + [("notice", text) for text in task.notices]
