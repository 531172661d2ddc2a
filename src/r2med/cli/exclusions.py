"""`r2med tasks exclusions`: what training data must leave out, without the texts themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def exclusions(
    task: Annotated[
        str, typer.Argument(metavar="TASK|SUITE|PATH", help="Tasks, suites or folders.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write; .gz is gzipped.")],
    data_root: Annotated[
        Path | None,
        typer.Option(help="Folder with task data you have, as ROOT/<task>/corpus.jsonl ..."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file there is.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Write what training data must leave out: ids, hashes and fingerprints.

    Of queries, positives and documents of the same source; docs/exclusions.md
    documents the format, which holds no text.
    """
    from r2med.audit.exclusions import write_exclusions
    from r2med.nano.folder import task_group

    counts = write_exclusions(list(task_group(task).load(data_root)), out, force=force)
    if as_json:
        typer.echo(json.dumps({"out": str(out), **counts}, indent=2))
        return
    typer.echo(
        f"{out}: {counts['query']:,} queries, {counts['positive']:,} positives, "
        f"{counts['same-source']:,} same-source documents"
    )
