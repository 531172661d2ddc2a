"""`r2med generate`: have a model write for a task's queries, and keep what it wrote."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from r2med.cli.llm_options import (
    Concurrency,
    Fresh,
    LlmUrl,
    MaxCost,
    MaxTokens,
    Prompts,
    with_llm,
)

if TYPE_CHECKING:
    from r2med.engine.generating import Generating
    from r2med.expand.expanded import Expansion
    from r2med.tasks.task import Task


def generate(
    method: Annotated[
        str,
        typer.Argument(
            metavar="METHOD", help="hyde, query2doc, lamer, search-o1 or search-r1; options in []."
        ),
    ],
    llm: Annotated[str | None, typer.Option(help="The model, e.g. smollm2 or gpt4.")] = None,
    task: Annotated[
        str, typer.Option("--task", "-t", help="Tasks, suites or folders; comma-separated.")
    ] = "demo",
    data_root: Annotated[
        Path | None, typer.Option(help="Folder with task data you have, as in eval.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where the files go.")] = Path("r2med-generations"),
    n: Annotated[int | None, typer.Option("--n", help="Samples a query.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what it would use and cost.")
    ] = False,
    write_prompts: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only copy the method's prompts there, to edit."),
    ] = None,
    llm_url: LlmUrl = None,
    prompts: Prompts = None,
    fresh: Fresh = False,
    max_tokens: MaxTokens = None,
    max_cost: MaxCost = None,
    concurrency: Concurrency = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    r"""Have a model write for the queries of tasks; nothing is searched or scored.

    Every answer is kept the moment it arrives: a run that was stopped goes on
    where it was. Files are OUT/<task>/<method>/<llm>/query_with_hydoc.jsonl;
    eval reads them when \[generations=OUT] follows the model's name.
    """
    from r2med.engine.generating import Generating
    from r2med.report.console import notice, progress
    from r2med.report.work_line import work_line
    from r2med.retrieve.conditions import Conditions

    if write_prompts is not None:
        _write_prompts(method, write_prompts)
        return
    asking = partial(
        with_llm,
        llm_url=llm_url,
        prompts=prompts,
        fresh=fresh,
        max_tokens=max_tokens,
        max_cost=max_cost,
        concurrency=concurrency,
    )
    with progress() as bar:
        conditions = asking(Conditions(tell=notice, progress=work_line(bar)))
        generating = Generating.of(method, llm, samples=n, conditions=conditions)
        rows = [
            _estimated(generating, each) if dry_run else _written(generating, each, out)
            for each in _tasks(task, data_root)
        ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    _show(rows, generating, dry_run=dry_run)


def _write_prompts(method: str, folder: Path) -> None:
    from r2med.engine.generating import find_method
    from r2med.expand.prompting import write_prompts

    name = find_method(method).name
    written = write_prompts(name, folder)
    typer.echo(f"{len(written)} prompts written to {folder / name}; what was there is untouched.")


def _tasks(names: str, root: Path | None) -> list[Task]:
    from r2med.tasks.load import load_task
    from r2med.tasks.registry import resolve

    return [
        load_task(item if isinstance(item, Path) else item.name, root=root)
        for item in resolve(names)
    ]


def _estimated(generating: Generating, task: Task) -> dict[str, object]:
    from r2med.report.generation_table import estimate_row

    return estimate_row(task.name, *generating.estimate(task))


def _written(generating: Generating, task: Task, out: Path) -> dict[str, object]:
    expansion, path = generating.write(task, out)
    return {"task": task.name, **_counts(expansion), "file": str(path)}


def _counts(expansion: Expansion) -> dict[str, object]:
    shown = ("generations", "truncated", "empty", "refused", "calls", "reused_calls")
    used = ("prompt_tokens", "completion_tokens", "money")
    facts = expansion.facts()
    return {name: facts[name] for name in (*shown, *used)}


def _show(rows: list[dict[str, object]], generating: Generating, *, dry_run: bool) -> None:
    from r2med.report.console import console
    from r2med.report.generation_table import estimate_table, generation_table

    title = f"{generating.name} by {generating.llm}"
    table = estimate_table if dry_run else generation_table
    console().print(table(rows, title))
