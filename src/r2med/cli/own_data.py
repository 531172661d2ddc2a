"""`r2med tasks check` and `r2med tasks import`: data of one's own, before it is evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r2med.cli.options import Force, Json, out
from r2med.errors import UsageError


def check(
    folders: Annotated[
        list[str], typer.Argument(metavar="FOLDER...", help="Folders with a task, or with several.")
    ],
    as_json: Json = False,
) -> None:
    """List all problems of your data at once, or show what it is.

    Each problem with its file, line and id. Exits with 1 when there are any.
    """
    from dataclasses import asdict

    from r2med.report.console import console, echo_json
    from r2med.report.own_data import problem_grid, summary
    from r2med.tasks.own_data import check as check_one
    from r2med.tasks.reading.source import split_selection, task_folders

    places: list[str | Path] = []
    for folder in folders:
        path, split = split_selection(folder)
        places += [folder] if split or not path.is_dir() else task_folders(path)
    checked = [check_one(place) for place in places]
    problems = [problem for each in checked for problem in each.problems]
    if as_json:
        echo_json([asdict(problem) for problem in problems])
    else:
        screen = console()
        if problems:
            screen.print(problem_grid(problems))
        for each in checked:
            if each.task and not each.problems:
                screen.print(summary(each.task))
    if problems:
        raise typer.Exit(1)


def import_files(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="Documents, as .csv or .tsv.")],
    queries: Annotated[Path, typer.Argument(metavar="QUERIES", help="Queries, likewise.")],
    qrels: Annotated[Path, typer.Argument(metavar="QRELS", help="Judgements, likewise.")],
    folder: Annotated[Path, out("The folder to write.")],
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="PART.FIELD=NAME",
            help="Where a column has a name of its own, e.g. corpus.text=body; may be repeated.",
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Make a task's folder from CSV or TSV files.

    Columns are found by usual names (id, text, title; query-id, corpus-id, score) or mapped with
    --column. `r2med tasks check` then says whether the data fits together.
    """
    from r2med.report.console import echo
    from r2med.tasks.own_data import check as check_one
    from r2med.tasks.own_data import import_tables

    mapped = {}
    for each in column or ():
        name, equals, value = each.partition("=")
        if not equals or not value:
            raise UsageError(f"--column {each}: expected PART.FIELD=NAME, as in corpus.text=body.")
        mapped[name.strip()] = value.strip()
    import_tables(corpus, queries, qrels, out=folder, columns=mapped, force=force)
    problems = len(check_one(folder).problems)
    echo(f"wrote {folder}")
    if problems:
        many = "1 problem" if problems == 1 else f"{problems:,} problems"
        echo(f"{many} in it: r2med tasks check {folder}")
    else:
        echo(f"Try next: r2med eval bm25 --task {folder}")
