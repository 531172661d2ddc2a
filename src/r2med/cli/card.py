"""`r2med tasks card`: a page about a task, its figures computed from data and results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def card(
    task: Annotated[
        str, typer.Argument(metavar="TASK|SUITE|PATH", help="Tasks, suites or folders.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write the pages into.")],
    results: Annotated[Path, typer.Option(help="Where results are stored.")] = Path(
        "r2med-results"
    ),
    dense: Annotated[
        str, typer.Option(help="Encoder for tasks without candidates; none leaves BM25 alone.")
    ] = "wordllama",
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a folder that is not empty.")
    ] = False,
) -> None:
    """Write a task's page in Markdown, HTML and JSON; for several, a group page.

    Figures and failures come from the data, its candidates and stored
    results.
    """
    from r2med.nano.folder import task_group
    from r2med.report.cards.pages import write_cards
    from r2med.report.console import notice
    from r2med.results.lookup import stored_results

    group = task_group(task)
    pages = write_cards(
        group.load(data_root),
        out,
        group.title,
        results=stored_results(results, notice),
        dense=None if dense == "none" else dense,
        force=force,
        tell=notice,
    )
    typer.echo(
        f"{out}: {len(pages)} {'page' if len(pages) == 1 else 'pages'}, as .md, .html and .json"
    )
