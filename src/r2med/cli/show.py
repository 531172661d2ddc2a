"""`r2med show`: one query, what a model generated for it, and which documents that moved."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from r2med.cli.options import Fresh, LlmUrl, Prompts, conditions


def show(
    task: Annotated[str, typer.Argument(metavar="TASK", help="A task or a folder.")],
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The id of a query.")],
    system: Annotated[
        str,
        typer.Option("--system", "-s", help="An expander and a retriever: 'hyde:smollm2 | bm25'."),
    ],
    data_root: Annotated[
        Path | None, typer.Option(help="Folder with task data you have, as in eval.")
    ] = None,
    llm_url: LlmUrl = None,
    prompts: Prompts = None,
    fresh: Fresh = False,
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Show what expansion does to one query.

    Prints the query, the generation or the agent's trace, and how each relevant
    document moved against the same retriever without it, and why.
    """
    from r2med.engine.showing import show as explained
    from r2med.report.console import console
    from r2med.report.expansion_view import expansion_view
    from r2med.systems.build import System
    from r2med.tasks.load import load_task

    built = System.from_spec(system, conditions(llm_url=llm_url, prompts=prompts, fresh=fresh))
    shown = explained(built, load_task(task, root=data_root), query)
    if as_json:
        typer.echo(json.dumps(asdict(shown), indent=2, ensure_ascii=False))
        return
    console().print(expansion_view(shown, full=full))
